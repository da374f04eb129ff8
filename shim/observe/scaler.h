// GradScaler, seen by its two ops: the check that divides the gradients and says whether any was
// infinite, and the update of the scale.
#pragma once

#include <ATen/record_function.h>

#include "shim/observe/observer.h"

namespace nanwatch {

void OnScalerOp(Observer& observer, ThreadState* thread, Frame& frame,
                const at::RecordFunction& range) noexcept;

}  // namespace nanwatch
