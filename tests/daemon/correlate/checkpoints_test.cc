// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string StateAfter(void (*change)(CheckpointFact&)) {
  RunBuilder run;
  change(run.Step(3).Saved(1, "a.pt"));
  return Correlate({run.Build()}).checkpoints(0).state();
}

TEST(Checkpoints, OnlyOneThatWasReadToItsEndIsClean) {
  EXPECT_EQ(StateAfter([](CheckpointFact&) {}), "clean");
  EXPECT_EQ(StateAfter([](CheckpointFact& saved) { saved.set_bad(1); }), "bad");
  EXPECT_EQ(StateAfter([](CheckpointFact& saved) { saved.set_unread(1); }), "unread");
  EXPECT_EQ(StateAfter([](CheckpointFact& saved) { saved.set_left_out(true); }), "unread");
  EXPECT_EQ(StateAfter([](CheckpointFact& saved) { saved.set_read(0); }), "unread");
  EXPECT_EQ(StateAfter([](CheckpointFact& saved) { saved.set_failed(true); }), "failed");
  EXPECT_EQ(StateAfter([](CheckpointFact& saved) {
              saved.set_bad(1);
              saved.set_unread(1);
            }),
            "bad")
      << "whatever the others hold";
}

TEST(Checkpoints, AreToldInOrderWithTheirSteps) {
  RunBuilder run;
  run.Now(1'000).Step(10).Saved(1, "10.pt");
  run.Now(2'000).Step(20).Saved(2, "20.pt", 1).set_kinds(wire::kHasNan | wire::kHasNegInf);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.checkpoints_size(), 2);
  EXPECT_EQ(verdict.checkpoints(0).file(), "10.pt");
  EXPECT_EQ(verdict.checkpoints(0).step(), 10);
  EXPECT_THAT(verdict.checkpoints(0).kinds(), IsEmpty());
  EXPECT_EQ(verdict.checkpoints(1).step(), 20);
  EXPECT_EQ(verdict.checkpoints(1).first_bad(), "fc.weight");
  EXPECT_THAT(verdict.checkpoints(1).kinds(), ElementsAre("nan", "neg_inf"));
}

TEST(Checkpoints, WhatAFileHeldBeforeItWasWrittenAgainIsGone) {
  RunBuilder run;
  run.Now(1'000).Step(400).Saved(1, "last.pt");
  run.Now(2'000).Step(450).Saved(2, "450.pt");
  run.Now(3'000).Step(500).Saved(3, "last.pt", 1);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.checkpoints_size(), 2);
  EXPECT_EQ(verdict.checkpoints(0).file(), "450.pt");
  EXPECT_EQ(verdict.checkpoints(1).state(), "bad");
}

TEST(Checkpoints, SharesOfRanksAreOneCheckpoint) {
  RunBuilder clean;
  clean.Rank(0).Now(1'000).Step(5).Saved(1, "ckpt/5");
  RunBuilder bad;
  bad.Rank(1).Now(1'000).Step(5).Saved(1, "ckpt/5", 1);
  for (const bool bad_first : {false, true}) {
    const Verdict verdict = bad_first ? Correlate({bad.Build(), clean.Build()})
                                      : Correlate({clean.Build(), bad.Build()});
    ASSERT_EQ(verdict.checkpoints_size(), 1);
    EXPECT_EQ(verdict.checkpoints(0).state(), "bad");
    EXPECT_EQ(verdict.checkpoints(0).rank(), 1);
    EXPECT_EQ(verdict.checkpoints(0).tensors(), 4u);
  }
}

TEST(Checkpoints, OfManyTheNewestAreToldAndWhatMatters) {
  RunBuilder run;
  constexpr int kCount = 3 * kCheckpointsMax;
  constexpr int kFirstBad = 100;
  for (int i = 0; i < kCount; ++i) {
    run.Now(static_cast<uint64_t>(i) + 1).Step(static_cast<uint32_t>(i));
    run.Saved(static_cast<uint64_t>(i) + 1, std::to_string(i) + ".pt", i < kFirstBad ? 0 : 1);
  }
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.checkpoints_size(), kCheckpointsMax + 2);
  EXPECT_EQ(verdict.checkpoints(0).file(), "99.pt") << "the last clean one";
  EXPECT_EQ(verdict.checkpoints(1).file(), "100.pt") << "the first bad one";
  EXPECT_EQ(verdict.checkpoints(2).file(), std::to_string(kCount - kCheckpointsMax) + ".pt");
}

}  // namespace
}  // namespace nanwatch
