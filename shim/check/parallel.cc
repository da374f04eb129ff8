// SPDX-License-Identifier: Apache-2.0
#include "shim/check/parallel.h"

namespace nanwatch {
namespace {

// Written before any other thread can read.
constinit ParallelFor g_parallel_for = nullptr;

}  // namespace

void SetParallelFor(ParallelFor parallel_for) noexcept { g_parallel_for = parallel_for; }

ParallelFor ChosenParallelFor() noexcept { return g_parallel_for; }

}  // namespace nanwatch
