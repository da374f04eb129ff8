// SPDX-License-Identifier: Apache-2.0
// What an executable says about itself: its processor, and the dynamic loader that starts it (a
// static program has none and ignores LD_PRELOAD).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nanwatch {

struct ElfFile {
  uint16_t machine = 0;  // e_machine: EM_X86_64, ...
  bool is_64_bit = true;
  std::string interpreter;  // the loader's path, "" for a static program and one of 32 bits
};

// Nothing if `program` is not an ELF file or cannot be read.
[[nodiscard]] std::optional<ElfFile> ReadElf(const std::string& program);

// The loader's path, "" for a static program; nothing if `program` is not a 64-bit ELF file or
// cannot be read.
[[nodiscard]] std::optional<std::string> ElfInterpreter(const std::string& program);

}  // namespace nanwatch
