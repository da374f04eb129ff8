// SPDX-License-Identifier: Apache-2.0
// A record of a saved checkpoint to its message. Pure.
#pragma once

#include <cstddef>

#include "facts.pb.h"

namespace nanwatch {

// `record` has at least `bytes` bytes. False: what they say cannot be.
[[nodiscard]] bool DecodeCheckpoint(CheckpointFact& out, const unsigned char* record, size_t bytes);

}  // namespace nanwatch
