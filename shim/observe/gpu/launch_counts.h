// SPDX-License-Identifier: Apache-2.0
// What launches check is counted with the ops' threads.
#pragma once

#include <span>

#include "shim/entry/observer_interface.h"
#include "shim/observe/gpu/gpu_checks.h"

namespace nanwatch {

// A launch was made on this GPU, or could not be: `counted` of what it checks counts as checked, or
// not. Says once that a GPU is not checked any more.
void CountLaunch(const NanwatchEntry& entry, ThreadState* thread, int gpu,
                 const GpuChecks::Launched& launched,
                 std::span<const InputSeen* const> counted) noexcept;

}  // namespace nanwatch
