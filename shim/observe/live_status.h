// SPDX-License-Identifier: Apache-2.0
// How the observer is doing, published in the segment for the daemon (proto/wire/live_block.h).
#pragma once

#include "shim/observe/events/live_publisher.h"

namespace nanwatch {

class GpuEventQueue;
class LevelControl;
class Measuring;
class ProcessSegment;
class StepLosses;
class StepProgress;

class LiveStatus final : public LivePublisher {
 public:
  // All outlive it.
  LiveStatus(const ProcessSegment& segment, StepProgress& steps, const StepLosses& losses,
             const LevelControl& level, Measuring& measuring, const GpuEventQueue& gpu) noexcept
      : segment_(segment),
        steps_(steps),
        losses_(losses),
        level_(level),
        measuring_(measuring),
        gpu_(gpu) {}

  void Publish(wire::LiveState state) noexcept override;

 private:
  const ProcessSegment& segment_;
  StepProgress& steps_;
  const StepLosses& losses_;
  const LevelControl& level_;
  Measuring& measuring_;
  const GpuEventQueue& gpu_;
};

}  // namespace nanwatch
