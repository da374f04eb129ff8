// SPDX-License-Identifier: Apache-2.0
// The report of a job whose verdict is `unknown`: what was not watched, and what to do about it.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// What an `unknown` verdict means for this job, in one sentence without a full stop, and the
// remedy.
struct UnknownText {
  std::string what;
  std::string remedy;
};

// By `unknown_because`. A reason of a newer version gets a sentence that holds for any reason.
[[nodiscard]] UnknownText TextOfUnknown(const Verdict& verdict);

}  // namespace nanwatch
