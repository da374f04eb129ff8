// SPDX-License-Identifier: Apache-2.0
// What launches check is counted with the ops' threads.
#pragma once

#include <cstdint>
#include <span>

#include "shim/entry/observer_interface.h"
#include "shim/observe/gpu/gpu_checks.h"

namespace nanwatch {

// So many tensors of a launch count as checked, or not.
struct LaunchedTensors {
  uint64_t count = 0;
  uint64_t bytes = 0;

  [[nodiscard]] static LaunchedTensors Of(std::span<const InputSeen* const> tensors) noexcept {
    LaunchedTensors all{tensors.size(), 0};
    for (const InputSeen* tensor : tensors) {
      all.bytes += static_cast<uint64_t>(tensor->numel) * ElementBytes(tensor->type);
    }
    return all;
  }
};

// A launch was made on this GPU, or could not be. Says once that a GPU is not checked any more.
void CountLaunch(const NanwatchEntry& entry, ThreadState* thread, int gpu,
                 const GpuChecks::Launched& launched, const LaunchedTensors& counted) noexcept;

}  // namespace nanwatch
