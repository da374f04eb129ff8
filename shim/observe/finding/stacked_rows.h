// SPDX-License-Identifier: Apache-2.0
// Which rows of a batch are bad, where the batch was stacked of samples.
#pragma once

#include "shim/observe/python/calls/loader_fetch.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

// The rows of a tensor that others were stacked to; none: it was made otherwise. `output` outlives
// the answer.
[[nodiscard]] LoaderFetch::Rows StackedRowsOf(const Frame& frame, const BadOutput& output) noexcept;

}  // namespace nanwatch
