// Brings the library into a process that was started without it, so that it can be attached to as
// any other. What was once loaded stays.
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
  bool inject = false;  // a debugger may stop it
  std::chrono::milliseconds limit{10'000};
};

struct LateLoadResult {
  LateLoad how = LateLoad::kNone;     // kNone: it was refused, and nothing was done
  bool watched = false;               // its segment is there, at level idle
  std::string reason;                 // when not watched: one word for programs,
  std::string problem;                // and a sentence that says what to do
  std::string said;                   // what the library said in the process, a line; "" nothing
  std::chrono::milliseconds took{0};  // gdb's whole run: it was stopped for less; else 0
};

// Looks whether it is possible, does it, and waits until the process's observer has proven itself
// and made its segment. Makes the directory of segments when it is absent, and starts the user's
// daemon when none runs: nobody else would keep what is found.
[[nodiscard]] LateLoadResult LoadLate(const LateLoadRequest& request, const Places& places,
                                      const Installation& installation,
                                      const EnvironmentBlock& outside);

}  // namespace nanwatch
