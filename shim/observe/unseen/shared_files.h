// SPDX-License-Identifier: Apache-2.0
// Bad values that leave this process, or enter it, by memory that several processes have mapped:
// batches of a DataLoader's workers, tensors in queues of torch.multiprocessing, shared parameters.
// Both sides record the file (shim/host/shared_mapping.h), the writer as if it had given the value
// into a collective of this name, and the daemon joins them.
//
// Threads: any. Called only where something is bad.
#pragma once

#include <ATen/core/TensorBase.h>

#include <atomic>
#include <cstdint>

#include "proto/wire/record.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BadValues;
class CollectiveRecords;
class CollectiveResults;
struct Sources;
struct Written;

class SharedFiles {
 public:
  // All outlive it.
  SharedFiles(BadValues& bad_values, CollectiveRecords& records,
              CollectiveResults& collective_results) noexcept
      : bad_values_(bad_values), records_(records), collective_results_(collective_results) {}

  // The file that a tensor of the CPU lies in; 0: its memory is this process's own, or too many
  // were looked up.
  [[nodiscard]] uint64_t FileOf(const PlainTensor& tensor) noexcept;
  // The same, or else the number under which a collective may have brought it.
  [[nodiscard]] uint64_t BringerOf(const PlainTensor& tensor) noexcept;

  // A tensor has come in, and is known from now on by what it was `written` as. Where it lies in
  // shared memory, that is its source.
  void AddSource(const PlainTensor& tensor, const Written& written, uint8_t kinds,
                 Sources* sources) noexcept;

  // An op has written bad values, known as `value`: records those that others see.
  void OnBadOutputs(ThreadState* thread, const BadOutput* outputs, int count,
                    const wire::Source& value) noexcept;

  // Bytes are copied from one storage to another: that is how torch puts a tensor into shared
  // memory, whatever its numbers are.
  void OnByteCopy(ThreadState* thread, const at::TensorBase& to,
                  const at::TensorBase& from) noexcept;

 private:
  // A process that trains on bad values meets them forever, and a lookup takes up to some
  // milliseconds.
  static constexpr uint32_t kLookupsMax = 8192;

  [[nodiscard]] uint64_t FileOf(const c10::StorageImpl& storage) noexcept;
  void EmitFile(ThreadState* thread, uint64_t file, const wire::Source& value) noexcept;

  BadValues& bad_values_;
  CollectiveRecords& records_;
  CollectiveResults& collective_results_;
  std::atomic<uint32_t> lookups_{0};
};

}  // namespace nanwatch
