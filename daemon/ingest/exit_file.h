// SPDX-License-Identifier: Apache-2.0
// <job>.exit: how a command that `nanwatch run` started ended, one JSON object written by the tool.
// Read as suspiciously as a segment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace nanwatch {

// How a command that `nanwatch run` started ended.
struct JobExit {
  std::string job = {};
  int32_t pid = 0;  // of the command; 0 when it could not be started
  std::optional<int32_t> exit_code = {};
  std::optional<int32_t> signal = {};
  uint64_t ended_real_ns = 0;

  bool operator==(const JobExit&) const = default;
};

// kInvalid when the text is no such object.
[[nodiscard]] Result<JobExit> ParseJobExit(std::string_view text);

// Reads at most 16 KiB of it.
[[nodiscard]] Result<JobExit> ReadJobExit(const std::string& path);

}  // namespace nanwatch
