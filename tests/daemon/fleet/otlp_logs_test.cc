// SPDX-License-Identifier: Apache-2.0
#include "daemon/fleet/otlp_logs.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>

#include "tests/daemon/fleet/rows.h"

namespace nanwatch {
namespace {

// Written by opentelemetry-proto 1.45 of PyPI: a row of ours with every field that the protocol
// has, an attribute of a type that we do not know, and a record of somebody else.
constexpr char kOfOthers[] =
    "0a8b030a540a390a0f6e616e77617463682e6461656d6f6e12260a2430663866616435622d643963"
    "622d343639662d613136352d3730383637373238393530650a150a0474616773120d2a0b0a092100"
    "0000000000f83f10011289020a0d0a086e616e776174636812013112da0109157d090e48b57b1810"
    "111a054552524f522a043a02080732170a116e616e77617463682e73657175656e63651202182a32"
    "130a0d6e616e77617463682e6b696e6412021803321c0a0d6e616e77617463682e72616e6b120b18"
    "ffffffffffffffffff0132170a0c6e616e77617463682e6a6f6212070a05747261696e32220a0c6e"
    "616e77617463682e72756e12120a103030303030303030303030303030616245010000004a100101"
    "01010101010101010101010101015208020202020202020259155eff1348b57b18620d6e616e7761"
    "7463682e73746570121b2a190a1761206c696e65206f6620736f6d65626f647920656c73651a2768"
    "747470733a2f2f6f70656e74656c656d657472792e696f2f736368656d61732f312e32312e30";

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

TEST(OtlpLogs, ReadsWhatAnotherImplementationWrites) {
  const Result<DecodedLogs> logs = DecodeLogs(FromHex(kOfOthers));
  ASSERT_TRUE(logs.ok()) << logs.status().message();
  ASSERT_EQ(logs->rows.size(), 1u);
  const FleetRow& row = logs->rows[0];
  EXPECT_EQ(row.daemon, kDaemonOfTests);
  EXPECT_EQ(row.sequence, 42u);
  EXPECT_EQ(row.recorded_ns, 1'764'203'000'123'456'789u);
  EXPECT_EQ(row.kind, FleetKind::kStep);
  EXPECT_EQ(row.job, "train");
  EXPECT_EQ(row.run, "00000000000000ab");
  EXPECT_EQ(row.rank, -1);
  EXPECT_EQ(row.body, "\x08\x07");
  EXPECT_EQ(logs->rejected, 1u);
  EXPECT_EQ(logs->reason, "nanwatch.sequence is out of range");
}

TEST(OtlpLogs, ComeBackAsTheyWere) {
  std::vector<FleetRow> rows = {StepRow(1), StepRow(2), StepRow(900)};
  rows[1].daemon = "00000000-0000-0000-0000-000000000001";
  rows[1].rank = -1;
  rows[2].body = std::string("\x08\x00", 2);
  const Result<DecodedLogs> logs = DecodeLogs(EncodeLogs(rows, "host7"));
  ASSERT_TRUE(logs.ok());
  EXPECT_EQ(logs->rows, rows);
  EXPECT_EQ(logs->rejected, 0u) << logs->reason;
}

TEST(OtlpLogs, RejectWhatIsNoRowAndKeepTheOthers) {
  const std::vector<std::function<void(FleetRow&)>> spoil = {
      [](FleetRow& row) { row.daemon = "0F8FAD5B-D9CB-469F-A165-70867728950E"; },
      [](FleetRow& row) { row.daemon.pop_back(); },
      [](FleetRow& row) { row.sequence = 0; },
      [](FleetRow& row) { row.sequence = uint64_t{1} << 63; },
      [](FleetRow& row) { row.recorded_ns = uint64_t{1} << 63; },
      [](FleetRow& row) { row.kind = FleetKind{77}; },
      [](FleetRow& row) { row.job = ""; },
      [](FleetRow& row) { row.job = std::string("a\0b", 3); },
      [](FleetRow& row) { row.job.assign(kFleetJobBytesMax + 1, 'j'); },
      [](FleetRow& row) { row.run = "00000000000000AB"; },
      [](FleetRow& row) { row.run = "ab"; },
      [](FleetRow& row) { row.body = "no message"; },
      [](FleetRow& row) { row.body.assign(kFleetBodyBytesMax + 1, '\0'); },
  };
  for (size_t i = 0; i < spoil.size(); ++i) {
    std::vector<FleetRow> rows = {StepRow(1), StepRow(2)};
    spoil[i](rows[0]);
    const Result<DecodedLogs> logs = DecodeLogs(EncodeLogs(rows, "host7"));
    ASSERT_TRUE(logs.ok());
    EXPECT_EQ(logs->rows, std::vector<FleetRow>{StepRow(2)}) << i;
    EXPECT_EQ(logs->rejected, 1u) << i;
    EXPECT_FALSE(logs->reason.empty()) << i;
  }
}

TEST(OtlpLogs, RefuseWhatIsNoProtobufAndTextThatIsNoUtf8) {
  for (const char* body : {"{}", "\x0a\xff", "resourceLogs"})
    EXPECT_EQ(DecodeLogs(body).status().kind(), ErrorKind::kInvalid) << body;
  std::string request = FromHex(kOfOthers);
  request.replace(request.find("train"), 5, "tr\xff\xfen");
  EXPECT_EQ(DecodeLogs(request).status().kind(), ErrorKind::kInvalid);
}

TEST(OtlpLogs, AnswersSayWhatWasRejected) {
  EXPECT_EQ(EncodeLogsAnswer(0, ""), "");
  EXPECT_EQ(EncodeLogsAnswer(3, "no"), FromHex("0a06080312026e6f"));
  const Result<DecodedAnswer> answer = DecodeLogsAnswer(EncodeLogsAnswer(3, "no"));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->rejected, 3u);
  EXPECT_EQ(answer->reason, "no");
  EXPECT_FALSE(DecodeLogsAnswer("<html>").ok());
}

// A field of bytes: tag and length in one byte each, or more of the length.
std::string PieceOf(int number, const std::string& content) {
  std::string piece(1, static_cast<char>((number << 3) | 2));
  size_t length = content.size();
  for (; length > 127; length >>= 7) piece += static_cast<char>((length & 127) | 128);
  return piece + static_cast<char>(length) + content;
}

size_t PeakKb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss);
}

TEST(OtlpLogs, MillionsOfEmptyRecordsTakeNoMemory) {
  std::string records;
  for (int i = 0; i < 4'000'000; ++i) records += PieceOf(2, "");
  const std::string body = PieceOf(1, PieceOf(2, records));
  const size_t before = PeakKb();
  const Result<DecodedLogs> decoded = DecodeLogs(body);
  ASSERT_TRUE(decoded.ok()) << decoded.status().message();
  EXPECT_EQ(decoded->rejected, 4'000'000u);
  EXPECT_TRUE(decoded->rows.empty());
  EXPECT_LT(PeakKb() - before, 20'000u);
}

TEST(OtlpLogs, CarryTheLaunchOfARun) {
  RunFacts facts;
  FleetRow row = StepRow(1);
  row.kind = FleetKind::kRun;
  row.launch = "SLURM_CLUSTER_NAME=a";
  row.body = facts.SerializeAsString();
  const std::vector<FleetRow> rows = {row};
  EXPECT_EQ(DecodeLogs(EncodeLogs(rows, "h"))->rows, rows);
  row.launch.assign(kFleetLaunchBytesMax + 1, 'x');
  EXPECT_NE(WhatIsWrong(row), "");
}

TEST(OtlpLogs, KnowsADaemonThatIsNamedBehindItsRecords) {
  const std::vector<FleetRow> rows = {StepRow(1)};
  const std::string body = EncodeLogs(rows, "h");
  // The resource is the first field of the one that the body has, and shorter than 128 bytes or
  // not.
  const size_t begin = body.find('\x0a', 1);
  ASSERT_NE(begin, std::string::npos);
  size_t at = begin + 1;
  size_t length = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(body[at++]);
    length |= static_cast<size_t>(byte & 127) << shift;
    if (byte < 128) break;
  }
  const std::string resource = body.substr(begin, at + length - begin);
  const std::string turned =
      body.substr(0, begin) + body.substr(begin + resource.size()) + resource;
  const Result<DecodedLogs> decoded = DecodeLogs(turned);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->rows, rows);
}

TEST(OtlpLogs, ATornBodyIsNone) {
  const std::string body = EncodeLogs(std::vector<FleetRow>{StepRow(1), StepRow(2)}, "h");
  for (size_t length = 1; length < body.size(); ++length)
    EXPECT_FALSE(DecodeLogs(std::string_view(body).substr(0, length)).ok()) << length;
}

}  // namespace
}  // namespace nanwatch
