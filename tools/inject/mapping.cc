// SPDX-License-Identifier: Apache-2.0
#include "tools/inject/mapping.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include "daemon/base/small_file.h"

namespace nanwatch {
namespace {

// Takes a hexadecimal number and the character behind it off the front.
std::optional<uint64_t> TakeNumber(std::string_view& line, char behind) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number, 16);
  const auto length = static_cast<size_t>(end - line.data());
  if (error != std::errc() || length >= line.size() || line[length] != behind) return std::nullopt;
  line.remove_prefix(length + 1);
  return number;
}

// "7f00-7f01 r-xp 00000000 08:01 7   /usr/bin/python3.11"
std::optional<Mapping> ParseLine(std::string_view line) {
  Mapping mapping;
  const std::optional<uint64_t> begin = TakeNumber(line, '-');
  const std::optional<uint64_t> end = begin ? TakeNumber(line, ' ') : std::nullopt;
  if (!end || *end <= *begin || line.size() < 5 || line[4] != ' ') return std::nullopt;
  mapping.begin = *begin;
  mapping.end = *end;
  mapping.readable = line[0] == 'r';
  mapping.writable = line[1] == 'w';
  mapping.executable = line[2] == 'x';
  line.remove_prefix(5);
  const std::optional<uint64_t> offset = TakeNumber(line, ' ');
  if (!offset) return std::nullopt;
  mapping.offset = *offset;
  // Device and inode.
  for (int i = 0; i < 2; ++i) line.remove_prefix(std::min(line.find(' '), line.size() - 1) + 1);
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  mapping.path = line;
  return mapping;
}

}  // namespace

Mappings ParseMappings(std::string_view maps) {
  Mappings mappings;
  while (!maps.empty()) {
    const size_t end = std::min(maps.find('\n'), maps.size());
    if (std::optional<Mapping> mapping = ParseLine(maps.substr(0, end)))
      mappings.push_back(*std::move(mapping));
    maps.remove_prefix(std::min(end + 1, maps.size()));
  }
  return mappings;
}

Mappings ReadMappings(int pid) {
  return ParseMappings(TextOfProcFile("/proc/" + std::to_string(pid) + "/maps"));
}

const Mapping* MappingAt(const Mappings& mappings, uint64_t address) {
  for (const Mapping& mapping : mappings) {
    if (address >= mapping.begin && address < mapping.end) return &mapping;
  }
  return nullptr;
}

}  // namespace nanwatch
