// SPDX-License-Identifier: Apache-2.0
// What level canary reads between two steps, where no op is watched: what a model returns, numbers
// that Python reads, and registered buffers. The loss and gradients are read besides (loss.h,
// canary.h).
//
// A bad value becomes a finding of the place where it was met, with an unknown source. It reaches
// the loss or a buffer as it would at level full; of what it comes from nothing is claimed.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "shim/observe/python/names/python_names.h"

namespace nanwatch {

class Observer;
struct ThreadState;

namespace canary {

// For the Python bridge, on the thread of the call; see builtin_calls.h.
void OnNumberRead(const at::TensorBase& tensor, double number) noexcept;
void OnAsked(const at::TensorBase& tensor) noexcept;

// Tensors that a root module's call returned. At most kResultBytesMax of each call are read.
inline constexpr uint64_t kResultBytesMax = uint64_t{64} << 10;
void OnResults(Observer& observer, ThreadState* thread, const at::TensorBase* const* tensors,
               size_t count) noexcept;

// Registered buffers on the CPU: those that were finite when they were read last, and hold NaN or
// Inf now. What was bad when it was read first came in so, or is meant so, and is left to those who
// use it.
class Buffers {
 public:
  // A root is about to be called for the first time.
  void OnNewRoot(Observer& observer, const Layer* root) noexcept;
  // An optimizer's step ends, on its thread.
  void OnStepEnd(Observer& observer, ThreadState* thread) noexcept;

 private:
  enum class Seen : uint8_t { kNever, kFinite, kBad };
  // By NamedTensor::index. With mutex_ held.
  [[nodiscard]] Seen& Of(const NamedTensor& named);

  std::mutex mutex_;
  std::vector<Seen> seen_;
};

}  // namespace canary
}  // namespace nanwatch
