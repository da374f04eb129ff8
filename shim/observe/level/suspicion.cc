// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/suspicion.h"

#include <cmath>

namespace nanwatch {
namespace {

// So many times its own median, and so many times the largest of late, is far off: single large
// batches and the jitter of a loss near zero stay below, an explosion does not.
constexpr double kFarOffMedian = 32;
constexpr double kFarOffLargest = 4;
// Of parameters that are bad for good there is nothing more to learn, either.
constexpr uint64_t kPause = 512;
constexpr uint32_t kHistoryMin = 16;
// Of the largest number of its type; what is nearer is close to an overflow.
constexpr double kNearLimit = 0.125;

}  // namespace

bool Suspicion::IsRaisedBy(const Step& step) noexcept {
  ++steps_;
  bool bad = false;
  bool far_off = false;
  const auto look = [&](bool known, double value, Recent* history) {
    if (!known) return;
    value = std::fabs(value);
    bad = bad || !std::isfinite(value);
    far_off = far_off ||
              (history->count() >= kHistoryMin && value > kFarOffLargest * history->Largest() &&
               value > kFarOffMedian * history->Median());
    if (std::isfinite(value)) history->Add(value);
  };
  look(step.loss_known, step.loss, &losses_);
  look(step.norm_known, step.gradient_norm, &norms_);
  // Only steps in full show it: what is far nearer than it ever was has been on its way for a
  // while.
  if (step.near_limit >= kNearLimit && step.near_limit > 2 * nearest_limit_) far_off = true;
  if (step.near_limit > nearest_limit_) nearest_limit_ = step.near_limit;
  uint64_t* const last = bad ? &bad_at_ : &far_off_at_;
  if (!bad && !far_off) return false;
  if (*last != 0 && steps_ - *last < kPause) return false;
  *last = steps_;
  return true;
}

}  // namespace nanwatch
