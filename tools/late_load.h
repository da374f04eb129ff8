// SPDX-License-Identifier: Apache-2.0
// Loads the library into a process that was started without it, so that `attach` works as for any
// other. The library is never unloaded.
#pragma once

#include <chrono>
#include <string>

#include "tools/environment_block.h"
#include "tools/installation.h"
#include "tools/late_load_plan.h"
#include "tools/places.h"

namespace nanwatch {

struct LateLoadRequest {
  int pid = 0;
  bool inject = false;  // its memory may be written to
  std::chrono::milliseconds limit{10'000};
};

struct LateLoadResult {
  LateLoad how = LateLoad::kNone;     // kNone: it was refused, and nothing was done
  bool watched = false;               // its segment is there, at level idle
  std::string reason;                 // when not watched: one word for programs,
  std::string problem;                // and a sentence that says what to do
  std::string said;                   // what the library said in the process, a line; "" nothing
  std::chrono::milliseconds took{0};  // by --inject: until a thread of it had loaded the library,
  int stops = 0;                      // how often its main thread was stopped for that,
  std::chrono::nanoseconds stopped_max{0};  // and for how long at most
};

// Checks whether it is possible, does it, and waits until the process's observer works and has
// created its segment. Creates the segment directory if it is absent, and starts the user's daemon
// if none is running: nobody else would store what is found.
[[nodiscard]] LateLoadResult LoadLate(const LateLoadRequest& request, const Places& places,
                                      const Installation& installation,
                                      const EnvironmentBlock& outside);

}  // namespace nanwatch
