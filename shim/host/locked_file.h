// SPDX-License-Identifier: Apache-2.0
// A file that says by its lock that the process lives. noexcept, no allocation; a failure leaves
// errno.
#pragma once

#include <cstdint>

namespace nanwatch {

// A POSIX record lock on byte 0. It belongs to the process: it is lost if anything in the process
// closes any descriptor of the file.
bool Lock(int fd) noexcept;

// The same file under a number that is out of the way of programs that count on low ones for their
// own files, or close them in bulk. Close-on-exec; `fd` is closed, or kept where there is no other.
[[nodiscard]] int MoveUp(int fd) noexcept;

// Beyond the limit (RLIMIT_FSIZE) the kernel sends SIGXFSZ, which would end the job.
[[nodiscard]] bool MayBeThatLong(uint64_t bytes) noexcept;

}  // namespace nanwatch
