// SPDX-License-Identifier: Apache-2.0
// Reading large memory in several threads: those of the job's own ops, which stand ready. This
// folder knows nothing of torch, so they are behind a function pointer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nanwatch {

// Runs `body` over parts of [begin, end) of at least `grain`, perhaps in several threads, and
// returns when all are done. Must not let an exception out.
using ParallelFor = void (*)(int64_t begin, int64_t end, int64_t grain,
                             void (*body)(void* context, int64_t begin, int64_t end),
                             void* context);

// What Look and SumOfSquares use for dense memory of kParallelBytesMin or more; nullptr (the state
// at the start): the calling thread alone. Call before a second thread could read.
void SetParallelFor(ParallelFor parallel_for) noexcept;
[[nodiscard]] ParallelFor ChosenParallelFor() noexcept;

// Waking other threads costs several microseconds; one core reads this much in some tens of them.
inline constexpr size_t kParallelBytesMin = size_t{2} << 20;
inline constexpr size_t kParallelBlockBytes = size_t{256} << 10;
inline constexpr int64_t kParallelGrainBlocks = 2;

}  // namespace nanwatch
