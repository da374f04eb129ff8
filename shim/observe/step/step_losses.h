// SPDX-License-Identifier: Apache-2.0
// The losses of steps, as numbers, and what is known of bad ones. Threads: any.
#pragma once

#include <atomic>
#include <mutex>

#include "shim/classify/bad_values.h"

namespace nanwatch {

class StepLosses {
 public:
  // The loss of a pass that begins, or a scalar that a module returned.
  void Record(double loss) noexcept {
    loss_.store(loss, std::memory_order_relaxed);
    known_.store(true, std::memory_order_relaxed);
    ever_.store(true, std::memory_order_relaxed);
  }
  // The last one; false when none was ever seen.
  bool Last(double* loss) const noexcept {
    *loss = loss_.load(std::memory_order_relaxed);
    return ever_.load(std::memory_order_relaxed);
  }
  // A step ends; false when none was seen since the step before. `*loss` is the last one then.
  bool TakeOfStep(double* loss) noexcept {
    *loss = loss_.load(std::memory_order_relaxed);
    return known_.exchange(false, std::memory_order_relaxed);
  }

  // A loss has been multiplied by a GradScaler's scale, and its number was recorded before: those
  // that passes begin at until an optimizer's step has ended are others.
  void SetScaled(bool scaled) noexcept { scaled_.store(scaled, std::memory_order_relaxed); }
  [[nodiscard]] bool IsScaled() const noexcept { return scaled_.load(std::memory_order_relaxed); }

  // At level canary: the first bad loss of a step, for the gradients that come of it.
  void RecordBad(ValueRef loss) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bad_.ticket == 0) bad_ = loss;
  }
  [[nodiscard]] ValueRef Bad() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return bad_;
  }
  ValueRef TakeBad() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const ValueRef loss = bad_;
    bad_ = bad_result_ = {};
    return loss;
  }
  // Likewise, what the model returned last; ticket 0: that was finite, or not read.
  void RecordBadResult(ValueRef result) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    bad_result_ = result;
  }
  [[nodiscard]] ValueRef BadResult() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return bad_result_;
  }

 private:
  std::atomic<double> loss_{0};
  std::atomic<bool> ever_{false};
  std::atomic<bool> scaled_{false};
  std::atomic<bool> known_{false};  // since the step before
  std::mutex mutex_;                // covers the last
  ValueRef bad_;
  ValueRef bad_result_;
};

}  // namespace nanwatch
