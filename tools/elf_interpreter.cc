// SPDX-License-Identifier: Apache-2.0
#include "tools/elf_interpreter.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/base/unique_fd.h"

namespace nanwatch {
namespace {

constexpr int kProgramHeadersMax = 256;
constexpr uint64_t kPathBytesMax = 4096;

bool ReadAt(int fd, uint64_t offset, void* to, size_t bytes) {
  return pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

}  // namespace

std::optional<ElfFile> ReadElf(const std::string& program) {
  const UniqueFd fd(open(program.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header;
  if (!fd.valid() || !ReadAt(fd.get(), 0, &header, sizeof header)) return std::nullopt;
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  // Type and machine lie alike in both classes.
  ElfFile file{.machine = header.e_machine,
               .is_64_bit = header.e_ident[EI_CLASS] == ELFCLASS64,
               .interpreter = ""};
  if (!file.is_64_bit) return file;
  for (int i = 0; i < header.e_phnum && i < kProgramHeadersMax; ++i) {
    Elf64_Phdr part;
    const uint64_t at = header.e_phoff + uint64_t{header.e_phentsize} * static_cast<uint64_t>(i);
    if (!ReadAt(fd.get(), at, &part, sizeof part)) return std::nullopt;
    if (part.p_type != PT_INTERP) continue;
    std::string path(std::min<uint64_t>(part.p_filesz, kPathBytesMax), '\0');
    if (!ReadAt(fd.get(), part.p_offset, path.data(), path.size())) return std::nullopt;
    file.interpreter = path.c_str();
    return file;
  }
  return file;
}

std::optional<std::string> ElfInterpreter(const std::string& program) {
  std::optional<ElfFile> file = ReadElf(program);
  if (!file.has_value() || !file->is_64_bit) return std::nullopt;
  return std::move(file->interpreter);
}

}  // namespace nanwatch
