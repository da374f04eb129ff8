// SPDX-License-Identifier: Apache-2.0
// The kernels of an origin's op, where the job was asked for them (`nanwatch run --kernels`).
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// A kernel's name as its source has it; if that cannot be computed within bounds, its qualified
// name and "<...>" for the rest, or the mangled name as it is. `mangled` may be anything at all,
// and cut.
[[nodiscard]] std::string KernelName(const std::string& mangled);

void AddKernels(const KernelsFact& kernels, Finding& origin);

}  // namespace nanwatch
