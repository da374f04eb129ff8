// SPDX-License-Identifier: Apache-2.0
// A bad value of a run, as a node of the graph of where values came from, and why it is there.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "verdict.pb.h"

namespace nanwatch {

// Why a value has the origin that it has; reasons.h puts it into words.
enum class Because : uint8_t {
  kUnseen,             // the chain breaks off here
  kMadeOfFinite,       // its inputs were checked and finite
  kMadeAssumedFinite,  // its inputs were not checked, and nothing bad was alive
  kHabit,              // -Inf alone, as the same site made in an earlier step
  kConstant,           // asked for
  kCameIn,             // from outside the ops, or by a collective
  kFromSource,         // a bad input has that origin
  kNanOfMask,          // only masks came in, and a NaN went out
  kInfToNanHere,       // Inf became NaN, and what came in is not recorded
  kPoisoned,           // inputs not checked, and a parameter was bad by then
  kUnderBadRoot,       // its backward pass began at a bad loss
  kTwin,               // not recorded itself: like the last value of its site
};

struct ValueNode {
  uint64_t ticket = 0;
  const Site* site = nullptr;      // null: not even the site is known
  const Record* record = nullptr;  // null: suppressed or lost
  const Clocks* clocks = nullptr;
  int origin = -1;  // index into Lineage::origins()
  int via =
      -1;  // the source that leads to the origin; -1: this node is it, or the chain breaks off
  int with_inf = -1;  // of another source the origin of Inf in it, where `origin` made NaN alone
  uint32_t kinds = 0;
  Because because = Because::kUnseen;

  [[nodiscard]] wire::FindingClass Class() const {
    return site == nullptr ? wire::FindingClass::kUnknown
                           : static_cast<wire::FindingClass>(site->finding_class());
  }
};

}  // namespace nanwatch
