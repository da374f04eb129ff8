// SPDX-License-Identifier: Apache-2.0
// The file behind memory that several processes may have mapped: what a tensor has been put into
// that a DataLoader's worker or a queue of torch.multiprocessing hands over. Its name is gone when
// the other process maps it; device and inode stay, and are not given twice while a job runs.
#pragma once

#include <cstdint>

namespace nanwatch {

// What all processes of this host know the file by that is mapped at `address` and shared; 0: none
// is. Reads /proc/self/maps, up to some milliseconds: for an address that is worth it.
[[nodiscard]] uint64_t SharedFileAt(const void* address) noexcept;

}  // namespace nanwatch
