// SPDX-License-Identifier: Apache-2.0
// Whether a step shows something that may come before a non-finite value: a bad or far too large
// gradient or loss, activations that come far nearer to the largest number of their type.
//
// Pure: no clock, no torch. One caller at a time.
#pragma once

#include <cstdint>

#include "shim/observe/level/recent.h"

namespace nanwatch {

class Suspicion {
 public:
  // What is known of a step that has ended.
  struct Step {
    double loss = 0;           // valid with loss_known
    double gradient_norm = 0;  // valid with norm_known
    double near_limit = 0;     // of the step's largest activation; 0: not near
    bool loss_known = false;
    bool norm_known = false;
  };
  // One call a step, in their order. After one that is suspicious 512 steps pass before the next of
  // its kind: what is far off may be the new usual.
  [[nodiscard]] bool IsRaisedBy(const Step& step) noexcept;

 private:
  Recent losses_, norms_;     // of healthy steps
  double nearest_limit_ = 0;  // so far
  uint64_t steps_ = 0;
  uint64_t far_off_at_ = 0;  // the steps of the last suspicions, 0 none
  uint64_t bad_at_ = 0;
};

}  // namespace nanwatch
