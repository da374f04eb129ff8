// SPDX-License-Identifier: Apache-2.0
// What CheckedDevice launches into CUDA graphs: each such launch has a slot for good, each graph a
// word that counts its replays.
#include <algorithm>

#include "shim/device/checked_device.h"
#include "shim/device/current_context.h"

namespace nanwatch::device {
namespace {

// Captured slots that one Poll reads: a line of memory each that the GPU may have written, so that
// thousands would cost tens of microseconds every time.
constexpr uint32_t kCapturedPolledMax = 512;

}  // namespace

Skip CheckedDevice::CaptureId(CuStream stream, uint64_t* id) noexcept {
  const auto second = shared_.driver.stream_get_capture_info;
  const auto third = shared_.driver.stream_get_capture_info_v3;
  if (second == nullptr && third == nullptr) return Skip::kCaptureUnknown;
  int32_t status = kCuCaptureStatusInvalidated;
  const Call call = {"cuStreamGetCaptureInfo",
                     second != nullptr
                         ? second(stream, &status, id, nullptr, nullptr, nullptr)
                         : third(stream, &status, id, nullptr, nullptr, nullptr, nullptr)};
  if (call.Failed()) {
    (void)Judge(call);
    return Skip::kCaptureUnknown;
  }
  ++*id;
  return status == kCuCaptureStatusActive ? Skip::kNone : Skip::kCaptureUnknown;
}

Skip CheckedDevice::CaptureAll(Parts parts, Enqueued* enqueued) noexcept {
  if (parts.measures) return Skip::kNothingToCheck;
  if (captured_used_.load(std::memory_order_relaxed) >= layout_.captured_slots) {
    return Skip::kNoCapturedSlot;
  }
  if (const Skip skip = GraphFor(parts.stream, &enqueued->graph); skip != Skip::kNone) return skip;
  parts.step_word = ReplayWord(enqueued->graph);
  parts.sums = false;
  enqueued->first_ticket = shared_.next_ticket.fetch_add(parts.Count());
  for (; enqueued->launches < parts.Count(); ++enqueued->launches) {
    const Skip skip = LaunchCaptured(parts.At(enqueued->launches, enqueued->first_ticket),
                                     &enqueued->captured_slot);
    if (skip != Skip::kNone) return skip;
  }
  return Skip::kNone;
}

Skip CheckedDevice::GraphFor(CuStream stream, uint32_t* graph) noexcept {
  uint64_t id = 0;
  if (const Skip skip = CaptureId(stream, &id); skip != Skip::kNone) return skip;
  if (*graph = GraphOf(id); *graph != 0) return Skip::kNone;
  for (uint32_t i = newest_graph_.load(std::memory_order_relaxed); i < kGraphsMax; ++i) {
    uint64_t there = 0;
    const bool is_new = graphs_[i].compare_exchange_strong(there, id);
    if (!is_new && there != id) continue;  // another thread captures another graph
    *graph = i + 1;
    newest_graph_.store(i, std::memory_order_relaxed);
    if (!is_new) return Skip::kNone;
    StepLaunch launch = {ReplayWord(*graph), 1};
    const Call call = {"cuLaunchKernel", Launch(add_step_, 1, 1, &launch, stream)};
    if (!call.Failed()) return Skip::kNone;
    // The next check begins anew: in a graph without it no replay would be reported.
    graphs_[i].store(0, std::memory_order_relaxed);
    return Judge(call);
  }
  return Skip::kNoGraphEntry;
}

// Nearly always it is the newest.
uint32_t CheckedDevice::GraphOf(uint64_t id) const noexcept {
  for (uint32_t i = newest_graph_.load(std::memory_order_relaxed) + 1; i-- > 0;) {
    if (graphs_[i].load(std::memory_order_relaxed) == id) return i + 1;
  }
  return 0;
}

Skip CheckedDevice::LaunchCaptured(const Part& part, uint32_t* slot) noexcept {
  const uint32_t index = captured_used_.fetch_add(1, std::memory_order_acq_rel);
  if (index >= layout_.captured_slots) return Skip::kNoCapturedSlot;
  // No progress word: the graph will be replayed on streams and at times of its own.
  const Call call = {"cuLaunchKernel", LaunchCheck(HeadFor(part, layout_.slots + index), part)};
  if (call.Failed()) return Judge(call);
  captured_[index].ticket.store(part.ticket, std::memory_order_release);
  *slot = index;
  return Skip::kNone;
}

uint32_t CheckedDevice::CapturedInto(CuStream stream) noexcept {
  if (!Ready()) return 0;
  const CurrentContext current(shared_.driver, context_, device_, stream);
  bool capturing = false;
  uint32_t graph = 0;
  if (SkipFor(current) != Skip::kNone || CaptureState(stream, &capturing) != Skip::kNone ||
      !capturing || GraphFor(stream, &graph) != Skip::kNone) {
    return 0;
  }
  return graph;
}

// Worked example: found in replays 5, 7 and 8 (`step` is 5, bits 1 and 2 of `again` are set). Asked
// for those after 6 up to 7 it is bit 1 alone that counts.
Found CheckedDevice::FoundIn(uint32_t captured_slot, uint64_t after, uint64_t through,
                             CheckResult* result) const noexcept {
  if (memory_gone_.load(std::memory_order_acquire)) return Found::kNothing;
  constexpr uint64_t kLastMark = 63;
  const CheckResult* found = Result(layout_.slots + captured_slot);
  const uint64_t ticket = captured_[captured_slot].ticket.load(std::memory_order_acquire);
  if (ticket == 0 || LoadAcquire(&found->ticket) != ticket || found->step > through) {
    return Found::kNothing;
  }
  if (found->step > after) {
    *result = *found;
    return Found::kFirst;
  }
  const uint64_t first = std::min(after - found->step, kLastMark);
  const uint64_t end = through - found->step;
  uint64_t marks = LoadAcquire(&found->again) >> first << first;
  if (end > first && end <= kLastMark) marks &= (uint64_t{1} << end) - 1;
  if (marks == 0) return Found::kNothing;
  *result = *found;
  return Found::kAgain;
}

void CheckedDevice::Forget(uint32_t captured_slot) noexcept {
  if (memory_gone_.load(std::memory_order_acquire)) return;
  __atomic_store_n(&Result(layout_.slots + captured_slot)->ticket, 0, __ATOMIC_RELAXED);
  captured_[captured_slot].hits_told = 0;
}

size_t CheckedDevice::PollCaptured(FinishedCallback callback, void* context) noexcept {
  const uint32_t used =
      std::min(captured_used_.load(std::memory_order_acquire), layout_.captured_slots);
  size_t told = 0;
  for (uint32_t i = 0; i < std::min(used, kCapturedPolledMax); ++i) {
    if (captured_next_ >= used) captured_next_ = 0;
    const uint32_t index = captured_next_++;
    CapturedLaunch& launch = captured_[index];
    const uint64_t ticket = launch.ticket.load(std::memory_order_acquire);
    const CheckResult* result = Result(layout_.slots + index);
    if (ticket == 0 || LoadAcquire(&result->ticket) != ticket) continue;
    const uint64_t hits = LoadAcquire(&result->hits);
    if (hits == launch.hits_told) continue;
    launch.hits_told = hits;
    Finished finished;
    finished.device = ordinal_;
    finished.outcome = Finished::Outcome::kBad;
    finished.captured = true;
    finished.ticket = ticket;
    finished.hits = hits;
    finished.result = result;
    callback(context, finished);
    ++told;
  }
  return told;
}

}  // namespace nanwatch::device
