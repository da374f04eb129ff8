// SPDX-License-Identifier: Apache-2.0
// Space in a process for a little code and data of ours, without a system call in that process: the
// rest of the page behind a segment of a program or library, which belongs to nobody. What was put
// there stays, because a thread may be in it at any time.
//
// Behind a segment of code only bytes that are 0 are taken, and behind one of data only those of
// libraries: the heap may begin behind the program's, and the loader allocates behind its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tools/inject/elf_image.h"
#include "tools/inject/mapping.h"

namespace nanwatch {

class Room {
 public:
  enum class Use { kCode, kData, kText };  // run; written by the process; only read by it

  explicit Room(TargetMemory& memory) : memory_(&memory) {}

  // Adds the space behind the segments of `image`. `may_hold_data` false: of the program, the
  // loader.
  void Add(const ElfImage& image, const Mappings& mappings, bool may_hold_data);

  // The pieces of code that begin with this number, put there by an earlier tool.
  [[nodiscard]] std::vector<uint64_t> Marked(uint64_t magic) const;

  // The address of `bytes` bytes, aligned to 16. Nothing when no hole is so large.
  [[nodiscard]] std::optional<uint64_t> Take(size_t bytes, Use use);
  // The same, with these bytes put there. Nothing also when they cannot be written.
  [[nodiscard]] std::optional<uint64_t> Place(std::span<const std::byte> bytes, Use use);

 private:
  struct Hole {
    uint64_t all = 0;    // where it begins,
    uint64_t begin = 0;  // what is free of it
    uint64_t end = 0;
    bool executable = false;
    bool writable = false;
    std::vector<std::byte> bytes{};  // as they were found
  };
  void AddHole(Hole hole);

  TargetMemory* memory_;
  std::vector<Hole> holes_;  // also those that are full
};

}  // namespace nanwatch
