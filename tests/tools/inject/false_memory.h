// SPDX-License-Identifier: Apache-2.0
// A process's memory that a test has made up: pieces at addresses, nothing in between.
#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "tools/inject/target_memory.h"

namespace nanwatch {

class FalseMemory final : public TargetMemory {
 public:
  void Add(uint64_t address, size_t bytes) { pieces_[address].resize(bytes); }

  [[nodiscard]] bool Read(uint64_t address, std::span<std::byte> to) const override {
    const std::byte* from = const_cast<FalseMemory*>(this)->At(address, to.size());
    if (from == nullptr) return false;
    if (!to.empty()) memcpy(to.data(), from, to.size());
    return true;
  }
  [[nodiscard]] bool Write(uint64_t address, std::span<const std::byte> from) override {
    std::byte* to = At(address, from.size());
    if (to == nullptr) return false;
    if (!from.empty()) memcpy(to, from.data(), from.size());
    return true;
  }
  // The bytes of the piece that begins there.
  [[nodiscard]] std::vector<std::byte>& piece(uint64_t address) { return pieces_.at(address); }

 private:
  std::byte* At(uint64_t address, size_t bytes) {
    auto piece = pieces_.upper_bound(address);
    if (piece == pieces_.begin()) return nullptr;
    --piece;
    const uint64_t offset = address - piece->first;
    if (offset > piece->second.size() || bytes > piece->second.size() - offset) return nullptr;
    return piece->second.data() + offset;
  }

  std::map<uint64_t, std::vector<std::byte>> pieces_;
};

}  // namespace nanwatch
