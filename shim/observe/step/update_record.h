// SPDX-License-Identifier: Apache-2.0
// What is bad when an update ends, as a record: parameters, and the state that the optimizer keeps.
#pragma once

#include <cstdint>

#include "shim/observe/observer.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

// Nothing is written where nothing is bad that the open (or last) optimizer range has written.
// `class_name`: its id; `flags`: UpdateRecord's.
void RecordUpdate(Observer& observer, ThreadState* thread, uint32_t optimizer, uint32_t class_name,
                  uint32_t flags) noexcept;

}  // namespace nanwatch
