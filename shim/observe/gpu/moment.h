// SPDX-License-Identifier: Apache-2.0
// What a queued event keeps of the moment at which its op ran.
#pragma once

#include "shim/observe/thread/location.h"

namespace nanwatch {

class KnownCalls;
class ProcessSegment;
class PythonBridge;

struct MomentParts {
  ProcessSegment& segment;
  PythonBridge& python;
  KnownCalls& calls;
};

// As it stands now on the calling thread.
Moment TakeMoment(const MomentParts& parts, ThreadState* thread) noexcept;

}  // namespace nanwatch
