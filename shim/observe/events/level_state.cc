// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/level_state.h"

namespace nanwatch {

void LevelState::ForgetBadValues(BadValues& bad_values) noexcept {
  if (bad_values.size() != 0) {
    ValueRef newest;
    bad_values.ForEach(
        [](void* context, const BadEntry& entry) {
          auto& value = *static_cast<ValueRef*>(context);
          if (entry.value.ticket > value.ticket) value = entry.value;
        },
        &newest);
    const std::lock_guard<std::mutex> lock(forgotten_mutex_);
    forgotten_ = newest;
    forgot_.store(true, std::memory_order_relaxed);
  }
  bad_values.Reset();
}

}  // namespace nanwatch
