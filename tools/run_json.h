// SPDX-License-Identifier: Apache-2.0
// A run as a JSON object, as `ps` prints it and `serve` answers it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "daemon/store/store.h"

namespace nanwatch {

// What is known of one run; borrows for the length of a call.
struct RunFields {
  const std::string& id;
  const std::string& job;
  const Run& run;
  const RunState& state;
  const std::string& state_text;  // as of StateOf
  bool live;
  int64_t step;
  std::optional<double> loss;
};

[[nodiscard]] nlohmann::ordered_json RunJson(const RunFields& row);

}  // namespace nanwatch
