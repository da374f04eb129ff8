// SPDX-License-Identifier: Apache-2.0
#include "daemon/fleet/fleet_row.h"

#include <algorithm>
#include <limits>

#include "fleet.pb.h"
#include "verdict.pb.h"

namespace nanwatch {
namespace {

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsUuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (is_dash ? text[i] != '-' : !IsHex(text.substr(i, 1))) return false;
  }
  return true;
}

template <typename Message>
bool Parses(const std::string& body) {
  return Message().ParseFromString(body);
}

bool BodyParses(const FleetRow& row) {
  switch (row.kind) {
    case FleetKind::kRun:
    case FleetKind::kFindings:
      return Parses<RunFacts>(row.body);
    case FleetKind::kStep:
      return Parses<StepSummary>(row.body);
    case FleetKind::kIncident:
      return Parses<Incident>(row.body);
    case FleetKind::kWarning:
      return Parses<Warning>(row.body);
    case FleetKind::kLoss:
      return Parses<OutboxLoss>(row.body);
  }
  return false;
}

}  // namespace

std::string_view NameOf(FleetKind kind) {
  switch (kind) {
    case FleetKind::kRun:
      return "run";
    case FleetKind::kFindings:
      return "findings";
    case FleetKind::kStep:
      return "step";
    case FleetKind::kIncident:
      return "incident";
    case FleetKind::kWarning:
      return "warning";
    case FleetKind::kLoss:
      return "loss";
  }
  return "";
}

FleetLane LaneOf(FleetKind kind) {
  switch (kind) {
    case FleetKind::kIncident:
    case FleetKind::kWarning:
      return FleetLane::kConclusions;
    case FleetKind::kRun:
    case FleetKind::kLoss:
      return FleetLane::kRuns;
    case FleetKind::kFindings:
      return FleetLane::kFindings;
    case FleetKind::kStep:
      break;
  }
  return FleetLane::kSteps;
}

std::string WhatIsWrongWithName(const std::string& daemon, uint64_t sequence,
                                uint64_t recorded_ns) {
  if (!IsUuid(daemon)) return "nanwatch.daemon is no UUID in lower case";
  if (sequence == 0 || sequence > std::numeric_limits<int64_t>::max())
    return "nanwatch.sequence is out of range";
  if (recorded_ns > std::numeric_limits<int64_t>::max()) return "the time is out of range";
  return "";
}

bool IsRunId(std::string_view text) { return text.size() == 16 && IsHex(text); }

std::string WhatIsWrong(const FleetRow& row) {
  if (std::string wrong = WhatIsWrongWithName(row.daemon, row.sequence, row.recorded_ns);
      !wrong.empty())
    return wrong;
  if (NameOf(row.kind).empty()) return "nanwatch.kind is unknown: a newer daemon may have sent it";
  const bool is_of_run = row.kind != FleetKind::kLoss;
  if (row.job.size() > kFleetJobBytesMax || row.job.find('\0') != std::string::npos ||
      row.job.empty() == is_of_run)
    return "nanwatch.job is missing, too long or no text";
  if (is_of_run ? !IsRunId(row.run) : !row.run.empty()) return "nanwatch.run is no id of a run";
  if (row.launch.size() > kFleetLaunchBytesMax || row.launch.find('\0') != std::string::npos)
    return "nanwatch.launch is too long or no text";
  if (row.body.size() > kFleetBodyBytesMax) return "the body is too long";
  if (!BodyParses(row)) return "the body is not what nanwatch.kind says";
  return "";
}

}  // namespace nanwatch
