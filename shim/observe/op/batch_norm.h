// SPDX-License-Identifier: Apache-2.0
// Batch normalization writes its running statistics without saying so in its schema: a NaN there
// shows in no output until the model is evaluated. So after such an op the buffers of the layer it
// ran in are checked.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <vector>

#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BadValues;
class Findings;

class RunningStatistics {
 public:
  // All outlive it.
  RunningStatistics(Findings& findings, const PythonNames& names, BadValues& bad_values) noexcept
      : findings_(findings), names_(names), bad_values_(bad_values) {}

  // `outputs`: what the op returned.
  void Check(ThreadState* thread, Frame& frame, const std::vector<c10::IValue>& outputs) noexcept;
  // Calls fn(tensor, index) for those of the layer that lie on a GPU, on its thread, while the op
  // ends. `index`: as of the op's arguments.
  template <class Fn>
  void ForEachOnGpu(const ThreadState* thread, Fn&& fn) const noexcept;

 private:
  static constexpr uint32_t kBuffersMax = 4;
  // The floating-point buffers of one layer, found once: names are never freed.
  struct LayerBuffers {
    const NamedTensor* buffers[kBuffersMax];
    uint32_t count;
    std::atomic<uint32_t> finite;  // a bit each: it was when it was read last
  };
  // Outputs 3 and 4 of the op's arguments are the running mean and variance.
  static constexpr uint8_t kFirstIndex = 3;

  // Null: there are none.
  [[nodiscard]] LayerBuffers* BuffersOfLayer(const ThreadState* thread) const;
  static LayerBuffers* BuffersOf(const PythonNames& names, const Layer* layer);
  void CheckBuffer(ThreadState* thread, Frame& frame, LayerBuffers& buffers, uint32_t i,
                   const std::vector<c10::IValue>& outputs);

  Findings& findings_;
  const PythonNames& names_;
  BadValues& bad_values_;
};

template <class Fn>
void RunningStatistics::ForEachOnGpu(const ThreadState* thread, Fn&& fn) const noexcept try {
  const LayerBuffers* known = BuffersOfLayer(thread);
  for (uint32_t i = 0; known != nullptr && i < known->count; ++i) {
    const NamedReading reading(names_, *known->buffers[i]);
    if (reading.OnGpu()) fn(reading.tensor(), static_cast<uint8_t>(kFirstIndex + i));
  }
} catch (...) {
}

}  // namespace nanwatch
