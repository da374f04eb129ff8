// SPDX-License-Identifier: Apache-2.0
// How torch is set up on this thread, as far as it changes what an op computes.
#pragma once

#include "shim/observe/capsule/json_text.h"

namespace nanwatch {

// Adds the keys flags and torch.
void WriteTorchFlags(JsonText* json);

}  // namespace nanwatch
