// SPDX-License-Identifier: Apache-2.0
#include "tools/inject/target_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace nanwatch {

std::optional<ProcessMemory> ProcessMemory::Open(int pid) {
  UniqueFd fd(open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  return ProcessMemory(std::move(fd));
}

bool ProcessMemory::Read(uint64_t address, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = pread(fd_.get(), to.data(), to.size(), static_cast<off_t>(address));
    if (got <= 0) return false;
    to = to.subspan(static_cast<size_t>(got));
    address += static_cast<uint64_t>(got);
  }
  return true;
}

bool ProcessMemory::Write(uint64_t address, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t put = pwrite(fd_.get(), from.data(), from.size(), static_cast<off_t>(address));
    if (put <= 0) return false;
    from = from.subspan(static_cast<size_t>(put));
    address += static_cast<uint64_t>(put);
  }
  return true;
}

bool MayWriteReadOnlyPages() {
  const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  std::optional<ProcessMemory> self = ProcessMemory::Open(getpid());
  const bool may = self.has_value() && self->Put(reinterpret_cast<uintptr_t>(page), uint8_t{1});
  munmap(page, size);
  return may;
}

}  // namespace nanwatch
