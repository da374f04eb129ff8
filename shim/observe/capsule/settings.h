// SPDX-License-Identifier: Apache-2.0
// What the environment asks for (proto/wire/capsule.h).
#pragma once

#include "shim/entry/observer_interface.h"
#include "shim/observe/capsule/capsules.h"

namespace nanwatch {

// At the start, on the watch thread: getenv is not for the job's threads. Says what makes no sense.
[[nodiscard]] CapsuleSettings GivenCapsuleSettings(const NanwatchEntry& entry);

}  // namespace nanwatch
