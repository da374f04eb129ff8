// SPDX-License-Identifier: Apache-2.0
// A finding ring in memory that forked processes share, and records whose every word follows from
// who wrote them and when, so that a torn one is recognised.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "proto/wire/ring.h"

namespace nanwatch::wire {

// How often a test kills something. A fork costs a hundred times as much under a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kLives = 50;
#else
inline constexpr int kLives = 1000;
#endif

// Zeroed memory that a forked child shares.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedMemory() { munmap(memory_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(memory_);
  }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  void* memory_;
};

class SharedRing {
 public:
  explicit SharedRing(uint64_t capacity)
      : memory_(sizeof(RingHeader) + capacity * sizeof(Slot)),
        writer_(header(), slots(), capacity) {}

  [[nodiscard]] RingHeader* header() const { return memory_.as<RingHeader>(); }
  [[nodiscard]] Slot* slots() const { return reinterpret_cast<Slot*>(header() + 1); }
  [[nodiscard]] size_t bytes() const { return memory_.bytes(); }
  RingWriter& writer() { return writer_; }
  [[nodiscard]] RingReader Reader(std::optional<uint64_t> cursor = {}) const {
    return *RingReader::Open(header(), memory_.bytes(), cursor);
  }

 private:
  SharedMemory memory_;
  RingWriter writer_;
};

inline uint64_t WordOf(uint32_t thread, uint64_t ticket, size_t index) {
  uint64_t word = (ticket << 20 | uint64_t{thread} << 12 | index) * 0x9e3779b97f4a7c15ull;
  return word ^ word >> 31;
}

// A record of `bytes` bytes (a multiple of 8, at least a header), its content given by thread and
// ticket.
inline std::vector<uint64_t> MakeRecord(uint32_t thread, uint64_t ticket, size_t bytes) {
  std::vector<uint64_t> words(bytes / sizeof(uint64_t));
  for (size_t i = 0; i < words.size(); ++i) words[i] = WordOf(thread, ticket, i);
  RecordHeader header{};
  std::memcpy(&header, words.data(), sizeof header);
  header.kind = static_cast<uint16_t>(RecordKind::kValue);
  header.bytes = static_cast<uint16_t>(bytes);
  header.thread = thread;
  header.ticket = ticket;
  std::memcpy(words.data(), &header, sizeof header);
  return words;
}

[[nodiscard]] inline bool WriteRecord(RingWriter& writer, uint32_t thread, uint64_t ticket,
                                      size_t bytes) {
  const std::vector<uint64_t> record = MakeRecord(thread, ticket, bytes);
  return writer.Write(record.data(), bytes);
}

// Whether a copy is, to the last byte, what MakeRecord made.
[[nodiscard]] inline bool IsWhole(const RecordCopy& copy) {
  const RecordHeader& header = copy.header();
  if (header.bytes % 8 != 0) return false;
  const std::vector<uint64_t> expected = MakeRecord(header.thread, header.ticket, header.bytes);
  return std::memcmp(copy.bytes, expected.data(), header.bytes) == 0;
}

// Any size a record may have.
inline size_t SizeOf(uint64_t draw) {
  constexpr size_t kSizes = (kRecordBytesMax - sizeof(RecordHeader)) / 8 + 1;
  return sizeof(RecordHeader) + draw % kSizes * 8;
}

}  // namespace nanwatch::wire
