// SPDX-License-Identifier: Apache-2.0
// Gathers what `top --fleet` shows: the runs that a gatherer has heard of lately. A host reports a
// run's state every ten seconds, so rates are those between two states, by that host's own clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "daemon/http/http_client.h"
#include "tools/fleet_question.h"
#include "tools/top_look.h"

namespace nanwatch {

class TopFleet final : public TopSource {
 public:
  explicit TopFleet(HttpClientOptions fleet) : fleet_(std::move(fleet)) {}
  [[nodiscard]] TopPicture Take() override;
  [[nodiscard]] Status DatabaseStatus() override { return trouble_; }

 private:
  struct Mark {
    int64_t step = -1;
    uint64_t recorded_ns = 0;
    std::optional<double> steps_per_second = {};
  };

  [[nodiscard]] TopRow RowOf(const SeenRun& run, uint64_t recorded_ns);

  HttpClientOptions fleet_;
  std::map<std::string, Mark> marks_;  // by run
  TopPicture last_;                    // what is shown while the gatherer is away
  Status trouble_;
};

}  // namespace nanwatch
