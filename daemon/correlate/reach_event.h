// SPDX-License-Identifier: Apache-2.0
// What became of a bad value: it reached something that outlives its op, or was given to the other
// ranks.
#pragma once

#include <cstdint>
#include <string>

#include "proto/wire/record.h"
#include "proto/wire/segment.h"
#include "verdict.pb.h"

namespace nanwatch {

struct ReachEvent {
  // By what we know it.
  enum class How : uint8_t {
    kRoot,
    kLeaf,
    kUpdate,
    kWrite,
    kEscape,
    kFirstReach,
    kRead,
    kDead,
    kHeld
  };

  wire::Reach reach = wire::Reach::kActivation;
  uint64_t ticket = 0;
  const Clocks* clocks = nullptr;
  int node = -1;  // -1: what got there is not known
  int origin = -1;
  std::string name = {};  // parameter, buffer or leaf; "" unknown
  How how = How::kRoot;
  uint32_t count = 0;  // leaves or parameters that were bad at that moment
  uint64_t pass = 0;
  bool deliberate = false;  // a constant was written into a parameter or buffer on purpose
  bool excused = false;     // a GradScaler took care of it (scaler_rule.h),
  bool undecided = false;   // and whether it did was not seen
  bool unapplied = false;   // a gradient or a loss that no update was made of (unapplied_rule.h),
  bool perhaps_hidden = false;  // unless one was made unseen
};

// Python has read a bad number, or compared it with another.
struct BadRead {
  int origin = -1;
  const Clocks* clocks = nullptr;  // of the moment
  // When the same place read one last: of reads that repeat only the first are recorded.
  const Clocks* last_clocks = nullptr;
  bool tested = false;  // the program asked whether it is finite, and read no number
};

// A bad value that this run gave into a collective, or wrote into memory that others see
// (wire::kSharedMemory; `sequence` is then the file).
struct Sending {
  std::string group;
  uint64_t sequence = 0;
  uint64_t time_ns = 0;
  int origin = -1;
  const Clocks* clocks = nullptr;  // of the record; of a collective only
  uint32_t kinds = 0;              // of what was given: NaN, where it was made of the origin's Inf
};

}  // namespace nanwatch
