// SPDX-License-Identifier: Apache-2.0
// Numbers of a record, asked for what they mean on the wire.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/wire/record.h"
#include "proto/wire/segment.h"
#include "verdict.pb.h"

namespace nanwatch {

[[nodiscard]] inline bool Is(const RecordSource& source, wire::SourceKind kind) {
  return source.kind() == static_cast<uint32_t>(kind);
}

[[nodiscard]] inline bool Is(uint32_t target, wire::Target expected) {
  return target == static_cast<uint32_t>(expected);
}

// Null: no site is known, and it is in none.
[[nodiscard]] inline bool IsIn(const Site* site, wire::Phase phase) {
  return site != nullptr && site->phase() == static_cast<uint32_t>(phase);
}

// Of a Site or a Finding. The outermost module has a type and no name; a module whose type is not
// known (a full table of names) has a name and no type.
template <typename Place>
[[nodiscard]] bool IsOutsideModules(const Place& place) {
  return place.layer().empty() && place.layer_type().empty();
}

[[nodiscard]] inline bool Has(uint32_t flags, uint32_t flag) { return (flags & flag) != 0; }

[[nodiscard]] inline uint64_t BadIn(const RecordTensor& tensor) {
  return tensor.nan() + tensor.pos_inf() + tensor.neg_inf();
}

// Null: it was not kept.
[[nodiscard]] inline bool WroteParameter(const Record* record) {
  return record != nullptr && record->has_value() &&
         Has(record->value().flags(), wire::ValueRecord::kWroteParameter);
}

// Whether the process is at this level, or made steps at it.
[[nodiscard]] inline bool RanAt(const RunState& state, wire::Level level) {
  const auto place = static_cast<int>(level);
  return state.level() == static_cast<uint32_t>(level) ||
         (state.steps_watched_size() > place && state.steps_watched(place) > 0);
}

// Updates of parameters, by all optimizers and by hand.
[[nodiscard]] inline uint64_t UpdatesIn(const Clocks& clocks) {
  return uint64_t{clocks.optimizer_ranges()} + clocks.plain_updates();
}

// So many updates are made in an iteration in which each optimizer makes one.
[[nodiscard]] inline uint64_t RoundOf(const Clocks& clocks) {
  return std::max(1u, clocks.optimizer_count());
}

}  // namespace nanwatch
