// SPDX-License-Identifier: Apache-2.0
// While it lives, the given context is current to the calling thread; then what was is again.
//
// A default stream is that of whatever context is current. Where the job has another one of the
// same device current (a green context, which torch.cuda.green_contexts makes; one of cuCtxCreate),
// its stream 0 is not ours once ours is pushed: the launch would not be behind the op. Such a
// context is `IsForeign`, nothing is pushed then, and nothing may be launched. Streams with a
// handle of their own belong to a context whatever is current.
#pragma once

#include <cstdint>

#include "shim/device/driver.h"

namespace nanwatch::device {

class CurrentContext {
 public:
  // For what has to do with default streams of that context alone, or with none.
  CurrentContext(const Driver& driver, CuContext context) noexcept : driver_(driver) {
    if (IsNotCurrent(context)) Push(context);
  }
  // For a launch behind what the job has just launched on `stream`. `device`: of the context.
  CurrentContext(const Driver& driver, CuContext context, CuDevice device, CuStream stream) noexcept
      : driver_(driver) {
    if (!IsNotCurrent(context)) return;
    is_foreign_ = reinterpret_cast<uintptr_t>(stream) <= kCuStreamPerThread && IsOf(device);
    if (!is_foreign_) Push(context);
  }
  ~CurrentContext() {
    CuContext popped = nullptr;
    if (pushed_) (void)driver_.context_pop_current(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  [[nodiscard]] bool IsForeign() const noexcept { return is_foreign_; }
  [[nodiscard]] CuResult Result() const noexcept { return result_; }
  // The call that Result is of.
  [[nodiscard]] const char* Function() const noexcept { return function_; }

 private:
  // False as well where the call failed.
  [[nodiscard]] bool IsNotCurrent(CuContext context) noexcept {
    result_ = driver_.context_get_current(&current_);
    return result_ == kCuSuccess && current_ != context;
  }
  // Whether the current context, if there is one, is of this device.
  [[nodiscard]] bool IsOf(CuDevice device) const noexcept {
    CuDevice found = 0;
    return current_ != nullptr && driver_.context_get_device != nullptr &&
           driver_.context_get_device(&found) == kCuSuccess && found == device;
  }
  void Push(CuContext context) noexcept {
    function_ = "cuCtxPushCurrent";
    result_ = driver_.context_push_current(context);
    pushed_ = result_ == kCuSuccess;
  }

  const Driver& driver_;
  const char* function_ = "cuCtxGetCurrent";
  CuContext current_ = nullptr;  // before
  CuResult result_ = kCuSuccess;
  bool pushed_ = false;
  bool is_foreign_ = false;
};

}  // namespace nanwatch::device
