// SPDX-License-Identifier: Apache-2.0
// The memory of the process that gets the library. Everything read from it may be wrong or hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "daemon/base/unique_fd.h"

namespace nanwatch {

class TargetMemory {
 public:
  virtual ~TargetMemory() = default;
  // All of it, or false.
  [[nodiscard]] virtual bool Read(uint64_t address, std::span<std::byte> to) const = 0;
  [[nodiscard]] virtual bool Write(uint64_t address, std::span<const std::byte> from) = 0;

  // One plain value; nothing when it cannot be read.
  template <typename T>
  [[nodiscard]] std::optional<T> Get(uint64_t address) const {
    T value;
    if (!Read(address, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
    return value;
  }
  template <typename T>
  [[nodiscard]] bool Put(uint64_t address, const T& value) {
    return Write(address, std::as_bytes(std::span(&value, 1)));
  }
};

// /proc/PID/mem. It stays with the program that ran when it was opened: after an exec or an exit
// all calls fail. Writes reach read-only pages too, by a private copy of the page. Stops nobody.
class ProcessMemory final : public TargetMemory {
 public:
  // Nothing when the kernel does not allow it; errno says why.
  [[nodiscard]] static std::optional<ProcessMemory> Open(int pid);

  [[nodiscard]] bool Read(uint64_t address, std::span<std::byte> to) const override;
  [[nodiscard]] bool Write(uint64_t address, std::span<const std::byte> from) override;

 private:
  explicit ProcessMemory(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Whether this kernel lets read-only pages be written that way (proc_mem.force_override). Tries it
// on a page of this process.
[[nodiscard]] bool MayWriteReadOnlyPages();

}  // namespace nanwatch
