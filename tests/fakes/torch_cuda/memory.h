// SPDX-License-Identifier: Apache-2.0
// How much of the fake devices' memory is in use, as libtorch's caching allocator counts it: what
// was once had from the driver is kept. Before more is had, those who hold some are asked to let go
// of it (FreeMemoryCallback), with the allocator's lock held, as the real one does. Any thread.
#pragma once

#include <cstddef>

namespace nanwatch::fake {

// Throws c10::OutOfMemoryError where more than NANWATCH_FAKE_MEMORY bytes would be in use.
void TakeMemory(size_t bytes);
void GiveMemory(size_t bytes) noexcept;

}  // namespace nanwatch::fake
