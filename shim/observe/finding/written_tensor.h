// SPDX-License-Identifier: Apache-2.0
// What a bad value was written to, if that is more than an op's result: a parameter, a buffer; and
// where it lies from now on.
#pragma once

#include <cstdint>

#include "shim/observe/observer.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

struct Written {
  wire::Target target = wire::Target::kNone;
  uint32_t flags = 0;  // ValueRecord::Flag
  uint32_t name = 0;   // its id; 0: none is known
  const NamedTensor* named = nullptr;
};

[[nodiscard]] Written WhatWasWritten(Observer& observer, const Frame& frame, const Location& place,
                                     Emitter& emitter, const BadOutput& output) noexcept;

// Remembers where the value lies, so that ops which read it are told from those that make their
// own.
void Remember(Observer& observer, const BadOutput* outputs, int count, ValueRef value,
              uint32_t site, const Written& written, bool in_optimizer,
              bool count_elements) noexcept;

}  // namespace nanwatch
