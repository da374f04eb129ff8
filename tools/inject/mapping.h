// SPDX-License-Identifier: Apache-2.0
// What /proc/PID/maps says: the pieces of a process's memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nanwatch {

struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t offset = 0;  // in the file
  bool readable = false;
  bool writable = false;
  bool executable = false;
  std::string path;  // "[stack]", "" of nothing named

  bool operator==(const Mapping&) const = default;
};
using Mappings = std::vector<Mapping>;

// Lines that make no sense are left out.
[[nodiscard]] Mappings ParseMappings(std::string_view maps);
// Of a live process; empty when it has ended.
[[nodiscard]] Mappings ReadMappings(int pid);

// The piece that holds `address`; nullptr when none does.
[[nodiscard]] const Mapping* MappingAt(const Mappings& mappings, uint64_t address);

}  // namespace nanwatch
