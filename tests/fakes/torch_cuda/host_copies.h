// SPDX-License-Identifier: Apache-2.0
// The host's pinned memory, and what copies from the fake device that nobody waits for do to it.
//
// As on a GPU, the values of such a copy arrive when the stream gets there: until the program next
// waits for the device, or the fake driver's stream runs by itself, the memory holds 0xff bytes,
// NaN of every floating type. The device itself works in the stream's order: what it reads of that
// memory has arrived. Pinned memory that a program gives back is handed out again as it is, and
// what was still on its way there goes nowhere. Any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <mutex>
#include <vector>

namespace nanwatch::fake {

[[nodiscard]] c10::Allocator* PinnedAllocator();
[[nodiscard]] bool IsPinned(const void* address);

// A copy between the device and pinned memory, one run of it: a non-blocking one is not waited for.
[[nodiscard]] bool IsPinnedRun(const at::Tensor& on_cpu);

// `to` is about to be written by a copy: what is on its way there from an earlier one is forgotten.
void BeginCopyTo(const at::Tensor& to);
// The values that `to` holds now, a run of pinned memory, arrive with the current stream.
void ArriveLater(const at::Tensor& to);

// While this lives, what is on its way to memory of these tensors is there.
class ReadByDevice {
 public:
  explicit ReadByDevice(const std::vector<at::Tensor>& on_cpu);
  ~ReadByDevice();
  ReadByDevice(const ReadByDevice&) = delete;
  ReadByDevice& operator=(const ReadByDevice&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> lock_;  // held where there is anything to hide again
  bool any_ = false;
};

}  // namespace nanwatch::fake
