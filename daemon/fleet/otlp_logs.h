// SPDX-License-Identifier: Apache-2.0
// Rows of a fleet as OTLP logs (proto/otlp_logs.proto), and back. Pure functions.
//
// A daemon is a resource, by the attribute nanwatch.daemon; a row is a record, with the attributes
// nanwatch.sequence, .kind, .job, .run and .rank, the time when it was recorded, and its body as
// bytes. What stands between may split, join and delay requests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"

namespace nanwatch {

// A header of each answer of nanwatch-gather, and the version of what it takes. An answer without
// it is of something else: it proves nothing about the rows that were sent.
inline constexpr char kGathererHeader[] = "nanwatch-gather";
inline constexpr char kGathererVersion[] = "1";
inline constexpr char kOtlpType[] = "application/x-protobuf";

[[nodiscard]] std::string EncodeLogs(std::span<const FleetRow> rows, const std::string& host);

struct DecodedLogs {
  std::vector<FleetRow> rows;
  uint64_t rejected = 0;  // records that are no rows
  std::string reason;     // of the first of these
};
// kInvalid where the body is no OTLP request in protobuf's encoding. Takes memory for rows alone: a
// few times as much as their part of the body.
[[nodiscard]] Result<DecodedLogs> DecodeLogs(std::string_view body);

[[nodiscard]] std::string EncodeLogsAnswer(uint64_t rejected, const std::string& reason);
struct DecodedAnswer {
  uint64_t rejected = 0;
  std::string reason;
};
[[nodiscard]] Result<DecodedAnswer> DecodeLogsAnswer(std::string_view body);

}  // namespace nanwatch
