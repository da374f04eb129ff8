// SPDX-License-Identifier: Apache-2.0
// The control word: how a tool changes what a live process checks.
//
//   tool:  deadline_ns, then request by compare-and-swap, one generation higher
//   job:   between two ops (at optimizer ranges and outermost module calls) one load of `request`;
//          if it is another than the one in force, it is applied and then acknowledged in the live
//          block's control_applied. Past the deadline the job goes back to the level that it was
//          started with, by itself, also when the tool has gone.
//
// Nobody waits for anybody: a job that runs neither ops nor steps (a hung collective) acknowledges
// nothing, and the tool says so. Two tools at once: the later generation holds, with its deadline,
// because one that is overtaken begins again with its own; until then the earlier request may have
// the later one's deadline.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/wire/segment.h"

namespace nanwatch::wire {

struct ControlRequest {
  enum Flag : uint8_t {
    kStacks = 1,  // a place's source is the user's whole stack (minor 3; before, it goes unheeded)
  };
  uint32_t generation = 0;  // 0: nothing was ever asked for
  Level level = Level::kIdle;
  uint8_t flags = 0;

  // Of a foreign process: level and flags may be anything.
  static constexpr ControlRequest From(uint64_t word) noexcept {
    return {static_cast<uint32_t>(word >> kGenerationShift),
            static_cast<Level>(static_cast<uint8_t>(word >> kLevelShift)),
            static_cast<uint8_t>(word)};
  }
  [[nodiscard]] constexpr uint64_t Word() const noexcept {
    return uint64_t{generation} << kGenerationShift |
           uint64_t{static_cast<uint8_t>(level)} << kLevelShift | flags;
  }

  // Of the fields in the word; the flags are its lowest byte, two bytes are unused.
  static constexpr int kLevelShift = 8;
  static constexpr int kGenerationShift = 32;
};
static_assert(ControlRequest{0x12345678, Level::kAuto, 1}.Word() ==
              (0x1234567800000001u | uint64_t{static_cast<uint8_t>(Level::kAuto)} << 8));
static_assert(sizeof(Level) == 1);

constexpr bool IsLevel(Level level) noexcept { return level <= Level::kAuto; }

// The tool's half: any process that may write the segment. Returns the word to be acknowledged.
// `deadline_ns` is CLOCK_MONOTONIC, 0 for ever.
inline uint64_t RequestLevel(ControlBlock& control, Level level, uint64_t deadline_ns,
                             uint8_t flags = 0) noexcept {
  uint64_t before = control.request.load(std::memory_order_relaxed);
  for (;;) {
    uint32_t generation = ControlRequest::From(before).generation + 1;
    if (generation == 0) generation = 1;
    const uint64_t word = ControlRequest{generation, level, flags}.Word();
    control.deadline_ns.store(deadline_ns, std::memory_order_relaxed);
    if (control.request.compare_exchange_weak(before, word, std::memory_order_release,
                                              std::memory_order_relaxed)) {
      return word;
    }
  }
}

}  // namespace nanwatch::wire
