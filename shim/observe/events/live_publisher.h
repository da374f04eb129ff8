// SPDX-License-Identifier: Apache-2.0
// Counters and clocks of this process, published in its segment. Cheap; called at steps and every
// few thousand ops. Does nothing before there is a segment. Any thread.
#pragma once

#include "proto/wire/live_block.h"

namespace nanwatch {

class LivePublisher {
 public:
  virtual void Publish(wire::LiveState state) noexcept = 0;

 protected:
  ~LivePublisher() = default;
};

}  // namespace nanwatch
