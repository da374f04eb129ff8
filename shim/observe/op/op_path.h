// SPDX-License-Identifier: Apache-2.0
// What libtorch's callbacks find (callbacks.h): one object per process, never destroyed.
//
//   Start, End --clean op of the commonest kind--> nothing but what stands here by value
//              --all others--> OpBegin, OpEnd;  autograd nodes --> AutogradNodes;  ranges --> Ranges
#pragma once

#include <atomic>

#include "shim/observe/events/sample_limit.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/thread/activity.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/op_table.h"

namespace nanwatch {

class AutogradNodes;
class Headroom;
class LivePublisher;
class OpBegin;
class OpEnd;
class Ranges;

struct OpPath {
  // Who takes over where more is to be done. All outlive the path.
  struct Others {
    OpBegin& begin;
    OpEnd& end;
    AutogradNodes& nodes;
    Ranges& ranges;
    Headroom& headroom;
    LivePublisher& live;
    // Wakes the observer of a forked child, which has a path of its own then.
    void (*wake_in_child)() noexcept;
  };

  OpPath(Activity is_active, const Others& those) noexcept;
  OpPath(const OpPath&) = delete;
  OpPath& operator=(const OpPath&) = delete;

  OpTable ops;  // first: its address is the path's own
  Activity activity;
  InputTracking input_tracking;
  StepMarks steps;
  SampleLimit sample_limit;
  const Others others;

  // The path of this process. Set before the first callback is registered.
  static OpPath& Current() noexcept { return *current_.load(std::memory_order_relaxed); }
  static void SetCurrent(OpPath* path) noexcept { current_.store(path); }

  // Callbacks find the path inactive in a forked child before its first op, and for good after
  // stepping down. Gives the path that is to be asked from here on.
  static OpPath& Woken() noexcept {
    OpPath& path = Current();
    if (path.activity.On()) return path;
    path.others.wake_in_child();
    return Current();
  }

 private:
  // Hidden where it is declared, too: a load of every op that takes no detour.
  [[gnu::visibility("hidden")]] static std::atomic<OpPath*> current_;
};

}  // namespace nanwatch
