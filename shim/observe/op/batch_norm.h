// SPDX-License-Identifier: Apache-2.0
// Batch normalisation writes its running statistics without saying so in its schema: a NaN there
// shows in no output until the model is evaluated. So after such an op the buffers of the layer it
// ran in are looked at.
#pragma once

#include "shim/observe/observer.h"

namespace nanwatch {

void CheckRunningStatistics(Observer& observer, ThreadState* thread, Frame& frame) noexcept;

}  // namespace nanwatch
