// SPDX-License-Identifier: Apache-2.0
// What one check of tensors in a GPU's memory is told and what it answers: the contract between the
// host (device_checker.h) and the kernel (check_kernel.h). Of a list of tensors: list_launch.h.
//
// One launch looks at all that one op wrote. It answers only if something there is non-finite: then
// the same launch, behind the op and ahead of whatever comes next on the stream, looks at the op's
// inputs too, which nothing can have overwritten yet. For clean tensors nothing is written outside
// the device.
//
//   host: slot, ticket, CheckLaunch as kernel parameters  --stream-->  kernel
//   kernel: outputs clean   -> nothing, but every kProgressEvery-th launch writes its ticket to
//                              *progress
//           outputs bad     -> *result filled, then result->ticket (release, system scope)
//
// Plain structs of fixed-width integers: compiled by the host's compiler, by the one that makes the
// PTX, and by the tests that run the kernel's arithmetic on the CPU.
#pragma once

#include <cstdint>

namespace nanwatch::device {

inline constexpr int kDimsMax = 8;
inline constexpr int kOutputsMax = 8;  // of one launch; an op with more is looked at by several
inline constexpr int kInputsMax = 8;
// Launches with at most this many tensors use the kernel with the short parameter list.
inline constexpr int kFewTensors = 4;
inline constexpr int kManyTensors = kOutputsMax + kInputsMax;
static_assert(kManyTensors == 16);

struct DeviceTensor {
  // Device address of the element at index 0 in every dimension. A multiple of the bytes of a part
  // of it: reading another one ends the context.
  uint64_t data;
  int64_t numel;
  uint8_t type;  // wire::ElementType
  uint8_t ndim;  // 0: the elements lie side by side in any order, `numel` of them from `data` on
  // 1: so they do where there are dimensions, too, in another order than that of their indices:
  // channels last, or transposed. The scan needs to know no more of them; a count goes by them.
  uint8_t one_run;
  uint8_t unused[5];
  int64_t sizes[kDimsMax];    // `ndim` entries
  int64_t strides[kDimsMax];  // in elements; 0 (expanded) and negative allowed
};
static_assert(sizeof(DeviceTensor) == 152);

// What is known of one tensor. Indices are row-major over its sizes (dense: places in memory).
struct TensorCounts {
  uint64_t nan, pos_inf, neg_inf;  // elements; a complex one counts once for each kind it holds
  uint64_t first_bad;              // smallest index of a non-finite element, or ~0
  double finite_min, finite_max;   // of the finite parts; +Inf and -Inf where there are none
  double finite_mean;              // of the finite parts; 0 where there are none
};
static_assert(sizeof(TensorCounts) == 56);

// Lies in memory that both sides see. Only the kernel writes it; the host clears `ticket` and the
// kinds before it gives the slot to another launch, and nothing else: an execution that finds
// another ticket than its own fills all fields, one that finds its own adds 1 to `hits`, marks its
// step in `again` and leaves the rest. Of outputs that are clean nothing is counted: no kinds, no
// elements, first_bad ~0.
struct CheckResult {
  uint64_t ticket;  // of the launch, written last; 0: no answer
  uint64_t hits;    // executions that found something: more than 1 where a graph is replayed
  uint64_t step;    // *step_word of the first of them: a replay, where the launch is in a graph
  uint8_t output_kinds[kOutputsMax];  // wire::kHasNan | ...
  uint8_t input_kinds[kInputsMax];
  // 1: this step has had its share of counting (StepWords). Of a tensor that is bad the kinds say
  // so and may leave out others, counts are 1 of each kind that was met, and first_bad is ~0; a NaN
  // or +Inf that was met ends the search, so that -Inf alone has been looked behind
  // (check_brief.h). Of a clean one it is known that it is clean, and nothing else. Small tensors
  // are counted as ever.
  uint64_t brief;
  // Bit i: found something again in step `step` + 1 + i. The last bit: in that step or a later one.
  uint64_t again;
  // ListResult::sums_ticket or MeasureResult::measures_ticket; no check of tensors writes it.
  uint64_t list_sums_ticket;
  TensorCounts outputs[kOutputsMax];
  TensorCounts inputs[kInputsMax];
};
static_assert(sizeof(CheckResult) == 960);

// In the device's own memory, zero between launches: the kernel leaves it as it found it. One for
// each stream (and one for each captured graph), since launches that run at once must not share it.
// A launch of one block does not use it.
inline constexpr int kListWords = 8;
struct LaunchScratch {
  uint32_t blocks_done;
  uint32_t bad_outputs;              // bit i: outputs[i] holds something non-finite; of a list 1
  uint32_t bad_entries[kListWords];  // of a list (list_launch.h), a bit for each entry
  // Of a list that is summed. The address of `squares` is a multiple of 8.
  double squares;
  uint32_t nonzero[kListWords];
};
static_assert(sizeof(LaunchScratch) == 80);

// In the device's own memory, one for the ops that are not in a graph, and one for each graph,
// whose steps are its replays. When all is NaN every op finds something, and one block takes long
// to count large tensors. So counting is rationed: `counted` may rise to kCountedInFullMax, and
// each step takes kCountedPerStep off. No tensor is counted that would go beyond: of those it is
// found what they hold first (CheckResult::brief). Tensors of less than a unit are always counted
// in full.
struct StepWords {
  uint64_t steps;    // in the order of the stream; outside graphs of those after something bad
  uint32_t counted;  // units of kCountUnit elements, less what the steps since have taken off
  uint32_t unused;
};
static_assert(sizeof(StepWords) == 16);
inline constexpr int kCountUnitShift = 10;               // 1,024 elements
inline constexpr uint32_t kCountedInFullMax = 1u << 15;  // 2^25 elements: 34 ms (check_kernel.h)
inline constexpr uint32_t kStepsUntilForgotten = 64;     // steps after which nothing is left of it
inline constexpr uint32_t kCountedPerStep = kCountedInFullMax / kStepsUntilForgotten;

// The parameter of nanwatch_add_step.
struct StepLaunch {
  uint64_t words;  // device address of the StepWords
  uint64_t steps;  // so many have ended since the last such launch
};

// What `counted` is after so many steps.
constexpr uint32_t CountedAfter(uint32_t counted, uint64_t steps) noexcept {
  const uint64_t off =
      (steps < kStepsUntilForgotten ? steps : kStepsUntilForgotten) * kCountedPerStep;
  return off < counted ? counted - static_cast<uint32_t>(off) : 0;
}

struct LaunchHead {
  uint64_t ticket;    // never 0
  uint64_t result;    // device address of the CheckResult
  uint64_t scratch;   // device address of the LaunchScratch
  uint64_t progress;  // device address of a word that takes the ticket when the check is done, or 0
  uint64_t
      step_word;  // device address of the StepWords, or 0: no steps, and all is counted in full
  // 0: nothing is looked at, `result` and `scratch` are 0 and there is one block; only *progress is
  // written. So the host asks a stream that has gone quiet how far it is, and warms the kernels up.
  uint32_t output_count;
  uint32_t input_count;  // inputs follow the outputs in `tensors`
  // Of a list: kKindsOnly.
  uint32_t flags;
  uint32_t unused;
};
static_assert(sizeof(LaunchHead) == 56);

// Which entries are bad is all that is asked: no figures, and of an entry that a block has found
// bad it reads no further tile. For what is known to be bad already.
inline constexpr uint32_t kKindsOnly = 1;

template <int kTensors>
struct CheckLaunch {
  LaunchHead head;
  DeviceTensor tensors[kTensors];
};
using FewLaunch = CheckLaunch<kFewTensors>;    // kernel nanwatch_check_few
using ManyLaunch = CheckLaunch<kManyTensors>;  // kernel nanwatch_check_many
// Drivers before CUDA 12.1 take 4,096 bytes of parameters (CUDA C++ Programming Guide, "Function
// parameters").
static_assert(sizeof(ManyLaunch) <= 4096);

// In one dimension, always as many: the kernel counts on it. How many blocks: GridFor,
// check_kernel.h.
inline constexpr int kThreadsPerBlock = 512;
// Two blocks of 512 threads fit every multiprocessor from sm_70 on (sm_75 takes 1,024 threads), so
// that no block waits for another; 128 KiB in flight are several times what a multiprocessor of an
// H200 needs for its part of the bandwidth (4.8 TB/s * 0.8 us / 132 = 29 KiB).
inline constexpr uint32_t kBlocksPerMultiprocessor = 2;

// Blocks for so many pieces of work, such as tiles: as many as can run at once, but for fewer
// pieces. Host code.
constexpr uint32_t BlocksFor(uint64_t pieces, uint32_t multiprocessors) noexcept {
  const uint64_t resident = uint64_t{multiprocessors} * kBlocksPerMultiprocessor;
  const uint64_t blocks = pieces < resident ? pieces : resident;
  return blocks == 0 ? 1 : static_cast<uint32_t>(blocks);
}

}  // namespace nanwatch::device
