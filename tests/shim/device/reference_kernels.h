// SPDX-License-Identifier: Apache-2.0
// The check kernels in their simplest form, for the fake driver: dense float32 only, one thread,
// and the result protocol of check_launch.h to the letter. The real source run by the CPU
// (tests/fakes/cuda/check_kernels.h) passes the same tests, in 7 minutes instead of 5 seconds.
#pragma once

#include <cstdint>

namespace nanwatch::device {

// Registers nanwatch_check_few, _many and _list, nanwatch_sum_list, nanwatch_measure_list,
// nanwatch_compare_list, nanwatch_check_batch and nanwatch_add_step with the fake driver.
void RegisterReferenceKernels();

// Launches that broke the contract: scratch that was not zero, a slot that was not cleared, ...
// Null, or the first of them in words.
const char* BrokenContract();

// Blocks of the last launch that looked at something; -1: none since RegisterReferenceKernels.
int64_t LastGrid();
// Launches of each kernel that looked at something.
uint64_t FewLaunches();
uint64_t ManyLaunches();
uint64_t ListLaunches();
uint64_t SumLaunches();
uint64_t MeasureLaunches();
uint64_t BatchLaunches();
// Of the last batch.
uint32_t LastPhase();
uint32_t LastFlags();

}  // namespace nanwatch::device
