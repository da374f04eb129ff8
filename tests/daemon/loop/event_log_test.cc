// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/event_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "daemon/report/json_report.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

class EventLogTest : public testing::Test {
 protected:
  std::vector<nlohmann::json> Lines(const std::string& suffix = "") {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path_ + suffix);
    for (std::string line; std::getline(file, line);) {
      EXPECT_LE(line.size(), kEventBytesMax);
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "events.jsonl";
  FakeClock clock_;
};

TEST_F(EventLogTest, WritesOneObjectALine) {
  const auto log = MakeEventLog(path_, clock_);
  log->Trouble("line\nbreak \xff");
  log->CommandEnded({.job = "j", .pid = 7, .exit_code = {}, .signal = 9});
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["format"], "nanwatch.events/1");
  EXPECT_EQ(lines[1]["event"], "trouble");
  EXPECT_EQ(lines[2]["signal"], 9);
  EXPECT_TRUE(lines[2]["exit_code"].is_null());
}

TEST_F(EventLogTest, AWarningIsThereAsTheVerdictDocumentHasIt) {
  const auto log = MakeEventLog(path_, clock_);
  Verdict verdict;
  RunInfo& run = *verdict.add_runs();
  run.set_id("7f3a");
  run.set_program("train.py");
  Warning warning;
  warning.set_id("gradient-exploding");
  warning.set_run("7f3a");
  (*warning.mutable_numbers())["gradient_norm"] = 3.5;
  log->WarningSeen(verdict, warning);
  const nlohmann::json line = Lines().back();
  EXPECT_EQ(line["event"], "warning");
  EXPECT_EQ(line["program"], "train.py");
  EXPECT_EQ(line["warning"]["id"], "gradient-exploding");
  EXPECT_EQ(line["warning"]["numbers"]["gradient_norm"], 3.5);
}

TEST_F(EventLogTest, AnIncidentCarriesItsOriginAsTheVerdictDocumentHasIt) {
  const auto log = MakeEventLog(path_, clock_);
  Verdict verdict;
  RunInfo& run = *verdict.add_runs();
  run.set_id("7f3a");
  run.set_program("train.py");
  Incident incident;
  incident.set_severity("error");
  incident.mutable_origin()->set_run("7f3a");
  incident.mutable_origin()->set_op("aten::log");
  incident.mutable_origin()->set_class_("produce");
  incident.mutable_origin()->set_step(17);
  TensorStats& output = *incident.mutable_origin()->add_outputs();
  output.set_nan(uint64_t{1} << 53);
  output.set_finite_max(std::numeric_limits<double>::infinity());
  incident.add_reach("loss");
  *verdict.add_incidents() = incident;
  log->IncidentSeen(verdict, incident, false);
  const nlohmann::json line = Lines().back();
  // Numbers, too, have one form: 64-bit integers are numbers, what is not finite is a word.
  EXPECT_EQ(line["origin"], nlohmann::json::parse(JsonReport(verdict))["incidents"][0]["origin"]);
  EXPECT_EQ(line["origin"]["step"], 17);
  EXPECT_EQ(line["event"], "incident");
  EXPECT_EQ(line["verdict"], "anomaly");
  EXPECT_EQ(line["program"], "train.py");
  EXPECT_EQ(line["origin"]["class"], "produce");
  EXPECT_EQ(line["reach"][0], "loss");
}

TEST_F(EventLogTest, ALineStaysShortHoweverLongTheNamesAre) {
  const auto log = MakeEventLog(path_, clock_);
  Incident incident;
  for (int i = 0; i < 100; ++i) {
    TensorStats& stats = *incident.mutable_origin()->add_inputs();
    stats.set_role(std::string(500, 'r'));
  }
  incident.mutable_origin()->set_layer(std::string(20'000, 'l'));
  log->IncidentSeen(Verdict(), incident, false);
  EXPECT_EQ(Lines().size(), 2u);
}

TEST_F(EventLogTest, StartsANewFileByRenamingTheFullOne) {
  const auto log = MakeEventLog(path_, clock_, /*file_bytes_max=*/2'000);
  for (int i = 0; i < 300; ++i) log->Remark("remark " + std::to_string(i));
  EXPECT_EQ(Lines().front()["event"], "log_begun");
  EXPECT_EQ(Lines(".1").front()["event"], "log_begun");
  EXPECT_TRUE(std::filesystem::exists(path_ + "." + std::to_string(kEventFilesKept)));
  EXPECT_FALSE(std::filesystem::exists(path_ + "." + std::to_string(kEventFilesKept + 1)));
}

TEST_F(EventLogTest, GoesOnInANewFileWhenSomebodyElseRenamedIt) {
  const auto log = MakeEventLog(path_, clock_);
  log->Remark("before");
  std::filesystem::rename(path_, path_ + ".theirs");
  log->Reopen();
  log->Remark("after");
  EXPECT_EQ(Lines().back()["message"], "after");
  EXPECT_EQ(Lines(".theirs").back()["message"], "before");
}

}  // namespace
}  // namespace nanwatch
