// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/launch_of_process.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "daemon/base/small_file.h"
#include "daemon/ingest/writer_liveness.h"

namespace nanwatch {
namespace {

constexpr size_t kEnvironmentMax = size_t{1} << 20;
constexpr size_t kValueMax = 64;

// In a launch of several hosts each has the same value on all of them. (MASTER_ADDR may be
// localhost on one and a name on the others.) The time is that of Slurm's controller.
constexpr const char* kWords[] = {"SLURM_CLUSTER_NAME", "SLURM_JOB_START_TIME",
                                  "TORCHELASTIC_RUN_ID", "MASTER_PORT"};

std::string ValueOf(const std::string& entries, std::string_view name) {
  for (size_t at = 0; at < entries.size();) {
    const size_t end = std::min(entries.find('\0', at), entries.size());
    const std::string_view entry = std::string_view(entries).substr(at, end - at);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1, kValueMax));
    at = end + 1;
  }
  return "";
}

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view(".-_:").find(c) != std::string_view::npos;
}

}  // namespace

std::string LaunchOfEnvironment(const std::string& entries) {
  std::string launch;
  for (const char* word : kWords) {
    std::string value = ValueOf(entries, word);
    for (char& c : value) c = IsPlain(c) ? c : '_';
    if (value.empty()) continue;
    if (!launch.empty()) launch += ' ';
    launch += std::string(word) + "=" + value;
  }
  return launch;
}

std::string LaunchOfProcess(const Run& run) {
  for (const int32_t pid : {run.pid_outer(), run.pid()}) {
    if (run.process_start_ticks() == 0 || ProcessStartTicks(pid) != run.process_start_ticks())
      continue;
    const Result<std::string> entries =
        ReadSmallFile("/proc/" + std::to_string(pid) + "/environ", kEnvironmentMax);
    return entries.ok() ? LaunchOfEnvironment(*entries) : "";
  }
  return "";
}

}  // namespace nanwatch
