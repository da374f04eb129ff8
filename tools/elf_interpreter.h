// Which dynamic loader a program is started by: a static program has none and ignores LD_PRELOAD.
#pragma once

#include <optional>
#include <string>

namespace nanwatch {

// The loader's path, "" for a static program; nothing when `program` is no ELF file or cannot be
// read.
[[nodiscard]] std::optional<std::string> ElfInterpreter(const std::string& program);

}  // namespace nanwatch
