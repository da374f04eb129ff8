// SPDX-License-Identifier: Apache-2.0
// inject_once PID LIBRARY ANSWERS LIMIT_MS: has a process load a library, and prints what came of
// it as one line of JSON. On stderr "waiting" when it takes longer than a second.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tools/inject/injection.h"

int main(int count, char** words) {
  if (count != 5) return 2;
  const nanwatch::InjectionResult result = nanwatch::Inject({
      .pid = std::atoi(words[1]),
      .free_threaded = false,
      .call = {.library = words[2], .level = "idle", .directory = "/a b", .answers = words[3]},
      .limit = std::chrono::milliseconds(std::atoi(words[4])),
      .on_wait = [] { fprintf(stderr, "waiting\n"); },
  });
  const nlohmann::json line = {{"called", result.called},
                               {"answer", result.answer},
                               {"in_time", result.in_time},
                               {"problem", result.problem},
                               {"stops", result.stops},
                               {"stopped_us", result.stopped_max.count() / 1000},
                               {"took_us", result.took.count() / 1000}};
  printf("%s\n", line.dump().c_str());
  return result.called ? 0 : 1;
}
