// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/step_cycles.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nanwatch {
namespace {

constexpr size_t kSlots = 4;

// A run told act by act; each letter is an optimizer, and its number is its place in the alphabet.
class ToldActs {
 public:
  // `slot` as the job has given it.
  void Act(uint32_t optimizer, size_t slot) {
    Count(optimizer, slot);
    Tell(optimizer);
  }

  void Acts(const std::string& letters) {
    for (const char letter : letters)
      Act(static_cast<uint32_t>(letter - 'A'), static_cast<size_t>(letter - 'A') % kSlots);
  }
  // The first step of a notebook's cell.
  void ActInNewCell(char letter, bool idle = false) {
    const auto optimizer = static_cast<uint32_t>(letter - 'A');
    Count(optimizer, optimizer % kSlots);
    FoldStep(Now(), {.optimizer = optimizer, .begins_cell = true, .idle = idle}, cycles_);
  }
  void ActIdle(char letter) {
    const auto optimizer = static_cast<uint32_t>(letter - 'A');
    Count(optimizer, optimizer % kSlots);
    FoldStep(Now(), {.optimizer = optimizer, .idle = true}, cycles_);
  }
  void Repeat(int times, const std::string& letters) {
    for (int i = 0; i < times; ++i) Acts(letters);
  }
  // Nobody read the entry.
  void Unread(const std::string& letters) {
    for (const char letter : letters)
      Count(static_cast<uint32_t>(letter - 'A'), static_cast<size_t>(letter - 'A') % kSlots);
  }
  // A new optimizer has the slot from now on.
  void GiveAway(size_t slot) { counts_[slot] = 0; }

  [[nodiscard]] uint32_t SlotThatClosesAt(uint32_t ranges) const {
    uint32_t slot = kSpanUnknown;
    for (const StepSpan& span : SpansOf(cycles_)) {
      if (span.from() <= ranges) slot = span.slot();
    }
    return slot;
  }
  // Of the last span that begins no later.
  [[nodiscard]] StepSpan SpanAt(uint32_t ranges) const {
    StepSpan found;
    for (const StepSpan& span : SpansOf(cycles_)) {
      if (span.from() <= ranges) found = span;
    }
    return found;
  }
  [[nodiscard]] const StepCycles& cycles() const { return cycles_; }
  [[nodiscard]] uint32_t ranges() const { return ranges_; }

 private:
  void Count(uint32_t, size_t slot) {
    ++counts_[slot];
    ++ranges_;
  }
  void Tell(uint32_t optimizer) { FoldStep(Now(), optimizer, cycles_); }
  [[nodiscard]] Clocks Now() const {
    Clocks clocks;
    for (const uint32_t count : counts_) clocks.add_optimizer_steps(count);
    clocks.set_optimizer_ranges(ranges_);
    return clocks;
  }

  uint32_t counts_[kSlots] = {};
  uint32_t ranges_ = 0;
  StepCycles cycles_;
};

TEST(StepCycles, OneThatHasRetiredClosesNoCycleAfterItsLastAct) {
  ToldActs run;
  run.Repeat(100, "A");
  run.Repeat(20, "B");
  EXPECT_EQ(run.SlotThatClosesAt(99), 0u);
  EXPECT_EQ(run.SlotThatClosesAt(100), 1u);
  EXPECT_EQ(run.SlotThatClosesAt(119), 1u);
}

TEST(StepCycles, ANewOptimizerInANewCellBeginsATrainingAtOnce) {
  ToldActs run;
  run.ActInNewCell('A');
  run.Repeat(19, "A");
  run.ActInNewCell('B');
  EXPECT_EQ(run.SlotThatClosesAt(19), 0u);
  EXPECT_EQ(run.SlotThatClosesAt(20), 1u);
  EXPECT_EQ(CyclesClosed(run.cycles()), 21u);
  ASSERT_EQ(run.cycles().spans_size(), 1);
  run.ActInNewCell('C');
  EXPECT_EQ(run.cycles().spans_size(), 2);
  EXPECT_EQ(CyclesClosed(run.cycles()), 22u);
}

TEST(StepCycles, AKnownOptimizerInANewCellGoesOn) {
  ToldActs run;
  run.ActInNewCell('A');
  run.Repeat(4, "AB");
  run.ActInNewCell('A');
  run.Repeat(4, "BA");
  EXPECT_EQ(run.cycles().spans_size(), 0);
}

TEST(StepCycles, StepsThatNobodyCheckedOrSawAreCountedInTheirSpan) {
  ToldActs run;
  run.ActInNewCell('A');
  run.ActIdle('A');
  run.Unread("AA");
  run.Acts("A");
  run.ActInNewCell('B', /*idle=*/true);
  run.Acts("B");
  ASSERT_EQ(run.cycles().spans_size(), 1);
  EXPECT_EQ(run.cycles().spans(0).unwatched(), 3u);
  EXPECT_EQ(SpansOf(run.cycles()).back().unwatched(), 1u);
}

TEST(StepCycles, SilenceWithinTheHabitIsNoRetirement) {
  ToldActs run;
  // The generator is silent for as long as the critic takes, and once for twice that.
  run.Repeat(10, "AAAAAB");
  run.Repeat(2, "AAAAA");
  run.Acts("B");
  run.Repeat(10, "AAAAAB");
  EXPECT_EQ(run.cycles().spans_size(), 0);
  EXPECT_EQ(run.SlotThatClosesAt(3), 1u);
  EXPECT_EQ(run.SlotThatClosesAt(run.ranges()), 1u);
}

TEST(StepCycles, RareOptimizerKeepsClosingTheCycle) {
  ToldActs run;
  run.Repeat(30, "AAAAAAAAAAAAAAAAAAAAB");
  EXPECT_EQ(run.cycles().spans_size(), 0);
  EXPECT_EQ(run.SlotThatClosesAt(run.ranges()), 1u);
}

TEST(StepCycles, SideOptimizerIsPassedOverInItsTime) {
  ToldActs run;
  run.Acts("B");
  run.Repeat(200, "A");
  run.Acts("B");
  EXPECT_EQ(run.SlotThatClosesAt(150), 0u);
}

TEST(StepCycles, OneThatAlternatesInPhasesIsNotRetiredAgain) {
  ToldActs run;
  run.Repeat(20, "AAAAAAAAAABBBBBBBBBB");
  EXPECT_LE(run.cycles().spans_size(), 3);
}

TEST(StepCycles, OneThatIsThereAllTheTimeClosesTheCycleOfThoseThatComeAndGo) {
  ToldActs run;
  // An outer optimizer after five steps of an inner one, which is new each time.
  for (uint32_t episode = 0; episode < 50; ++episode) {
    const size_t slot = 1 + episode % 3;
    run.GiveAway(slot);
    for (int i = 0; i < 5; ++i) run.Act(episode + 1, slot);
    run.Act(0, 0);
  }
  for (const uint32_t at : {50u, 150u, 299u}) EXPECT_EQ(run.SlotThatClosesAt(at), 0u) << at;
  // Those of the first inner one came before anything else was known.
  EXPECT_EQ(CyclesClosed(run.cycles()), 50u + 5u);
}

TEST(StepCycles, CountThatFallsIsAnotherOptimizer) {
  ToldActs run;
  run.Repeat(12, "A");
  run.GiveAway(0);
  for (int i = 0; i < 5; ++i) run.Act(7, 0);
  ASSERT_EQ(run.cycles().spans_size(), 1);
  EXPECT_EQ(SpansOf(run.cycles()).back().from(), 12u);
  EXPECT_TRUE(SpansOf(run.cycles()).back().reused());
}

TEST(StepCycles, SameCountOfAnotherOptimizerIsAnotherOptimizer) {
  ToldActs run;
  run.Acts("A");
  run.Repeat(30, "B");
  run.GiveAway(0);
  run.Act(9, 0);
  run.Act(9, 0);
  EXPECT_EQ(run.cycles().slots(0).first_count(), 2u);
}

TEST(StepCycles, CyclesOfAllTimesAddUp) {
  ToldActs run;
  run.Repeat(10, "A");
  run.Repeat(20, "BBBBBC");
  run.Repeat(30, "D");
  EXPECT_EQ(CyclesClosed(run.cycles()), 60u);
}

TEST(StepCycles, StepsThatNobodyReadAreCounted) {
  ToldActs run;
  for (int i = 0; i < 60; ++i) run.Unread("AB");
  for (int i = 0; i < 60; ++i) run.Acts("B");
  EXPECT_EQ(run.SlotThatClosesAt(180), 1u);
  EXPECT_EQ(run.SlotThatClosesAt(60), 0u);  // the smaller count when they were seen
}

TEST(StepCycles, OlderClocksChangeNothing) {
  ToldActs run;
  run.Repeat(9, "A");
  StepCycles again = run.cycles();
  Clocks older;
  older.add_optimizer_steps(4);
  older.set_optimizer_ranges(4);
  FoldStep(older, 0, again);
  EXPECT_EQ(again.SerializeAsString(), run.cycles().SerializeAsString());
}

TEST(StepCycles, TheFirstAndTheNewestSpansAreKeptAndTheOthersUnknown) {
  ToldActs run;
  for (uint32_t model = 0; model < 1'000; ++model) {
    const size_t slot = model % kSlots;
    run.GiveAway(slot);
    for (int i = 0; i < 10; ++i) run.Act(model, slot);
  }
  EXPECT_LE(run.cycles().spans_size(), kSpansMax);
  EXPECT_EQ(run.SlotThatClosesAt(15), 1u);
  EXPECT_EQ(run.SlotThatClosesAt(9'985), 998u % kSlots);
  EXPECT_EQ(run.SlotThatClosesAt(5'000), kSpanUnknown);
  EXPECT_EQ(CyclesClosed(run.cycles()), 10'000u);
  EXPECT_LT(run.cycles().ByteSizeLong(), 12'000u);
}

TEST(StepCycles, ShortTrainingAfterALongOneIsOneOfItsOwnBeforeTheFirstHasRetired) {
  ToldActs run;
  run.Repeat(30, "A");
  run.Repeat(2, "B");
  EXPECT_EQ(run.SlotThatClosesAt(2), 0u);
  EXPECT_EQ(run.SlotThatClosesAt(29), 0u);
  EXPECT_EQ(run.SlotThatClosesAt(30), 1u);
  EXPECT_EQ(CyclesClosed(run.cycles()), 32u);
  EXPECT_FALSE(run.SpanAt(2).ambiguous());
}

TEST(StepCycles, TrainingsOfThreeStepsFollowOneAnother) {
  ToldActs run;
  run.Acts("AAABBBCCCDDD");
  for (uint32_t at = 0; at < 12; ++at) EXPECT_EQ(run.SlotThatClosesAt(at), at / 3) << at;
  EXPECT_EQ(CyclesClosed(run.cycles()), 12u);
}

TEST(StepCycles, TheFirstOfTwoThatTakeTurnsIsNotTakenForATraining) {
  ToldActs run;
  run.Repeat(2, "AAAAAB");
  EXPECT_EQ(SpansOf(run.cycles()).size(), 1u);
  EXPECT_EQ(run.SlotThatClosesAt(3), 1u);
  EXPECT_FALSE(run.SpanAt(3).ambiguous());
  EXPECT_EQ(CyclesClosed(run.cycles()), 2u);
}

TEST(StepCycles, TurnsOfSeveralUpdatesEachAreAmbiguous) {
  ToldActs run;
  run.Repeat(2, "AABBCC");
  EXPECT_TRUE(run.SpanAt(9).ambiguous());
  ToldActs critic;
  critic.Repeat(60, "A");
  critic.Repeat(5, "BBBBBA");
  EXPECT_FALSE(critic.SpanAt(80).ambiguous());
}

TEST(StepCycles, TrainingAfterTwoThatTookTurnsIsOneOfItsOwn) {
  ToldActs run;
  run.Repeat(4, "AAAAAB");
  run.Repeat(3, "C");
  EXPECT_EQ(run.SlotThatClosesAt(20), 1u);
  EXPECT_EQ(run.SlotThatClosesAt(24), 2u);
  EXPECT_EQ(CyclesClosed(run.cycles()), 7u);
}

TEST(StepCycles, OptimizersThatActedOnceEachAreOfOneStep) {
  ToldActs run;
  run.Acts("ABCD");
  EXPECT_EQ(SpansOf(run.cycles()).size(), 1u);
  EXPECT_EQ(CyclesClosed(run.cycles()), 1u);
}

TEST(StepCycles, WhatASingleActLeavesOpenIsAmbiguous) {
  ToldActs run;
  run.Acts("AAAAAB");  // Two trainings, or a first cycle.
  EXPECT_TRUE(run.SpanAt(2).ambiguous());
  run.Acts("AAA");  // They take turns, or B was one step beside.
  EXPECT_TRUE(run.SpanAt(2).ambiguous());
  run.Acts("AAB");
  EXPECT_FALSE(run.SpanAt(2).ambiguous());
}

TEST(StepCycles, OneThatJoinsLateGoesOnCounting) {
  ToldActs run;
  run.Repeat(20, "A");
  run.Repeat(20, "AB");
  EXPECT_EQ(run.SlotThatClosesAt(19), 0u);
  EXPECT_EQ(run.SlotThatClosesAt(20), 1u);
  EXPECT_EQ(run.SpanAt(20).steps_before(), 20u);
  EXPECT_EQ(CyclesClosed(run.cycles()), 40u);
  EXPECT_FALSE(run.SpanAt(19).ambiguous());
  // An adversary that was trained alone before would begin anew.
  EXPECT_TRUE(run.SpanAt(20).ambiguous());
}

TEST(StepCycles, LongFirstCycleIsNoTrainingBefore) {
  ToldActs run;
  run.Repeat(7, "A");
  run.Repeat(10, "BAAAAA");
  EXPECT_EQ(SpansOf(run.cycles()).size(), 1u);
  EXPECT_EQ(run.SlotThatClosesAt(3), 1u);
}

TEST(StepCycles, TheRateOfThoseWhoTakeTurnsCountsAndNotWhatOneDidBefore) {
  ToldActs run;
  run.Repeat(60, "A");
  run.Repeat(5, "BBBBBA");  // B has acted less, and is the busier one.
  EXPECT_EQ(run.SlotThatClosesAt(30), 0u);
  EXPECT_EQ(run.SlotThatClosesAt(80), 0u);
}

TEST(StepCycles, TrainingWithinATrainingClosesNoCycle) {
  ToldActs run;
  run.Repeat(20, "A");
  run.Repeat(5, "B");
  run.Repeat(6, "A");
  EXPECT_EQ(run.SlotThatClosesAt(10), 0u);
  EXPECT_EQ(run.SlotThatClosesAt(30), 0u);
  EXPECT_TRUE(run.SpanAt(10).ambiguous());
  run.Repeat(20, "A");
  EXPECT_EQ(run.SlotThatClosesAt(10), 0u);
  EXPECT_EQ(run.SlotThatClosesAt(45), 0u);
}

TEST(StepCycles, OrderThatNobodySawIsAmbiguous) {
  ToldActs run;
  run.Unread("AAAAAAAAAAAABBBBBB");
  run.Acts("B");
  EXPECT_TRUE(run.SpanAt(3).ambiguous());
  ToldActs turns;
  for (int i = 0; i < 6; ++i) turns.Unread("AAB");
  turns.Repeat(3, "AAB");
  EXPECT_FALSE(turns.SpanAt(3).ambiguous());
}

TEST(StepCycles, ShortTrainingIsFoundWhereTheFirstWentUnseen) {
  ToldActs run;
  run.Unread("AAAAAAAAAAA");
  run.Acts("ABBB");
  EXPECT_EQ(run.SlotThatClosesAt(3), 0u);
  EXPECT_EQ(run.SlotThatClosesAt(12), 1u);
  EXPECT_FALSE(run.SpanAt(3).ambiguous());
}

}  // namespace
}  // namespace nanwatch
