// SPDX-License-Identifier: Apache-2.0
// From a bad value to its record: the slow path, entered only when something is not finite.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

#include "shim/observe/finding/sources.h"
#include "shim/observe/observer.h"
#include "shim/observe/torch/torch_tensor.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch {

// An op's outputs or written arguments are bad. `frame` is the op's own, already popped.
void OnBadOutputs(Observer& observer, ThreadState* thread, Frame& frame, const BadOutput* outputs,
                  int count) noexcept;

// While armed: an op ended and everything it wrote is clean.
void OnCleanOutputs(Observer& observer, ThreadState* thread, Frame& frame) noexcept;

// While armed: an op returned memory of another's (a view), or wrote values nobody needs to look
// at.
void OnSkippedOutput(Observer& observer, ThreadState* thread, const Frame& frame,
                     const PlainTensor& tensor) noexcept;

// A non-finite scalar went to Python.
void OnScalarRead(Observer& observer, ThreadState* thread, Frame& frame, double value) noexcept;

}  // namespace nanwatch
