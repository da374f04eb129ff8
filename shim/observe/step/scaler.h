// SPDX-License-Identifier: Apache-2.0
// GradScaler, seen by its two ops: the check that divides the gradients and says whether any was
// infinite, and the update of the scale. Where ops go by unwatched (at level canary, and while
// parameters are bad), by the call of the second (scaler_calls.h).
#pragma once

#include <ATen/record_function.h>

#include "shim/observe/observer.h"

namespace nanwatch {

void OnScalerOp(Observer& observer, ThreadState* thread, Frame& frame,
                const at::RecordFunction& range) noexcept;

// For the Python bridge: a scale was updated. Does nothing where the op itself is watched.
void OnScaleUpdatedUnseen(const at::TensorBase& scale, const at::TensorBase& found_inf) noexcept;

}  // namespace nanwatch
