// SPDX-License-Identifier: Apache-2.0
// Up to how many bytes an op's result is read in full (level sampled). Set by level/; every op reads
// it, so it lies beside the table of ops (op/op_path.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace nanwatch {

struct SampleLimit {
  static constexpr uint64_t kNoLimit = UINT64_MAX;

  std::atomic<uint64_t> bytes{kNoLimit};
};

}  // namespace nanwatch
