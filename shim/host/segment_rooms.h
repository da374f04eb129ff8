// SPDX-License-Identifier: Apache-2.0
// The parts of a segment's sections that grow, and by how much.
#pragma once

#include <cstdint>

#include "shim/host/segment_layout.h"

namespace nanwatch {

enum class Room : uint8_t { kRing, kSteps, kTelemetry, kTrails, kStats, kSites, kNames, kNameText };
inline constexpr int kRooms = 8;
inline constexpr uint64_t kPage = 4096;  // of x86-64; sizes are multiples of it

// In bytes. `first` has pages from the beginning; then they are made `step` by step, or twice as
// many each time.
struct RoomPlan {
  uint64_t offset;
  uint64_t size;
  uint64_t first;
  uint64_t step;
  bool doubles = false;
};

// What the first 64 findings need has pages from the beginning: they are never lost.
[[nodiscard]] RoomPlan PlanOf(Room room, const SegmentMap& map) noexcept;

}  // namespace nanwatch
