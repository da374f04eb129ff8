#include "tools/elf_interpreter.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "daemon/base/unique_fd.h"

namespace nanwatch {
namespace {

constexpr int kProgramHeadersMax = 256;
constexpr uint64_t kPathBytesMax = 4096;

bool ReadAt(int fd, uint64_t offset, void* to, size_t bytes) {
  return pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

}  // namespace

std::optional<std::string> ElfInterpreter(const std::string& program) {
  const UniqueFd fd(open(program.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header;
  if (!fd.valid() || !ReadAt(fd.get(), 0, &header, sizeof header)) return std::nullopt;
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return std::nullopt;
  for (int i = 0; i < header.e_phnum && i < kProgramHeadersMax; ++i) {
    Elf64_Phdr part;
    const uint64_t at = header.e_phoff + uint64_t{header.e_phentsize} * static_cast<uint64_t>(i);
    if (!ReadAt(fd.get(), at, &part, sizeof part)) return std::nullopt;
    if (part.p_type != PT_INTERP) continue;
    std::string path(std::min<uint64_t>(part.p_filesz, kPathBytesMax), '\0');
    if (!ReadAt(fd.get(), part.p_offset, path.data(), path.size())) return std::nullopt;
    return std::string(path.c_str());
  }
  return "";
}

}  // namespace nanwatch
