// While it lives, the given context is current to the calling thread; then what was is again.
#pragma once

#include "shim/device/driver.h"

namespace nanwatch::device {

class CurrentContext {
 public:
  CurrentContext(const Driver& driver, CuContext context) noexcept : driver_(driver) {
    CuContext current = nullptr;
    result_ = driver_.context_get_current(&current);
    if (result_ != kCuSuccess || current == context) return;
    function_ = "cuCtxPushCurrent";
    result_ = driver_.context_push_current(context);
    pushed_ = result_ == kCuSuccess;
  }
  ~CurrentContext() {
    CuContext popped = nullptr;
    if (pushed_) (void)driver_.context_pop_current(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  [[nodiscard]] CuResult Result() const noexcept { return result_; }
  // The call that Result is of.
  [[nodiscard]] const char* Function() const noexcept { return function_; }

 private:
  const Driver& driver_;
  const char* function_ = "cuCtxGetCurrent";
  CuResult result_ = kCuSuccess;
  bool pushed_ = false;
};

}  // namespace nanwatch::device
