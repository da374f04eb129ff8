// SPDX-License-Identifier: Apache-2.0
// What a bad value was written to, if that is more than an op's result: a parameter, a buffer.
#pragma once

#include <cstdint>

#include "shim/emit/emitter.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class PassLeaves;
struct StepMarks;

// An update by hand: after a backward pass a leaf that requires a gradient is written in place
// without grad mode, or through its `.data`.
[[nodiscard]] bool IsUpdateOfLeaf(const Location& place, const BadOutput& output,
                                  const StepMarks& marks, PassLeaves& leaves) noexcept;

[[nodiscard]] Written WhatWasWritten(const PythonNames& names, const Frame& frame,
                                     const Location& place, Emitter& emitter,
                                     const BadOutput& output, const StepMarks& marks,
                                     PassLeaves& leaves) noexcept;

}  // namespace nanwatch
