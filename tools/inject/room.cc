// SPDX-License-Identifier: Apache-2.0
#include "tools/inject/room.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace nanwatch {
namespace {

constexpr uint64_t kAlignment = 16;
// Stands behind each piece: what it holds may end in zeros, and the next to come must not take
// them.
constexpr uint64_t kFence = 0x65636e65666e776e;  // "nwnfence"

uint64_t Aligned(uint64_t address) { return (address + kAlignment - 1) & ~(kAlignment - 1); }

}  // namespace

void Room::Add(const ElfImage& image, const Mappings& mappings, bool may_hold_data) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const ElfSegment& segment : image.segments()) {
    const Mapping* mapping = MappingAt(mappings, segment.end - 1);
    const uint64_t end = (segment.end + page - 1) & ~(page - 1);
    if (mapping == nullptr || !mapping->readable || end > mapping->end) continue;
    // Data that the loader has made read-only since is of no use.
    if (segment.writable != mapping->writable || segment.executable != mapping->executable)
      continue;
    if (segment.writable && (!may_hold_data || segment.executable)) continue;
    AddHole({.all = segment.end,
             .end = end,
             .executable = segment.executable,
             .writable = segment.writable});
  }
}

void Room::AddHole(Hole hole) {
  hole.bytes.resize(hole.end - hole.all);
  if (hole.bytes.empty() || !memory_->Read(hole.all, hole.bytes)) return;
  const auto used = std::find_if(hole.bytes.rbegin(), hole.bytes.rend(),
                                 [](std::byte byte) { return byte != std::byte{0}; });
  hole.begin = Aligned(hole.all + static_cast<uint64_t>(hole.bytes.rend() - used));
  holes_.push_back(std::move(hole));
}

std::vector<uint64_t> Room::Marked(uint64_t magic) const {
  std::vector<uint64_t> marked;
  for (const Hole& hole : holes_) {
    if (!hole.executable) continue;
    for (uint64_t at = Aligned(hole.all); at + sizeof magic <= hole.end; at += kAlignment) {
      if (memcmp(hole.bytes.data() + (at - hole.all), &magic, sizeof magic) == 0)
        marked.push_back(at);
    }
  }
  return marked;
}

std::optional<uint64_t> Room::Take(size_t bytes, Use use) {
  const uint64_t whole = Aligned(bytes) + sizeof kFence;
  for (Hole& hole : holes_) {
    if (use == Use::kCode ? !hole.executable : use == Use::kData ? !hole.writable : hole.writable)
      continue;
    if (hole.begin + whole > hole.end) continue;
    const uint64_t at = hole.begin;
    hole.begin = Aligned(at + whole);
    if (!memory_->Put(at + whole - sizeof kFence, kFence)) return std::nullopt;
    return at;
  }
  return std::nullopt;
}

std::optional<uint64_t> Room::Place(std::span<const std::byte> bytes, Use use) {
  const std::optional<uint64_t> at = Take(bytes.size(), use);
  return at && memory_->Write(*at, bytes) ? at : std::nullopt;
}

}  // namespace nanwatch
