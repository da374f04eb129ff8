// SPDX-License-Identifier: Apache-2.0
// Where a process has the functions that loading a library takes, and the calls that can be hooked:
// those to the mutex with which Python begins to take or give back the GIL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/inject/mapping.h"
#include "tools/inject/room.h"
#include "tools/inject/target_memory.h"

namespace nanwatch {

// A pointer through which some code calls a function.
struct CallSlot {
  uint64_t address = 0;
  uint64_t function = 0;  // what it pointed to, before any hook of ours
  uint64_t found = 0;     // what it points to now: another than `function` only when a tool was
                          // killed and its hook stayed
  bool operator==(const CallSlot&) const = default;
};

struct JobFunctions {
  uint64_t dlopen = 0;
  uint64_t dlsym = 0;
  uint64_t dlerror = 0;
  uint64_t errno_location = 0;
  uint64_t add_pending_call = 0;
  std::vector<CallSlot> slots;
  std::string problem;  // what is missing, a sentence's end; "" nothing
};

// `free_threaded`: there may be no GIL, so calls that give a thread's state back are hooked too.
// Adds all space that it finds to `room`.
[[nodiscard]] JobFunctions FindJobFunctions(const TargetMemory& memory, const Mappings& mappings,
                                            bool free_threaded, Room& room);

}  // namespace nanwatch
