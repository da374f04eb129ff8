// SPDX-License-Identifier: Apache-2.0
// What follows from a step for how the next one is watched: the level, and blocks of steps whose
// checks are off so that their cost can be measured.
#pragma once

#include "shim/observe/events/fact_sink.h"

namespace nanwatch {

class LevelControl;
class LivePublisher;
class Measuring;
class Poison;
class Sampling;

class StepDecisions final : public StepSink {
 public:
  // All outlive it.
  StepDecisions(LevelControl& level, Measuring& measuring, Sampling& sampling, const Poison& poison,
                LivePublisher& live) noexcept
      : level_(level), measuring_(measuring), sampling_(sampling), poison_(poison), live_(live) {}

  void OnBoundary(ThreadState* thread) noexcept override;
  void OnBadRead(ThreadState* thread) noexcept override;
  void OnStep(ThreadState* thread, const StepEnded& step) noexcept override;
  [[nodiscard]] bool ReadsAfterStep() const noexcept override;
  [[nodiscard]] bool IsUnread() const noexcept override;
  [[nodiscard]] bool TakeCutShort() noexcept override;
  void RecordStepEnded() noexcept override;
  void ReadAfter(ThreadState* thread) noexcept override;

 private:
  LevelControl& level_;
  Measuring& measuring_;
  Sampling& sampling_;
  const Poison& poison_;
  LivePublisher& live_;
};

}  // namespace nanwatch
