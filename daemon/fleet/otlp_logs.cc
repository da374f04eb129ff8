// SPDX-License-Identifier: Apache-2.0
#include "daemon/fleet/otlp_logs.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <utility>

#include "daemon/fleet/otlp_attributes.h"
#include "otlp_logs.pb.h"

namespace nanwatch {
namespace {

constexpr int kInfo = 9;
constexpr int kWarning = 13;
constexpr int kError = 17;
constexpr size_t kResourceBytesMax = size_t{64} << 10;
constexpr size_t kRecordBytesMax = kFleetBodyBytesMax + (size_t{8} << 10);

using Attributes = OtlpAttributes;

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
  if (!row.launch.empty()) AddText(attributes, "nanwatch.launch", row.launch);
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
          .launch = TextOf(attributes, "nanwatch.launch"),
          .body = std::move(*record.mutable_body()->mutable_bytes_value())};
}

// ---- decoding, a record at a time: a body of empty records costs no memory

const Status& NoLogs() {
  static const Status status(ErrorKind::kInvalid,
                             "the body is no OTLP logs request in protobuf's encoding");
  return status;
}

// Calls `take` for each field `number` of a message, which holds bytes; others are passed over.
template <typename Take>
Status ForEachPiece(std::string_view message, int number, const Take& take) {
  using Wire = google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(message.data()),
                                                static_cast<int>(message.size()));
  const uint32_t wanted = Wire::MakeTag(number, Wire::WIRETYPE_LENGTH_DELIMITED);
  while (const uint32_t tag = stream.ReadTag()) {
    if (tag != wanted) {
      if (!Wire::SkipField(&stream, tag)) return NoLogs();
      continue;
    }
    int length = 0;
    if (!stream.ReadVarintSizeAsInt(&length)) return NoLogs();
    const auto at = static_cast<size_t>(stream.CurrentPosition());
    if (!stream.Skip(length)) return NoLogs();
    if (Status taken = take(message.substr(at, static_cast<size_t>(length))); !taken.ok())
      return taken;
  }
  return stream.ConsumedEntireMessage() ? Status() : NoLogs();
}

void Reject(std::string why, DecodedLogs& decoded) {
  if (decoded.rejected++ == 0) decoded.reason = std::move(why);
}

Status DecodeRecord(const std::string& daemon, std::string_view bytes, DecodedLogs& decoded) {
  if (bytes.size() > kRecordBytesMax) {
    Reject("the record is too long", decoded);
    return Status();
  }
  otlp::LogRecord record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return NoLogs();
  FleetRow row = RowOf(daemon, record);
  std::string wrong = WhatIsWrong(row);
  if (!wrong.empty()) {
    Reject(std::move(wrong), decoded);
    return Status();
  }
  decoded.rows.push_back(std::move(row));
  return Status();
}

// Its attributes may stand behind its records.
Status DecodeResource(std::string_view bytes, DecodedLogs& decoded) {
  std::string daemon;
  Status known =
      ForEachPiece(bytes, otlp::ResourceLogs::kResourceFieldNumber, [&](std::string_view piece) {
        otlp::Resource resource;
        if (piece.size() > kResourceBytesMax) return Status();
        if (!resource.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) return NoLogs();
        daemon = TextOf(resource.attributes(), "nanwatch.daemon");
        return Status();
      });
  if (!known.ok()) return known;
  return ForEachPiece(
      bytes, otlp::ResourceLogs::kScopeLogsFieldNumber, [&](std::string_view scope) {
        return ForEachPiece(
            scope, otlp::ScopeLogs::kLogRecordsFieldNumber,
            [&](std::string_view record) { return DecodeRecord(daemon, record, decoded); });
      });
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
  DecodedLogs decoded;
  Status read =
      ForEachPiece(body, otlp::LogsRequest::kResourceLogsFieldNumber,
                   [&](std::string_view resource) { return DecodeResource(resource, decoded); });
  if (!read.ok()) return read;
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
