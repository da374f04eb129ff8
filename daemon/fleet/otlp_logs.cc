// SPDX-License-Identifier: Apache-2.0
#include "daemon/fleet/otlp_logs.h"

#include <algorithm>
#include <utility>

#include "otlp_logs.pb.h"

namespace nanwatch {
namespace {

constexpr int kInfo = 9;
constexpr int kWarning = 13;
constexpr int kError = 17;

using Attributes = google::protobuf::RepeatedPtrField<otlp::KeyValue>;

void AddText(Attributes& attributes, const char* key, const std::string& value) {
  otlp::KeyValue& attribute = *attributes.Add();
  attribute.set_key(key);
  attribute.mutable_value()->set_string_value(value);
}

void AddNumber(Attributes& attributes, const char* key, int64_t value) {
  otlp::KeyValue& attribute = *attributes.Add();
  attribute.set_key(key);
  attribute.mutable_value()->set_int_value(value);
}

std::string TextOf(const Attributes& attributes, std::string_view key) {
  for (const otlp::KeyValue& attribute : attributes) {
    if (attribute.key() == key) return attribute.value().string_value();
  }
  return "";
}

int64_t NumberOf(const Attributes& attributes, std::string_view key) {
  for (const otlp::KeyValue& attribute : attributes) {
    if (attribute.key() == key) return attribute.value().int_value();
  }
  return 0;
}

int SeverityOf(FleetKind kind) {
  if (kind == FleetKind::kIncident) return kError;
  return kind == FleetKind::kWarning || kind == FleetKind::kLoss ? kWarning : kInfo;
}

void AddRecord(const FleetRow& row, otlp::ScopeLogs& logs) {
  otlp::LogRecord& record = *logs.add_log_records();
  record.set_time_unix_nano(row.recorded_ns);
  record.set_severity_number(SeverityOf(row.kind));
  record.set_event_name("nanwatch." + std::string(NameOf(row.kind)));
  record.mutable_body()->set_bytes_value(row.body);
  Attributes& attributes = *record.mutable_attributes();
  AddNumber(attributes, "nanwatch.sequence", static_cast<int64_t>(row.sequence));
  AddNumber(attributes, "nanwatch.kind", static_cast<int64_t>(row.kind));
  AddText(attributes, "nanwatch.job", row.job);
  AddText(attributes, "nanwatch.run", row.run);
  AddNumber(attributes, "nanwatch.rank", row.rank);
}

// The kind that a number means; kinds that do not exist become one that WhatIsWrong refuses.
FleetKind KindOf(int64_t number) {
  return static_cast<FleetKind>(number >= 0 && number <= 255 ? number : 0);
}

FleetRow RowOf(const std::string& daemon, otlp::LogRecord& record) {
  const Attributes& attributes = record.attributes();
  return {.daemon = daemon,
          .sequence = static_cast<uint64_t>(NumberOf(attributes, "nanwatch.sequence")),
          .recorded_ns = record.time_unix_nano(),
          .kind = KindOf(NumberOf(attributes, "nanwatch.kind")),
          .job = TextOf(attributes, "nanwatch.job"),
          .run = TextOf(attributes, "nanwatch.run"),
          .rank = static_cast<int32_t>(NumberOf(attributes, "nanwatch.rank")),
          .body = std::move(*record.mutable_body()->mutable_bytes_value())};
}

}  // namespace

std::string EncodeLogs(std::span<const FleetRow> rows, const std::string& host) {
  otlp::LogsRequest request;
  otlp::ScopeLogs* logs = nullptr;
  const std::string* daemon = nullptr;
  for (const FleetRow& row : rows) {
    if (daemon == nullptr || row.daemon != *daemon) {
      daemon = &row.daemon;
      otlp::ResourceLogs& resource = *request.add_resource_logs();
      Attributes& attributes = *resource.mutable_resource()->mutable_attributes();
      AddText(attributes, "service.name", "nanwatchd");
      AddText(attributes, "host.name", host);
      AddText(attributes, "nanwatch.daemon", row.daemon);
      logs = resource.add_scope_logs();
      logs->mutable_scope()->set_name("nanwatch");
    }
    AddRecord(row, *logs);
  }
  return request.SerializeAsString();
}

Result<DecodedLogs> DecodeLogs(std::string_view body) {
  otlp::LogsRequest request;
  if (!request.ParseFromArray(body.data(), static_cast<int>(body.size())))
    return Status(ErrorKind::kInvalid, "the body is no OTLP logs request in protobuf's encoding");
  DecodedLogs decoded;
  for (otlp::ResourceLogs& resource : *request.mutable_resource_logs()) {
    const std::string daemon = TextOf(resource.resource().attributes(), "nanwatch.daemon");
    for (otlp::ScopeLogs& logs : *resource.mutable_scope_logs()) {
      for (otlp::LogRecord& record : *logs.mutable_log_records()) {
        FleetRow row = RowOf(daemon, record);
        std::string wrong = WhatIsWrong(row);
        if (wrong.empty()) {
          decoded.rows.push_back(std::move(row));
        } else if (decoded.rejected++ == 0) {
          decoded.reason = std::move(wrong);
        }
      }
    }
  }
  return decoded;
}

std::string EncodeLogsAnswer(uint64_t rejected, const std::string& reason) {
  otlp::LogsResponse response;
  if (rejected > 0) {
    response.mutable_partial_success()->set_rejected_log_records(static_cast<int64_t>(rejected));
    response.mutable_partial_success()->set_error_message(reason);
  }
  return response.SerializeAsString();
}

Result<DecodedAnswer> DecodeLogsAnswer(std::string_view body) {
  otlp::LogsResponse response;
  if (!response.ParseFromArray(body.data(), static_cast<int>(body.size())))
    return Status(ErrorKind::kInvalid, "the answer is none of OTLP's");
  const auto rejected = std::max<int64_t>(0, response.partial_success().rejected_log_records());
  return DecodedAnswer{.rejected = static_cast<uint64_t>(rejected),
                       .reason = response.partial_success().error_message()};
}

}  // namespace nanwatch
