// SPDX-License-Identifier: Apache-2.0
// The kernel that looks at what an op wrote, as functions that run on a GPU (check_kernel.cu) and
// on a CPU (tests/property/device), from one source.
//
// One launch for one op. A launch costs the host 2 to 4 us and the GPU about 2 us, more than
// reading a megabyte; so all outputs go into one, and so do the inputs, which only the same launch
// still finds as the op saw them: it stands behind the op and ahead of whatever overwrites them
// next.
//
//   every block          plan    how each output is read (one thread an output)
//                        scan    its share of the units of all outputs
//                        judge   OR into scratch->bad_outputs, add 1 to scratch->blocks_done
//   the last one to add  clean:  nothing
//                        bad:    count each bad output and each input, fill *result, publish
//                        always: scratch back to zero; *progress where the launch has one
//
// Nothing reaches the host on clean. A clean launch writes its scratch, 8 bytes in the device's own
// memory, and nothing else; one of a single block not even that. Scratch is a stream's own: two
// launches that may run at once must not share one.
//
// Shares. The units of all outputs form one list, which is cut into as many equal parts as there
// are blocks (in steps of 512 units, one for each thread): a large output beside seven small ones
// is spread over the whole GPU. GridFor makes as many blocks as can be resident, and fewer for
// little memory, where each block would only wait for one load.
//
// What a hit costs. One block counts, in the op's stream, with 1,024 elements in flight: about 10^9
// elements a second (1,024 / 0.8 us of latency; an estimate, never measured), so 0.1 s where
// outputs and inputs have 10^8. A step in which all is bad may count kCountedInFullMax units so,
// about 34 ms, and 64 steps later as much again (StepWords); a tensor that would go beyond that, be
// it the first, is read briefly (check_brief.h): up to the first NaN or +Inf, or where it is clean
// to its end, 20 times as fast for float32. A GradScaler's search for its scale makes whole
// backward passes bad, and their weights and saved activations are clean. Counts on all blocks
// would need them to wait for each other, which may never end where a collective's kernel holds the
// rest of the GPU. A graph that is replayed over the same NaN pays once: it finds its own ticket in
// *result, adds 1 to `hits`, says in `again` which replay it is, and leaves the first figures.
//
// Memory order. A block's OR comes before its addition to blocks_done, which is a release and an
// acquire at device scope: the block that counts to the end has acquired what all others released,
// by the chain of additions. Fields of *result come before the ticket, *progress after it: both
// stores are releases at system scope, and what they release is what one thread wrote. Threads of a
// block meet at barriers between the phases. The scratch is zero again before the launch ends, and
// the next one of its stream begins after that.
//
// If another stream writes to the memory meanwhile, a launch may find something and count none.
//
// Memory, a template parameter, is the machine (an address is a uint64_t on both):
//   LoadVector(address)             16 bytes at a multiple of 16
//   LoadPart<Word>(address)         one part, aligned to itself
//   OrInBlock(&word, bits)          atomic among the threads of a block
//   OrInDevice(address, bits)       atomic among blocks
//   AddInDevice(address, 1)         the value before; release and acquire among blocks
//   TakeInDevice(address)           the value, which becomes 0
//   AddDoubleInDevice(address, value), TakeDoubleInDevice(address)    the same of doubles
//   AddLongInDevice(address, value), RaiseInDevice(address, value)    of 64 bits; sum and maximum
//   StoreInDevice(address, value)   plain
//   LoadInDevice(address)           what another block may have just written, sooner or later
//   CountUpTo(ends, count, tile)    how many of `count` numbers, 32 at most, are `tile` or less;
//                                   called by all threads of a warp, with the same arguments
//   FloatOfHalf(word)               the value of a float16, NaN and infinities too
//   PublishToHost(address, value)   release at system scope
// Team runs a phase: team.Each(f) calls f(thread, tally) for every thread of the block, in any
// order, and returns when all have (a barrier); the tally is the thread's own and outlives the
// phase.
#pragma once

#include <cstdint>

#include "shim/device/check_brief.h"
#include "shim/device/check_count.h"
#include "shim/device/check_launch.h"
#include "shim/device/check_scan.h"
#include "shim/device/check_walk.h"

namespace nanwatch::device {

// A block's share is at least this many units (32 KiB of vectors): four loads of each thread.
inline constexpr uint64_t kShareUnitsMin = uint64_t{kThreadsPerBlock} * 4;
// Up to this many units one block is as fast as several, which must tell each other that they are
// done: two round trips to memory, as long as a turn of the loop.
inline constexpr uint64_t kUnitsAlone = uint64_t{kThreadsPerBlock} * kScanLoads;

inline constexpr uint32_t kMergeSlots = 16;
static_assert(kThreadsPerBlock % kMergeSlots == 0);
static_assert(kOutputsMax * kEdgeSlots <= kThreadsPerBlock);

struct Place {
  uint32_t block;
  uint32_t blocks;
};

// The tensor that a block counts.
struct CountState {
  Walk walk;
  Tally tallies[kMergeSlots];
  uint32_t brief;      // 1: what is met first is all that is asked,
  uint32_t met;        // and this was
  uint32_t any_brief;  // 1: of this tensor or one before it
};

// What the threads of a block share.
struct BlockState {
  LaunchHead head;
  DeviceTensor tensors[kManyTensors];
  Walk outputs[kOutputsMax];
  CountState count;
  uint32_t bad_outputs;
  uint32_t counts;  // 1: this block goes on to count
};

// Blocks to launch `launch` with, on a GPU of that many multiprocessors. Host code.
template <class Launch>
uint32_t GridFor(const Launch& launch, uint32_t multiprocessors) noexcept {
  uint64_t units = 0;
  for (uint32_t i = 0; i < launch.head.output_count; ++i) {
    Walk walk;
    PlanScan(launch.tensors[i], walk);
    units += walk.units;
  }
  if (units <= kUnitsAlone) return 1;
  return BlocksFor((units + kShareUnitsMin - 1) / kShareUnitsMin, multiprocessors);
}

// Units of a block's share, a multiple of the threads of a block. 32 bits of turns are 2^41 units,
// more than there is memory.
NANWATCH_BITS uint64_t ShareUnits(uint64_t units, uint32_t blocks) noexcept {
  const auto turns = static_cast<uint32_t>((units + kThreadsPerBlock - 1) / kThreadsPerBlock);
  const uint32_t share = turns / blocks + (turns % blocks != 0 ? 1 : 0);
  return uint64_t{share} * kThreadsPerBlock;
}

// Heads and tails of all outputs, one part for each thread of the first block.
template <class Memory>
NANWATCH_BITS void ScanEdges(BlockState& block, uint32_t output_count, uint32_t thread) noexcept {
  const uint32_t output = thread / kEdgeSlots, slot = thread % kEdgeSlots;
  if (output >= output_count) return;
  if (BadInEdges<Memory>(block.outputs[output], slot) != 0) {
    Memory::OrInBlock(&block.bad_outputs, 1u << output);
  }
}

template <class Memory>
NANWATCH_BITS void Scan(BlockState& block, Place place, uint32_t thread) noexcept {
  const uint32_t output_count = block.head.output_count;
  if (place.block == 0) ScanEdges<Memory>(block, output_count, thread);
  uint64_t units = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < output_count; ++i) units += block.outputs[i].units;
  const uint64_t share = ShareUnits(units, place.blocks);
  const uint64_t begin = place.block * share, end = begin + share;
  uint64_t first = 0;  // place in the list of the output's first unit
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < output_count; ++i) {
    const Walk& walk = block.outputs[i];
    Memory::ForgetBlock();
    const uint64_t last = first + walk.units;
    const uint64_t from = begin > first ? begin : first, to = end < last ? end : last;
    if (from < to && BadInShare<Memory>(walk, from - first, to - first, thread) != 0) {
      Memory::OrInBlock(&block.bad_outputs, 1u << i);
    }
    first = last;
  }
}

// Whether so many elements of memory, on top of what was counted in this step, are too much. What
// is not counted is not held against those that come later.
template <class Memory>
NANWATCH_BITS uint32_t IsDear(const LaunchHead& head, uint64_t elements) noexcept {
  const auto units = static_cast<uint32_t>(elements >> kCountUnitShift);
  if (head.step_word == 0 || units == 0) return 0;
  const uint64_t counted = head.step_word + __builtin_offsetof(StepWords, counted);
  if (uint64_t{Memory::AddInDevice(counted, units)} + units <= kCountedInFullMax) return 0;
  (void)Memory::AddInDevice(counted, 0u - units);
  return 1;
}

template <class Memory>
NANWATCH_BITS uint64_t StepOf(const LaunchHead& head) noexcept {
  return head.step_word == 0 ? 0 : Memory::template LoadPart<uint64_t>(head.step_word);
}

// An execution whose launch has answered already, in a graph.
template <class Memory, class Result>
NANWATCH_BITS void AddHit(const LaunchHead& head, Result* result) noexcept {
  const uint64_t later = StepOf<Memory>(head) - result->step;
  if (later != 0) result->again |= uint64_t{1} << (later < 64 ? later - 1 : 63);
  Memory::PublishToHost(reinterpret_cast<uint64_t>(&result->hits), result->hits + 1);
}

// What is written last, on a hit.
template <class Memory, class Result>
NANWATCH_BITS void PublishFirst(const LaunchHead& head, uint32_t brief, Result* result) noexcept {
  result->hits = 1;
  result->brief = brief;
  result->again = 0;
  result->step = StepOf<Memory>(head);
  Memory::PublishToHost(reinterpret_cast<uint64_t>(&result->ticket), head.ticket);
  if (head.progress != 0) Memory::PublishToHost(head.progress, head.ticket);
}

// Thread 0 of a block: says what the block found, and finds out whether it is the last one.
template <class Memory>
NANWATCH_BITS void Judge(BlockState& block, Place place) noexcept {
  const LaunchHead& head = block.head;
  block.counts = 0;
  if (place.blocks > 1) {
    const uint64_t bad_outputs = head.scratch + __builtin_offsetof(LaunchScratch, bad_outputs);
    const uint64_t blocks_done = head.scratch + __builtin_offsetof(LaunchScratch, blocks_done);
    if (block.bad_outputs != 0) Memory::OrInDevice(bad_outputs, block.bad_outputs);
    if (Memory::AddInDevice(blocks_done, 1) != place.blocks - 1) return;
    block.bad_outputs = Memory::TakeInDevice(bad_outputs);
    Memory::StoreInDevice(blocks_done, 0u);
  }
  if (block.bad_outputs != 0) {
    auto* const result = reinterpret_cast<CheckResult*>(head.result);
    if (result->ticket != head.ticket) {
      block.counts = 1;  // the result, then progress, come at the end
      block.count.any_brief = 0;
      return;
    }
    AddHit<Memory>(head, result);
  }
  if (head.progress != 0) Memory::PublishToHost(head.progress, head.ticket);
}

// Exact figures of the elements of state.walk. Tallies are merged in a fixed order: the mean does
// not depend on which thread was first.
template <class Memory, class Team, class Tell>
NANWATCH_BITS void CountInFull(CountState& state, Team& team, Tell tell) noexcept {
  team.Each(
      [&](uint32_t thread, Tally& tally) { tally = CountElements<Memory>(state.walk, thread); });
  NANWATCH_NO_UNROLL
  for (uint32_t turn = 0; turn < kThreadsPerBlock / kMergeSlots; ++turn) {
    team.Each([&](uint32_t thread, Tally& tally) {
      if (thread / kMergeSlots == turn) Merge(tally, state.tallies[thread % kMergeSlots]);
    });
  }
  team.Each([&](uint32_t thread, Tally&) {
    if (thread != 0) return;
    NANWATCH_NO_UNROLL
    for (uint32_t slot = 1; slot < kMergeSlots; ++slot) {
      Merge(state.tallies[slot], state.tallies[0]);
    }
    tell(CountsOf(state.tallies[0], state.walk.repeats));
  });
}

// Figures of one tensor, by all threads of a block: exact ones, or where that is too dear what is
// met first; `tell` is called with them by thread 0.
template <class Memory, class Team, class Tell>
NANWATCH_BITS void CountTensor(const LaunchHead& head, const DeviceTensor& tensor, bool is_clean,
                               CountState& state, Team& team, Tell tell) noexcept {
  team.Each([&](uint32_t thread, Tally&) {
    if (thread < kMergeSlots) state.tallies[thread] = EmptyTally();
    if (thread != 0) return;
    state.brief = state.met = 0;
    if (!TakeDims(tensor, state.walk)) return;
    PlanCountOfDims(state.walk);
    if (is_clean) state.walk.units = 0;
    state.brief = IsDear<Memory>(head, state.walk.units);
    state.any_brief |= state.brief;
    if (state.brief != 0) PlanBrief(state.walk);
  });
  if (state.brief != 0) {
    team.Each([&](uint32_t thread, Tally&) { MeetKinds<Memory>(state.walk, thread, &state.met); });
    team.Each([&](uint32_t thread, Tally&) {
      if (thread != 0) return;
      tell(CountsOfMet(state.met));
    });
    return;
  }
  CountInFull<Memory>(state, team, tell);
}

// What the last block does with a hit. Of outputs that are clean nothing is counted.
template <class Memory, class Team>
NANWATCH_BITS void CountAll(BlockState& block, Team& team) noexcept {
  const LaunchHead& head = block.head;
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < head.output_count + head.input_count; ++i) {
    Memory::ForgetBlock();
    const bool is_clean = i < head.output_count && (block.bad_outputs >> i & 1) == 0;
    CountTensor<Memory>(
        head, block.tensors[i], is_clean, block.count, team, [&head, i](const TensorCounts& found) {
          auto* const result = reinterpret_cast<CheckResult*>(head.result);
          const bool is_output = i < head.output_count;
          const uint32_t index = is_output ? i : i - head.output_count;
          (is_output ? result->output_kinds : result->input_kinds)[index] = KindsOf(found);
          (is_output ? result->outputs : result->inputs)[index] = found;
        });
  }
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0)
      PublishFirst<Memory>(head, block.count.any_brief,
                           reinterpret_cast<CheckResult*>(head.result));
  });
}

// A launch lies in the parameters of the kernel, which all threads copy to where they can share it:
// the head and the tensors that there are, for threads that read different parameters wait for each
// other.
template <class Launch>
NANWATCH_BITS void CopyLaunch(const Launch& launch, BlockState& block, uint32_t thread) noexcept {
  static_assert(sizeof(LaunchHead) % 8 == 0 && sizeof(DeviceTensor) % 8 == 0);
  static_assert(__builtin_offsetof(BlockState, tensors) == __builtin_offsetof(Launch, tensors));
  static_assert(sizeof(Launch) <= uint64_t{8} * kThreadsPerBlock);
  const uint32_t tensors = launch.head.output_count + launch.head.input_count;
  const uint64_t at = uint64_t{8} * thread;
  if (at >= sizeof(LaunchHead) + tensors * sizeof(DeviceTensor)) return;
  __builtin_memcpy(reinterpret_cast<char*>(&block) + at,
                   reinterpret_cast<const char*>(&launch) + at, 8);
}

// All that one block does once the launch is copied.
template <class Memory, class Team>
NANWATCH_BITS void CheckBlock(BlockState& block, Place place, Team& team) noexcept {
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0) block.bad_outputs = 0;
    if (thread < block.head.output_count) PlanScan(block.tensors[thread], block.outputs[thread]);
  });
  team.Each([&](uint32_t thread, Tally&) { Scan<Memory>(block, place, thread); });
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0) Judge<Memory>(block, place);
  });
  if (block.counts != 0) CountAll<Memory>(block, team);
}

}  // namespace nanwatch::device
