// SPDX-License-Identifier: Apache-2.0
// What a GradScaler has found and decided: whether it skips the step that runs, and its scale.
// Threads: any.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include "proto/wire/record.h"

namespace nanwatch {

class ScalerState {
 public:
  // An update of the scale, which ends what its check has found since the one before.
  struct Update {
    double scale = 0;  // from now on
    bool known = false;
    bool found_inf = false;  // given to the update; adds to what the checks found
  };

  // Its check of some gradients.
  void OnUnscale(bool found_inf) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    found_inf_ = found_inf_ || found_inf;
  }
  [[nodiscard]] bool FoundInf() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return found_inf_;
  }
  // The record of it, but for its head; kSkipped: the step was skipped.
  [[nodiscard]] wire::ScalerRecord OnUpdate(const Update& update) noexcept {
    wire::ScalerRecord record{};
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool skipped = std::exchange(found_inf_, false) || update.found_inf;
    record.scale_before = scale_;
    record.scale_after = update.scale;
    record.flags = (skipped ? wire::ScalerRecord::kSkipped : 0u) |
                   (update.known && scale_known_ ? wire::ScalerRecord::kScaleKnown : 0u);
    skips_in_a_row_ = skipped ? skips_in_a_row_ + 1 : 0;
    record.skips_in_a_row = skips_in_a_row_;
    scale_ = update.scale;
    scale_known_ = update.known;
    return record;
  }
  // False: it is not known. `*scale` is the last one in any case.
  bool Scale(double* scale) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    *scale = scale_;
    return scale_known_;
  }
  // What it decides from now on may go by unseen.
  void Forget() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    found_inf_ = scale_known_ = false;
  }

 private:
  std::mutex mutex_;
  bool found_inf_ = false;
  uint32_t skips_in_a_row_ = 0;
  double scale_ = 0;
  bool scale_known_ = false;
};

}  // namespace nanwatch
