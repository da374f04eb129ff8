// SPDX-License-Identifier: Apache-2.0
// A value that another process of the job has made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "proto/wire/record.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

constexpr uint64_t kFile = 4711;

RunBuilder Worker(uint64_t now = 10) {
  RunBuilder run;
  run.Pid(2).Boot("boot").Now(now).Clock(Clocks());
  run.Value(1).Produce("aten::log").Line("data.py:9 in collate").Nan();
  return run;
}

RunBuilder WorkerThatWrote(uint64_t file, uint64_t now = 10) {
  RunBuilder run = Worker(now);
  run.CollectiveIn(2, wire::kSharedMemory, file, 1);
  return run;
}

// Reads a batch at 20 ns, in its step 3.
RunFacts Training(uint64_t file) {
  RunBuilder run;
  run.Pid(1).Boot("boot").Now(20).Step(3);
  run.Value(1).Propagate("aten::addmm").At("fc").FromSharedMemory(file).Nan();
  run.Pass(2).Root(1).Leaf("fc.weight", 1);
  return run.Build();
}

TEST(OtherProcesses, WhatCameBySharedMemoryBelongsToTheOpThatMadeIt) {
  const Verdict verdict = Correlate({Training(kFile), WorkerThatWrote(kFile).Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.op(), "aten::log");
  EXPECT_EQ(origin.source(), "data.py:9 in collate");
  EXPECT_TRUE(origin.exact());
  EXPECT_EQ(origin.step(), 3) << "the training's: the worker has none";
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("loss"));
}

TEST(OtherProcesses, WhatTheWriterMadeOfAnInfBelongsToTheOpThatMadeTheInf) {
  RunBuilder worker;
  worker.Pid(2).Boot("boot").Now(10).Clock(Clocks());
  worker.Value(1).Produce("aten::log").Line("data.py:9 in collate").PosInf();
  worker.Value(2).InfToNan("aten::sub").From(1, wire::kHasPosInf).Nan();
  worker.CollectiveIn(3, wire::kSharedMemory, kFile, 2);
  const Verdict verdict = Correlate({Training(kFile), worker.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::log");
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("loss"));
}

TEST(OtherProcesses, TheLastWriterBeforeTheReadIsMeant) {
  RunBuilder later = WorkerThatWrote(kFile, 30);
  later.Pid(3);
  RunBuilder earlier;
  earlier.Pid(4).Boot("boot").Now(5);
  earlier.Value(1).Produce("aten::sqrt").Nan();
  earlier.CollectiveIn(2, wire::kSharedMemory, kFile, 1);
  const Verdict verdict = Correlate(
      {Training(kFile), earlier.Build(), WorkerThatWrote(kFile, 15).Build(), later.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::log");
  EXPECT_EQ(verdict.incidents(0).origin().run(), "0000000000000002");
}

TEST(OtherProcesses, AFileThatNobodyWasSeenToWriteCameInFromOutside) {
  for (RunBuilder worker : {WorkerThatWrote(kFile + 1, 30), WorkerThatWrote(kFile, 30),
                            WorkerThatWrote(kFile).Boot("of another host")}) {
    const Verdict verdict = Correlate({Training(kFile), worker.Build()});
    const Finding& origin = verdict.incidents(0).origin();
    EXPECT_EQ(origin.kind(), "input_data");
    EXPECT_EQ(origin.class_(), "external");
    EXPECT_EQ(origin.op(), "aten::addmm");
    EXPECT_TRUE(origin.candidates().empty());
    EXPECT_TRUE(origin.exact());
  }
}

TEST(OtherProcesses, WhatMadeSuchAValueBeforeIsACandidateAndTheOriginIsNotExact) {
  const Verdict verdict = Correlate({Training(0), Worker().Build()});
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.kind(), "input_data");
  EXPECT_FALSE(origin.exact());
  EXPECT_THAT(origin.unseen(), ElementsAre("candidates"));
  ASSERT_EQ(origin.candidates_size(), 1);
  EXPECT_EQ(origin.candidates(0).op(), "aten::log");
  EXPECT_EQ(origin.candidates(0).source(), "data.py:9 in collate");
  EXPECT_EQ(origin.candidates(0).pid(), 2);
}

// A worker of a pool reads a number of what it was given.
RunFacts PoolWorker(int pid, const std::string& op, int64_t numel = 8) {
  RunBuilder run;
  run.Pid(pid).Boot("boot").Now(30).Clock(Clocks());
  run.Value(1).External(op).Line("pool.py:" + std::to_string(pid)).WithoutGradients().Nan(1, numel);
  run.Value(2).Propagate("aten::mean").From(1).WithoutGradients().Nan(1, 1);
  run.Read(3, 2);
  return run.Build();
}

// What makes the value in another process, and what reads a number of it there.
RunFacts PoolParent(bool reads) {
  RunBuilder run;
  run.Pid(9).Boot("boot").Now(10).Clock(Clocks());
  run.Value(1).Produce("aten::log").Line("pool.py:1").WithoutGradients().Nan();
  if (reads) run.Read(2, 1);
  return run.Build();
}

TEST(OtherProcesses, WhatAPoolReadsOfOneValueIsOneIncident) {
  const Verdict verdict =
      Correlate({PoolParent(true), PoolWorker(2, "aten::mul"), PoolWorker(3, "aten::add")});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).severity(), "warning");
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::log");
  EXPECT_EQ(verdict.incidents(0).count(), 5u);
}

TEST(OtherProcesses, WhatAPoolReadsOfAValueThatDidNothingElseIsOneIncidentWithACandidate) {
  const Verdict verdict =
      Correlate({PoolParent(false), PoolWorker(2, "aten::mul"), PoolWorker(3, "aten::add")});
  int warnings = 0;
  for (const Incident& incident : verdict.incidents()) {
    if (incident.severity() == "info") continue;
    ++warnings;
    ASSERT_EQ(incident.origin().candidates_size(), 1);
    EXPECT_EQ(incident.origin().candidates(0).op(), "aten::log");
  }
  EXPECT_EQ(warnings, 1);
}

TEST(OtherProcesses, ValuesOfAnotherShapeThatAPoolReadsAreIncidentsOfTheirOwn) {
  const Verdict verdict =
      Correlate({PoolParent(true), PoolWorker(2, "aten::mul", 9), PoolWorker(3, "aten::add", 9)});
  EXPECT_EQ(verdict.incidents_size(), 3);
}

// By numpy, a deepcopy, a pickle, a memory of batches: nothing tells that it is the same value.
// An Inf may have become NaN there (numpy takes the mean of a column away), and no NaN an Inf.
TEST(OtherProcesses, InTheSameProcessWhatWasMadeBeforeAndMayHaveBecomeItIsACandidate) {
  const auto origin_of = [](bool nan_made, bool nan_came_in) {
    RunBuilder run;
    run.Pid(1).Boot("boot").Now(10).Step(1);
    auto& made = run.Value(1).Produce("aten::div").Line("memory.py:13 in push");
    nan_made ? made.Nan() : made.PosInf();
    run.Now(20).Step(3);
    auto& came_in = run.Value(3).Propagate("aten::mse_loss");
    came_in.FromOutside(wire::Target::kInputData, "",
                        nan_came_in ? wire::kHasNan : wire::kHasPosInf);
    nan_came_in ? came_in.Nan() : came_in.PosInf();
    run.Pass(4).Root(3).Leaf("fc.weight", 3);
    return Correlate({run.Build()}).incidents(0).origin();
  };
  for (const bool nan_made : {false, true}) {
    for (const bool nan_came_in : {false, true}) {
      const Finding origin = origin_of(nan_made, nan_came_in);
      const bool may_be = nan_came_in || !nan_made;
      EXPECT_EQ(origin.op(), "aten::mse_loss");
      EXPECT_EQ(origin.exact(), !may_be);
      ASSERT_EQ(origin.candidates_size(), may_be ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace nanwatch
