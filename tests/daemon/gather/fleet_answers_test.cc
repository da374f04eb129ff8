// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_answers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"

namespace nanwatch {
namespace {

// As FakeClock, for several threads.
class SharedClock final : public Clock {
 public:
  [[nodiscard]] uint64_t monotonic_ns() const override { return now_ns_; }
  [[nodiscard]] uint64_t real_ns() const override { return now_ns_; }
  void Advance(uint64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<uint64_t> now_ns_{1'000'000'000};
};

// What a reader gives, and whether it waits before it does.
struct ScriptedFleet {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = true;
  int questions = 0;
  std::vector<FleetRun> runs;
  uint64_t left_out = 0;
  std::string tenant;  // whose jobs they are
  FleetIncidents incidents;
  Status failure;
  OutboxLoss loss;

  void Open() {
    const std::lock_guard<std::mutex> lock(mutex);
    is_open = true;
    changed.notify_all();
  }
  void AwaitQuestions(int count) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return questions >= count; });
  }
  void Enter() {
    std::unique_lock<std::mutex> lock(mutex);
    ++questions;
    changed.notify_all();
    changed.wait(lock, [this] { return is_open; });
  }
};

class ScriptedReader final : public FleetReader {
 public:
  explicit ScriptedReader(ScriptedFleet& fleet) : fleet_(fleet) {}
  Result<std::vector<FleetJob>> Jobs(const std::string&) override {
    fleet_.Enter();
    return std::vector<FleetJob>{{.job = "train"}};
  }
  Result<FleetRuns> RunsOfJob(const std::string& tenant, const std::string& job) override {
    fleet_.Enter();
    if (!fleet_.failure.ok()) return fleet_.failure;
    if (job == "nobody" || tenant != fleet_.tenant)
      return Status(ErrorKind::kNotFound, "no job of that id");
    return FleetRuns{.runs = fleet_.runs, .left_out = fleet_.left_out};
  }
  Result<FleetFindings> FindingsOf(const std::string&, const std::string&,
                                   const std::vector<FleetRun>&) override {
    return FleetFindings();
  }
  Result<FleetIncidents> Incidents(const std::string&, size_t) override {
    fleet_.Enter();
    return fleet_.incidents;
  }
  Result<std::vector<ListedRun>> Runs(const std::string&) override {
    std::vector<ListedRun> listed;
    for (const FleetRun& run : fleet_.runs) listed.push_back({.job = "train", .run = run});
    return listed;
  }
  Result<FleetSteps> StepsOf(const std::string&, const std::string&,
                             const std::vector<FleetRun>&) override {
    return FleetSteps();
  }
  Result<OutboxLoss> LossOf(const std::vector<FleetRun>&) override { return fleet_.loss; }

 private:
  ScriptedFleet& fleet_;
};

class FleetAnswersTest : public testing::Test {
 protected:
  static std::vector<std::unique_ptr<FleetReader>> Readers(ScriptedFleet& fleet, int count) {
    std::vector<std::unique_ptr<FleetReader>> readers;
    readers.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) readers.push_back(std::make_unique<ScriptedReader>(fleet));
    return readers;
  }
  FleetAnswersTest() {
    for (int32_t rank = 0; rank < 2; ++rank) {
      FleetRun& run = fleet_.runs.emplace_back();
      run.run = "run" + std::to_string(rank);
      run.facts.mutable_run()->set_rank(rank);
      run.facts.mutable_run()->set_world_size(2);
      run.facts.mutable_state()->set_ended(true);
    }
  }
  HttpAnswer Ask(const std::string& path) { return answers_.Answer({.path = path, .accept = ""}); }
  std::future<HttpAnswer> AskLater(const std::string& path) {
    return std::async(std::launch::async, [this, path] { return Ask(path); });
  }

  ScriptedFleet fleet_;
  SharedClock clock_;
  FleetAnswers answers_{Readers(fleet_, 2), clock_};
};

TEST_F(FleetAnswersTest, KeepsAnAnswerForAMoment) {
  EXPECT_EQ(Ask("/api/v1/jobs/train/verdict").status, 200);
  clock_.Advance(kNsPerSecond / 4 - 1);
  EXPECT_EQ(Ask("/api/v1/jobs/train/verdict").status, 200);
  EXPECT_EQ(fleet_.questions, 1);
  clock_.Advance(1);
  EXPECT_EQ(Ask("/api/v1/jobs/train/verdict").status, 200);
  EXPECT_EQ(fleet_.questions, 2);
}

TEST_F(FleetAnswersTest, KeepsAnAnswerForAsLongAsItTookToMakeAndTwoSecondsAtMost) {
  for (const auto& [took_ns, kept_ns] :
       {std::pair(kNsPerSecond, kNsPerSecond), std::pair(9 * kNsPerSecond, 2 * kNsPerSecond)}) {
    fleet_.is_open = false;
    const int before = fleet_.questions;
    std::future<HttpAnswer> asker = AskLater("/api/v1/jobs/train/verdict");
    fleet_.AwaitQuestions(before + 1);
    clock_.Advance(took_ns);
    fleet_.Open();
    EXPECT_EQ(asker.get().status, 200);
    clock_.Advance(kept_ns - 1);
    EXPECT_EQ(Ask("/api/v1/jobs/train/verdict").status, 200);
    EXPECT_EQ(fleet_.questions, before + 1);
    clock_.Advance(1);
    EXPECT_EQ(Ask("/api/v1/jobs/train/verdict").status, 200);
    EXPECT_EQ(fleet_.questions, before + 2);
    clock_.Advance(2 * kNsPerSecond);
  }
}

TEST_F(FleetAnswersTest, ManyWhoAskTheSameShareOneAnswerThatTookLong) {
  fleet_.is_open = false;
  std::vector<std::future<HttpAnswer>> askers;
  askers.push_back(AskLater("/api/v1/jobs/train/verdict"));
  fleet_.AwaitQuestions(1);
  for (int i = 0; i < 8; ++i) askers.push_back(AskLater("/api/v1/jobs/train/verdict"));
  // It takes longer than an answer is kept.
  clock_.Advance(60 * kNsPerSecond);
  fleet_.Open();
  for (std::future<HttpAnswer>& asker : askers) EXPECT_EQ(asker.get().status, 200);
  EXPECT_EQ(fleet_.questions, 1);
}

TEST_F(FleetAnswersTest, RefusesQuestionsBeyondThoseThatMayWait) {
  fleet_.is_open = false;
  std::vector<std::future<HttpAnswer>> askers;
  askers.reserve(40);
  for (int i = 0; i < 40; ++i)
    askers.push_back(AskLater("/api/v1/jobs/train" + std::to_string(i) + "/verdict"));
  fleet_.AwaitQuestions(2);
  size_t busy = 0;
  // Two are being made and sixteen wait; the others have their answer while these have none.
  while (busy < 40 - 2 - kFleetQuestionsWaitingMax) {
    busy = 0;
    for (std::future<HttpAnswer>& asker : askers)
      busy += asker.wait_for(std::chrono::seconds(0)) == std::future_status::ready ? 1 : 0;
    std::this_thread::yield();
  }
  EXPECT_EQ(busy, 40 - 2 - kFleetQuestionsWaitingMax);
  fleet_.Open();
  size_t refused = 0;
  for (std::future<HttpAnswer>& asker : askers) {
    const HttpAnswer answer = asker.get();
    refused += answer.status == 429 && answer.retry_after_s > 0 ? 1 : 0;
  }
  EXPECT_EQ(refused, busy);
}

TEST_F(FleetAnswersTest, ASlowQuestionHoldsUpNoOther) {
  fleet_.is_open = false;
  std::future<HttpAnswer> slow = AskLater("/api/v1/jobs/train/verdict");
  fleet_.AwaitQuestions(1);
  std::future<HttpAnswer> other = AskLater("/api/v1/jobs");
  fleet_.AwaitQuestions(2);
  fleet_.Open();
  EXPECT_EQ(slow.get().status, 200);
  EXPECT_EQ(other.get().status, 200);
}

TEST_F(FleetAnswersTest, AnswersForTheNewestLaunchAndForOthersByName) {
  FleetRun former = fleet_.runs[0];
  former.run = "former";
  former.launch = "SLURM_CLUSTER_NAME=b";
  for (FleetRun& run : fleet_.runs) {
    run.launch = "SLURM_CLUSTER_NAME=a";
    run.facts.mutable_run()->set_started_real_ns(1'000);
  }
  fleet_.runs.push_back(former);
  const auto newest = nlohmann::json::parse(Ask("/api/v1/jobs/train/verdict").body)["fleet"];
  EXPECT_EQ(newest["ranks_heard"], 2);
  ASSERT_EQ(newest["other_launches"].size(), 1u);
  const std::string other = newest["other_launches"][0];
  const auto asked =
      nlohmann::json::parse(Ask("/api/v1/jobs/train@" + other + "/verdict").body)["fleet"];
  EXPECT_EQ(asked["launch"], other);
  EXPECT_EQ(asked["ranks_heard"], 1);
  EXPECT_EQ(Ask("/api/v1/jobs/train@00000000/verdict").status, 404);
}

TEST_F(FleetAnswersTest, SaysWhatWasLostOnTheWay) {
  fleet_.loss.set_findings(7);
  const auto fleet = nlohmann::json::parse(Ask("/api/v1/jobs/train/verdict").body)["fleet"];
  EXPECT_EQ(fleet["lost"]["findings"], 7);
}

TEST_F(FleetAnswersTest, SaysHowManyRunsItDidNotRead) {
  EXPECT_EQ(nlohmann::json::parse(Ask("/api/v1/jobs/train/verdict").body)["fleet"]["runs_left_out"],
            0);
  fleet_.left_out = 3;
  clock_.Advance(2 * kNsPerSecond);
  EXPECT_EQ(nlohmann::json::parse(Ask("/api/v1/jobs/train/verdict").body)["fleet"]["runs_left_out"],
            3);
}

TEST_F(FleetAnswersTest, ListsHostsThatStandOut) {
  for (const char* launch : {"train", "tune"}) {
    HostIncident& one = fleet_.incidents.incidents.emplace_back();
    one.host = "gpu7";
    one.launch = launch;
    one.incident.set_severity("error");
    one.incident.mutable_origin()->set_op("aten::log");
    one.incident.mutable_origin()->set_run(launch);
  }
  fleet_.incidents.is_whole = false;
  const auto json = nlohmann::json::parse(Ask("/api/v1/hosts").body);
  ASSERT_EQ(json["hosts"].size(), 1u);
  EXPECT_EQ(json["hosts"][0]["host"], "gpu7");
  EXPECT_EQ(json["hosts"][0]["launches"], 2);
  EXPECT_EQ(json["older_incidents_left_out"], true);
}

TEST_F(FleetAnswersTest, FailuresAreNotKept) {
  EXPECT_EQ(Ask("/api/v1/jobs/nobody/verdict").status, 404);
  fleet_.failure = Status(ErrorKind::kIo, "away");
  EXPECT_EQ(Ask("/api/v1/jobs/train/verdict").status, 503);
  fleet_.failure = Status();
  EXPECT_EQ(Ask("/api/v1/jobs/train/verdict").status, 200);
  EXPECT_EQ(Ask("/api/v1/jobs/x").status, 404);
}

}  // namespace
}  // namespace nanwatch
