// SPDX-License-Identifier: Apache-2.0
// Numbers of a record, asked for what they mean on the wire.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "verdict.pb.h"

namespace nanwatch {

[[nodiscard]] inline bool Is(const RecordSource& source, wire::SourceKind kind) {
  return source.kind() == static_cast<uint32_t>(kind);
}

[[nodiscard]] inline bool Is(uint32_t target, wire::Target expected) {
  return target == static_cast<uint32_t>(expected);
}

[[nodiscard]] inline bool Has(uint32_t flags, uint32_t flag) { return (flags & flag) != 0; }

}  // namespace nanwatch
