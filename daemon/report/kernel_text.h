// SPDX-License-Identifier: Apache-2.0
// The kernels of an origin's op, as a person reads them.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// "at::native::reduce_kernel 2 x, 31.5 us; ...": without types and arguments, which the document
// has.
[[nodiscard]] std::string KernelsText(const Finding& origin);

// Why no kernel is named although they were asked for: "none named: CUPTI recorded ..."; "" where
// that is not known.
[[nodiscard]] std::string NoKernelsText(const Finding& origin);

// A row of a report; "" when neither they nor the reason are known.
[[nodiscard]] std::string KernelRow(const Finding& origin, int width_columns);

}  // namespace nanwatch
