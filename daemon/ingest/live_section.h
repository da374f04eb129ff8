// SPDX-License-Identifier: Apache-2.0
// What the job is doing now, as its live block says.
#pragma once

#include "daemon/ingest/segment_file.h"
#include "facts.pb.h"

namespace nanwatch {

void ReadLive(const SegmentFile& file, RunState& state);

}  // namespace nanwatch
