// SPDX-License-Identifier: Apache-2.0
// torch.autograd.profiler's `_prepare_profiler` and `_enable_profiler`, replaced by functions that
// tell of the call and then make it: every profiler of torch's that is started from Python passes
// there before it touches CUPTI, which two can use only one after the other
// (device/kernel_trace.h).
//
// Why not look whether a profiler is on (ProfilerStateBase, _is_profiler_enabled): that is so once
// it has registered its callbacks, and what CUPTI recorded by then may be in buffers of ours. What
// passes by: a profiler that C++ code starts, and kineto's own on demand (KINETO_USE_DAEMON), where
// kernels are therefore not traced at all.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class ProfilerCalls {
 public:
  enum class State : uint8_t {
    kUntold,   // not asked for, or not yet
    kTold,     // starts of profilers are told from now on
    kRunning,  // the same, and one is running
    kFailed,
  };
  // With the GIL held; `on_start` may be null.
  explicit ProfilerCalls(const PythonApi& api, void (*on_start)()) noexcept
      : api_(api), on_start_(on_start) {}
  ProfilerCalls(const ProfilerCalls&) = delete;
  ProfilerCalls& operator=(const ProfilerCalls&) = delete;

  // Any thread, no GIL: replaces them from Python's main thread, between two of its instructions.
  void ReplaceSoon() noexcept;
  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }

 private:
  static int Pending(void* self);
  [[nodiscard]] State Replace();
  [[nodiscard]] bool Replace(PyObj* module, const char* name);
  static PyObj* OnCall(PyObj* self, PyObj* unused);

  const PythonApi& api_;
  void (*const on_start_)();
  std::atomic<bool> asked_{false};
  std::atomic<State> state_{State::kUntold};
};

}  // namespace nanwatch
