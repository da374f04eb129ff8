// SPDX-License-Identifier: Apache-2.0
// Bad values that leave this process, or enter it, by memory that several processes have mapped:
// batches of a DataLoader's workers, tensors in queues of torch.multiprocessing, shared parameters.
// Both sides tell the file (shim/host/shared_mapping.h), the writer as if it had given the value
// into a collective of this name, and the daemon joins them.
//
// Threads: any. Called only where something is bad.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch {

class Observer;
struct BadOutput;
struct PlainTensor;
struct Sources;
struct ThreadState;
struct Written;

namespace shared_files {

// The file that a tensor of the CPU lies in; 0: its memory is this process's own, or the process
// has asked too often (Observer::shared_file_looks).
[[nodiscard]] uint64_t FileOf(Observer& observer, const PlainTensor& tensor) noexcept;

// A tensor has come in, and is known from now on by what it was `written` as: where it lies in
// shared memory, that is its source.
void AddSource(Observer& observer, const PlainTensor& tensor, const Written& written, uint8_t kinds,
               Sources* sources) noexcept;

// An op has written bad values: `value` is what they are known by. Tells of those that others see.
void OnBadOutputs(Observer& observer, ThreadState* thread, const BadOutput* outputs, int count,
                  const wire::Source& value) noexcept;

// Bytes are copied from one storage to another: that is how torch puts a tensor into shared memory,
// whatever its numbers are.
void OnByteCopy(Observer& observer, ThreadState* thread, const at::TensorBase& to,
                const at::TensorBase& from) noexcept;

}  // namespace shared_files
}  // namespace nanwatch
