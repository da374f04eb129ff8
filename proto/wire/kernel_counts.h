// SPDX-License-Identifier: Apache-2.0
// What stands behind a KernelsRecord (record.h) within the same record, which is so much longer. A
// writer that does not count ends it before, and a reader that does not know of it passes over it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch::wire {

// What CUPTI has handed over so far, of all ops. Where no kernel is named, it says why.
struct KernelCounts {
  uint64_t buffers;
  uint64_t kernels;            // of the job, outside CUDA graphs
  uint64_t kernels_in_graphs;  // nobody says which op of a graph launched one
  uint64_t launches;           // by ops, those of our own kernels among them
  uint64_t matched;            // of the newest 1,024 kernels, those whose launch by an op is known
  uint64_t yielded;            // 1: a profiler took CUPTI over, and nothing came after
};
static_assert(sizeof(KernelCounts) == 48);

struct CountedKernelsRecord {
  KernelsRecord record;
  KernelCounts counts;
};
static_assert(offsetof(CountedKernelsRecord, counts) == sizeof(KernelsRecord));

}  // namespace nanwatch::wire
