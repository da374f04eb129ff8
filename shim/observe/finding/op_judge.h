// SPDX-License-Identifier: Apache-2.0
// What an op's bad outputs came from, and the class that follows from it.
//
// Threads: any. Called only where something is bad.
#pragma once

#include "shim/observe/finding/finding.h"

namespace nanwatch {

class PassLeaves;
class PickedValues;
class PythonBridge;
class ReadNumbers;
class SourceFinder;
class StackedValues;
class StepClock;
struct StepMarks;
class UnreadInputs;

class OpJudge {
 public:
  // All outlive it.
  OpJudge(PythonBridge& python, SourceFinder& sources, StackedValues& stacked_values,
          PickedValues& picked_values, ReadNumbers& read_numbers, UnreadInputs& unread_inputs,
          StepClock& clock, const StepMarks& marks, PassLeaves& leaves) noexcept
      : python_(python),
        sources_(sources),
        stacked_values_(stacked_values),
        picked_values_(picked_values),
        read_numbers_(read_numbers),
        unread_inputs_(unread_inputs),
        clock_(clock),
        marks_(marks),
        leaves_(leaves) {}

  // Fills `own`, `kept` and `sources`. False: the op is judged where its compiled region returns.
  [[nodiscard]] bool FindSources(Finding& finding) noexcept;
  // Fills `evidence` and the class, and adds sources that are assumed.
  void Classify(Finding& finding) noexcept;

 private:
  void GuessNumber(Finding& finding) noexcept;
  void AssumeSources(Finding& finding) noexcept;
  void AssumeSuspects(Finding& finding) noexcept;
  [[nodiscard]] bool IsUpdateByHand(const Finding& finding) noexcept;
  [[nodiscard]] bool IsCastTooLarge(const Finding& finding) noexcept;
  [[nodiscard]] bool CameByCollective(Finding& finding) noexcept;

  PythonBridge& python_;
  SourceFinder& sources_;
  StackedValues& stacked_values_;
  PickedValues& picked_values_;
  ReadNumbers& read_numbers_;
  UnreadInputs& unread_inputs_;
  StepClock& clock_;
  const StepMarks& marks_;
  PassLeaves& leaves_;
};

}  // namespace nanwatch
