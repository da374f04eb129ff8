// SPDX-License-Identifier: Apache-2.0
// Memory that is held for a check must never be what a job runs out of.
#pragma once

namespace nanwatch {

// From now on `let_go` is called when libtorch's CUDA allocator finds no free block, on the thread
// that allocates, with the allocator's lock: it may free memory of the current device alone, must
// not wait, and returns whether it has freed any. Once in a process; a second call does nothing.
// Without libtorch's allocator for CUDA there is nobody to call it.
void CallWhenMemoryIsWanted(bool (*let_go)()) noexcept;

}  // namespace nanwatch
