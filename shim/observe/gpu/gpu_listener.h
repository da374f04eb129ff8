// SPDX-License-Identifier: Apache-2.0
// Who decides how ops are watched, as the event queue sees it (level/level_control.h).
#pragma once

namespace nanwatch {

struct ThreadState;

class GpuListener {
 public:
  // The first tensor of a GPU was seen on this thread.
  virtual void OnFirstGpu(ThreadState* thread) noexcept = 0;
  // Something bad was found in values that were recorded for a cut. Any thread.
  virtual void Raise() noexcept = 0;

 protected:
  ~GpuListener() = default;
};

}  // namespace nanwatch
