// SPDX-License-Identifier: Apache-2.0
// Environment variables that tests set and nobody else: they make rare conditions common.
#pragma once

namespace nanwatch::wire {

// Bytes of the queue of GPU events, a power of two from 4,096 on. Absent or anything else: 32 MiB.
inline constexpr char kEnvGpuQueueBytes[] = "NANWATCH_TEST_GPU_QUEUE_BYTES";
// At level sampled: larger results are read in part.
inline constexpr char kEnvSampleLimit[] = "NANWATCH_TEST_SAMPLE_LIMIT";

}  // namespace nanwatch::wire
