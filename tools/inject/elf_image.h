// SPDX-License-Identifier: Apache-2.0
// A program or library in the memory of another process: its symbols, the slots through which it
// calls others, and the space behind its segments. Reads memory, never files, which may have been
// replaced since. Values that make no sense end a search; none leads out of the image.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/inject/target_memory.h"

namespace nanwatch {

struct ElfSegment {
  uint64_t begin = 0;
  uint64_t end = 0;  // of what the file asks for; the page goes on
  bool writable = false;
  bool executable = false;
};

class ElfImage {
 public:
  // `at`: where the file's first byte is mapped. Nothing if there is no 64-bit image with a dynamic
  // section. `memory` must outlive it.
  [[nodiscard]] static std::optional<ElfImage> At(const TargetMemory& memory, uint64_t at);

  // The address of a function that it defines, of the default version if there are several. Nothing
  // for indirect functions, whose address is the loader's to choose.
  [[nodiscard]] std::optional<uint64_t> Find(std::string_view function) const;

  // The addresses of the pointers through which it calls `function` of another image.
  [[nodiscard]] std::vector<uint64_t> SlotsOf(std::string_view function) const;

  [[nodiscard]] const std::vector<ElfSegment>& segments() const { return segments_; }
  [[nodiscard]] bool Holds(uint64_t address) const;

 private:
  explicit ElfImage(const TargetMemory& memory) : memory_(&memory) {}
  [[nodiscard]] bool ReadSegments(uint64_t at);
  [[nodiscard]] bool ReadDynamic();
  [[nodiscard]] bool IsNamed(uint32_t name, std::string_view wanted) const;
  void AddSlots(uint64_t table, uint64_t bytes, std::string_view function,
                std::vector<uint64_t>& slots) const;
  // Calls `take(index)` for symbols whose name has this hash, until it returns true.
  template <typename Take>
  void EachOfHash(std::string_view name, const Take& take) const;

  const TargetMemory* memory_;
  std::vector<ElfSegment> segments_;
  uint64_t bias_ = 0;  // what is added to the file's addresses
  uint64_t dynamic_ = 0;
  uint64_t dynamic_bytes_ = 0;
  uint64_t symbols_ = 0;
  uint64_t strings_ = 0;
  uint64_t strings_bytes_ = 0;
  uint64_t versions_ = 0;  // 0: none
  uint64_t gnu_hash_ = 0;  // 0: none
  uint64_t hash_ = 0;      // 0: none
  uint64_t jump_slots_ = 0;
  uint64_t jump_slots_bytes_ = 0;
  uint64_t relocations_ = 0;
  uint64_t relocations_bytes_ = 0;
};

}  // namespace nanwatch
