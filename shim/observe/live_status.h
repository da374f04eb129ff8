// SPDX-License-Identifier: Apache-2.0
// How the observer is doing, published in the segment for the daemon (proto/wire/live_block.h).
#pragma once

#include "shim/observe/events/live_publisher.h"

namespace nanwatch {

class GpuEventQueue;
class LevelControl;
class Measuring;
class ProcessSegment;
class StepScope;

class LiveStatus final : public LivePublisher {
 public:
  // All outlive it.
  LiveStatus(const ProcessSegment& segment, StepScope& steps, const LevelControl& level,
             Measuring& measuring, const GpuEventQueue& gpu) noexcept
      : segment_(segment), steps_(steps), level_(level), measuring_(measuring), gpu_(gpu) {}

  void Publish(wire::LiveState state) noexcept override;

 private:
  const ProcessSegment& segment_;
  StepScope& steps_;
  const LevelControl& level_;
  Measuring& measuring_;
  const GpuEventQueue& gpu_;
};

}  // namespace nanwatch
