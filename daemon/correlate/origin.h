// SPDX-License-Identifier: Apache-2.0
// Where a value came from, as far as the records say: the candidate for an incident's origin.
//
// Several candidates may stand behind one value. The stronger wins, among equals one that no rule
// of the user's excuses, then the earlier:
//   made          something went wrong here: finite inputs gave a bad output, masks gave a NaN, or
//                 bad values came in from a batch, a parameter, a buffer, another rank
//   asked_for     a mask: a constant, or -Inf that came in or was made by habit (log of a triangle)
//   uninitialised memory that nobody is known to have written; legal until it matters
//   unseen        the chain breaks off: an input was not looked at, or its record was lost
#pragma once

#include <cstdint>
#include <string>

#include "proto/wire/record.h"
#include "verdict.pb.h"

namespace nanwatch {

struct Origin {
  enum class Strength : uint8_t { kMade, kAskedFor, kUninitialised, kUnseen };

  Strength strength = Strength::kUnseen;
  wire::FindingClass finding_class = wire::FindingClass::kUnknown;
  uint64_t ticket = 0;  // orders origins within a run
  int node = -1;        // the node it was found at; -1: none (nothing is known but that it is bad)
  const Site* site = nullptr;
  const Record* record = nullptr;  // null: the value's own record was not kept
  const Clocks* clocks = nullptr;
  const RecordSource* source = nullptr;  // what came in, for external and received
  uint32_t target = 0;                   // wire::Target of what came in
  uint32_t kinds = 0;                    // wire::kHasNan...
  // Of a parameter or buffer that was bad when it was read: a number, the smaller the earlier it
  // was first so. Of several that one op has read, the smallest counts. -1 for all else.
  int first_read = -1;
  bool exact = true;
  // What makes it inexact: ValueRecord::kInexact, kUnseenInputs, ..., or this, which no record has:
  // something else was bad, too, and was read or put together with it.
  static constexpr uint32_t kUnseenBeside = 1u << 20;
  uint32_t unseen = 0;
  const std::string* expected_by = nullptr;  // the user's rule that excuses it

  [[nodiscard]] bool IsMask() const { return strength == Strength::kAskedFor; }
  [[nodiscard]] bool IsReceived() const { return finding_class == wire::FindingClass::kReceived; }
  [[nodiscard]] bool IsExternal() const { return finding_class == wire::FindingClass::kExternal; }
  // It came in, and nobody knows as what: as far as that goes, a batch.
  [[nodiscard]] bool CameInNameless() const {
    return IsExternal() && (target == static_cast<uint32_t>(wire::Target::kNone) ||
                            target == static_cast<uint32_t>(wire::Target::kInputData));
  }
};

// Whether `a` is the better explanation of a value that both lead to.
[[nodiscard]] inline bool Explains(const Origin& a, const Origin& b) {
  if (a.strength != b.strength) return a.strength < b.strength;
  const bool a_excused = a.expected_by != nullptr;
  const bool b_excused = b.expected_by != nullptr;
  if (a_excused != b_excused) return b_excused;
  if (a.ticket != b.ticket) return a.ticket < b.ticket;
  return a.first_read >= 0 && b.first_read >= 0 && a.first_read < b.first_read;
}

}  // namespace nanwatch
