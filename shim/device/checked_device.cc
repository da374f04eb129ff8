// SPDX-License-Identifier: Apache-2.0
// Launching: the hot part of CheckedDevice. Setting up is in set_up_device.cc, polling in
// poll_device.cc, what is special of lists and batches in device_lists.cc, of CUDA graphs in
// device_graphs.cc.
#include "shim/device/checked_device.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "shim/device/current_context.h"
#include "shim/host/monotonic_clock.h"

namespace nanwatch::device {
namespace {

void RaiseTo(std::atomic<uint64_t>& word, uint64_t value) {
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (seen < value && !word.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

bool HoldElements(std::span<const DeviceTensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const DeviceTensor& tensor) { return tensor.numel > 0; });
}

Failure KindOf(CuResult result) {
  if (MeansContextLost(result)) return Failure::kContextLost;
  if (MeansCapture(result)) return Failure::kCapture;
  if (result == kCuOutOfMemory) return Failure::kOutOfMemory;
  if ((result >= kCuInvalidImage && result <= kCuJitCompilationDisabled &&
       result != kCuInvalidContext) ||
      result == kCuNotFound) {
    return Failure::kImage;
  }
  return Failure::kOther;
}

}  // namespace

// ---- states

bool CheckedDevice::Ready() noexcept {
  State state = state_.load(std::memory_order_acquire);
  if (state == State::kWarming && MayRead() && LoadAcquire(Word(0)) != 0) {
    state_.compare_exchange_strong(state, State::kReady, std::memory_order_acq_rel);
    state = state_.load(std::memory_order_acquire);
  }
  return state == State::kReady;
}

const char* CheckedDevice::Reason() const noexcept {
  return state_.load(std::memory_order_acquire) == State::kDown ? reason_ : nullptr;
}

bool CheckedDevice::UsesGivenMemory() const noexcept {
  return state_.load(std::memory_order_acquire) == State::kReady && given_memory_used_;
}

Skip CheckedDevice::Enter(CuStream stream) noexcept {
  if (Ready()) return Skip::kNone;
  switch (state_.load(std::memory_order_acquire)) {
    case State::kUnseen:
      return SetUp(stream);
    case State::kDown:
      return Skip::kSteppedDown;
    default:
      return Skip::kStarting;
  }
}

void CheckedDevice::CountFailure(const Call& call) noexcept {
  shared_.failures[static_cast<size_t>(KindOf(call.result))].fetch_add(1,
                                                                       std::memory_order_relaxed);
}

Skip CheckedDevice::Judge(const Call& call) noexcept {
  CountFailure(call);
  if (MeansContextLost(call.result)) {
    StepDown(call, "the device's context is lost");
  } else if (!MeansCapture(call.result) &&
             failures_in_a_row_.fetch_add(1, std::memory_order_relaxed) + 1 >= kFailuresInARow) {
    StepDown(call, "too many calls failed in a row");
  }
  return Skip::kDriverError;
}

void CheckedDevice::StepDown(const Call& call, const char* why) noexcept {
  if (MeansContextLost(call.result)) context_lost_.store(true, std::memory_order_release);
  if (reason_taken_.exchange(true, std::memory_order_acq_rel)) return;
  // Where the process ends there is nothing to say.
  if (call.result != kCuDeinitialized) {
    std::snprintf(reason_, sizeof reason_, "%s returned CUDA error %d: %s", call.function,
                  static_cast<int>(call.result), why);
  }
  down_ns_.store(MonotonicNs(), std::memory_order_relaxed);
  state_.store(State::kDown, std::memory_order_release);
}

Skip CheckedDevice::SkipFor(const CurrentContext& current) noexcept {
  if (current.IsForeign()) return Skip::kForeignContext;
  return current.Result() == kCuSuccess ? Skip::kNone
                                        : Judge({current.Function(), current.Result()});
}

Skip CheckedDevice::CaptureState(CuStream stream, bool* capturing) noexcept {
  int32_t status = kCuCaptureStatusInvalidated;
  const Call call = {"cuStreamIsCapturing", shared_.driver.stream_is_capturing(stream, &status)};
  if (call.Failed()) {
    (void)Judge(call);
    return Skip::kCaptureUnknown;
  }
  *capturing = status == kCuCaptureStatusActive;
  return *capturing || status == kCuCaptureStatusNone ? Skip::kNone : Skip::kCaptureUnknown;
}

// ---- launching

uint32_t CheckedDevice::StreamFor(CuStream stream) noexcept {
  unsigned long long id = 0;
  if (shared_.driver.stream_get_id != nullptr &&
      shared_.driver.stream_get_id(stream, &id) == kCuSuccess) {
    return table_->StreamFor(id + 1);  // ids count from somewhere small; a key is not 0
  }
  // Handles of other streams are addresses of objects, and even.
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  if (handle == kCuStreamPerThread) return table_->StreamFor(uintptr_t{pthread_self()} | 1);
  return table_->StreamFor(handle <= kCuStreamLegacy ? kCuStreamLegacy : handle);
}

uint64_t CheckedDevice::ProgressOf(uint32_t stream) const noexcept {
  return LoadAcquire(Word(layout_.Progress(stream)));
}

CuResult CheckedDevice::Launch(CuFunction function, uint32_t blocks, uint32_t threads,
                               void* parameter, CuStream stream) const noexcept {
  void* parameters[] = {parameter};
  return shared_.driver.launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters,
                                      nullptr);
}

LaunchHead CheckedDevice::HeadFor(const Part& part, uint32_t slot) const noexcept {
  LaunchHead head = {};
  head.ticket = part.ticket;
  if (part.IsMark()) return head;
  head.result = host_address_ + layout_.Result(slot);
  head.scratch = part.measures ? measures_ + slot * sizeof(MeasureScratch)
                               : scratch_ + slot * sizeof(LaunchScratch);
  head.step_word = part.step_word;
  if (part.batch != nullptr) {
    const LaunchHead& planned = part.batch->launch.head;
    head.output_count = planned.output_count;
    head.input_count = planned.input_count;
    head.flags = planned.flags;
    return head;
  }
  // Each launch has one kind or the other.
  head.output_count = static_cast<uint32_t>(part.outputs.size() + part.gate.size());
  head.input_count =
      static_cast<uint32_t>(part.inputs.size() + part.others.size() + part.samples.size());
  head.flags = part.kinds_only ? kKindsOnly : 0;
  return head;
}

CuResult CheckedDevice::LaunchCheck(const LaunchHead& head, const Part& part) noexcept {
  const CuResult result = part.batch != nullptr ? LaunchBatch(head, part)
                          : part.gate.empty()   ? LaunchTensors(head, part)
                                                : LaunchList(head, part);
  if (result == kCuSuccess) {
    shared_.launches.fetch_add(1, std::memory_order_relaxed);
    if (failures_in_a_row_.load(std::memory_order_relaxed) != 0) {
      failures_in_a_row_.store(0, std::memory_order_relaxed);
    }
  }
  return result;
}

CuResult CheckedDevice::LaunchTensors(const LaunchHead& head, const Part& part) noexcept {
  const auto launch = [&](CuFunction function, auto parameter) {
    parameter.head = head;
    std::copy(part.outputs.begin(), part.outputs.end(), parameter.tensors);
    std::copy(part.inputs.begin(), part.inputs.end(), parameter.tensors + part.outputs.size());
    const uint32_t blocks =
        part.IsMark()
            ? 1
            : shared_.options.grid_for(parameter.head, parameter.tensors, multiprocessors_);
    return Launch(function, blocks, kThreadsPerBlock, &parameter, part.stream);
  };
  return part.outputs.size() + part.inputs.size() <= size_t{kFewTensors}
             ? launch(check_few_, FewLaunch{})
             : launch(check_many_, ManyLaunch{});
}

Skip CheckedDevice::Enqueue(const CheckRequest& request, Enqueued* enqueued) noexcept {
  if (!HoldElements(request.outputs)) return Skip::kNothingToCheck;
  const size_t inputs = std::min(request.inputs.size(), size_t{kInputsMax});
  Parts parts;
  parts.outputs = request.outputs;
  parts.inputs = request.inputs.first(inputs);
  parts.stream = request.stream;
  const Skip skip = EnqueueParts(parts, request.reports, enqueued);
  if (enqueued->launches != 0 && inputs < request.inputs.size()) {
    shared_.inputs_left_out.fetch_add(request.inputs.size() - inputs, std::memory_order_relaxed);
  }
  return skip;
}

Skip CheckedDevice::EnqueueParts(Parts parts, bool reports, Enqueued* enqueued) noexcept {
  if (const Skip skip = Enter(parts.stream); skip != Skip::kNone) return skip;
  const CurrentContext current(shared_.driver, context_, device_, parts.stream);
  if (const Skip skip = SkipFor(current); skip != Skip::kNone) return skip;
  bool capturing = false;
  if (const Skip skip = CaptureState(parts.stream, &capturing); skip != Skip::kNone) return skip;
  if (capturing) return CaptureAll(parts, enqueued);
  const uint32_t stream = StreamFor(parts.stream);
  if (stream == kStreamsMax) return Skip::kNoStreamEntry;
  parts.step_word = step_word_;
  return LaunchAll(parts, stream, reports, enqueued);
}

Skip CheckedDevice::Mark(CuStream stream, Enqueued* enqueued) noexcept {
  if (!Ready()) return Reason() != nullptr ? Skip::kSteppedDown : Skip::kStarting;
  const CurrentContext current(shared_.driver, context_, device_, stream);
  if (const Skip skip = SkipFor(current); skip != Skip::kNone) return skip;
  bool capturing = false;
  if (const Skip skip = CaptureState(stream, &capturing); skip != Skip::kNone) return skip;
  if (capturing) return Skip::kCaptureUnknown;  // what is replayed there is part of another graph
  const uint32_t index = StreamFor(stream);
  if (index == kStreamsMax) return Skip::kNoStreamEntry;
  Parts mark;
  mark.stream = stream;
  return LaunchAll(mark, index, /*report_now=*/true, enqueued);
}

Skip CheckedDevice::LaunchAll(const Parts& parts, uint32_t index, bool report_now,
                              Enqueued* enqueued) noexcept {
  LaunchStream& stream = table_->Stream(index);
  const uint64_t progress = host_address_ + layout_.Progress(index);
  const uint32_t every = std::min(shared_.options.progress_every, layout_.slots / 8);
  Skip skip = Skip::kNone;
  bool another_has_right = false;
  {
    const uint32_t unreported = stream.unreported.load(std::memory_order_relaxed);
    const bool due = report_now || unreported + parts.Count() >= every || IsLongSince(stream);
    const ReportRight right(stream, due);
    another_has_right = due && !right.Held();
    enqueued->first_ticket = shared_.next_ticket.fetch_add(parts.Count());
    for (; enqueued->launches < parts.Count() && skip == Skip::kNone; ++enqueued->launches) {
      const bool reports = right.Held() && enqueued->launches + 1 == parts.Count();
      skip = LaunchOnStream(parts.At(enqueued->launches, enqueued->first_ticket), stream,
                            reports ? progress : 0, right.Held());
    }
    if (skip != Skip::kNone) --enqueued->launches;
  }
  // Whoever finds no room has to have asked for it. Who was to report and could not asks now that
  // the launch is made: either the other one still has the right and checks `ask_again` after it,
  // or has given it up. (Asking before the launch would not do: the other one may check in between,
  // and find nothing that it has not reported.)
  const bool no_room = skip == Skip::kNoSlot || skip == Skip::kStreamNoSlot;
  if (no_room || another_has_right || stream.ask_again.load()) {
    (void)AskForProgress(parts.stream, stream, progress);
  }
  return skip;
}

bool CheckedDevice::IsLongSince(LaunchStream& stream) const noexcept {
  const uint64_t after = shared_.options.progress_after_ns;
  if (after == 0) return false;
  const uint64_t now = MonotonicNs();
  if (now - stream.reported_ns.load(std::memory_order_relaxed) < after) return false;
  stream.reported_ns.store(now, std::memory_order_relaxed);
  return true;
}

Skip CheckedDevice::LaunchOnStream(const Part& part, LaunchStream& stream, uint64_t progress,
                                   bool has_right) noexcept {
  if (stream.queued.load(std::memory_order_relaxed) >= layout_.slots / 4 * 3) {
    return Skip::kStreamNoSlot;
  }
  const uint32_t slot = table_->Take();
  if (slot == kNilSlot) return Skip::kNoSlot;
  LaunchHead head = HeadFor(part, slot);
  head.progress = progress;
  const Call call = {"cuLaunchKernel", LaunchCheck(head, part)};
  if (call.Failed()) {
    table_->Give(slot);
    return Judge(call);
  }
  PendingLaunch& launch = table_->Launch(slot);
  launch.ticket = part.ticket;
  launch.measures = part.measures;
  // Not a plain load: a processor may do that before the launch itself is visible to others. A
  // change of the word, even by nothing, stands in one order with the drawing of tickets.
  launch.finished_at = has_right ? part.ticket : shared_.next_ticket.fetch_add(0);
  if (progress != 0) {
    stream.unreported.store(0, std::memory_order_relaxed);
    stream.progress_asked.store(part.ticket);
  } else {
    stream.unreported.fetch_add(1, std::memory_order_relaxed);
    RaiseTo(stream.progress_wanted, launch.finished_at);
  }
  table_->Push(stream, slot);
  return Skip::kNone;
}

Skip CheckedDevice::AskForProgress(CuStream handle, LaunchStream& stream,
                                   uint64_t progress) noexcept {
  do {
    const bool told_by_others = stream.progress_wanted.load() <= stream.progress_asked.load();
    if (told_by_others || stream.queued.load(std::memory_order_relaxed) == 0) {
      stream.ask_again.store(false);
      return Skip::kNone;
    }
    // Whoever holds the right checks this after giving it up.
    stream.ask_again.store(true);
    const ReportRight right(stream, true);
    if (!right.Held()) return Skip::kNone;
    stream.ask_again.store(false);
    FewLaunch launch = {};
    launch.head.ticket = shared_.next_ticket.fetch_add(1);
    launch.head.progress = progress;
    const Call call = {"cuLaunchKernel", Launch(check_few_, 1, kThreadsPerBlock, &launch, handle)};
    if (call.Failed()) return Judge(call);
    stream.unreported.store(0, std::memory_order_relaxed);
    stream.progress_asked.store(launch.head.ticket);
  } while (stream.ask_again.load());
  return Skip::kNone;
}

Skip CheckedDevice::Flush(CuStream stream) noexcept {
  if (!Ready()) return Reason() != nullptr ? Skip::kSteppedDown : Skip::kStarting;
  // What was launched on a default stream was launched on this context's.
  const CurrentContext current(shared_.driver, context_);
  if (const Skip skip = SkipFor(current); skip != Skip::kNone) return skip;
  bool capturing = false;
  if (const Skip skip = CaptureState(stream, &capturing); skip != Skip::kNone) return skip;
  if (capturing) return Skip::kNone;  // what is in a graph has no progress to report
  const uint32_t index = StreamFor(stream);
  if (index == kStreamsMax) return Skip::kNoStreamEntry;
  return AskForProgress(stream, table_->Stream(index), host_address_ + layout_.Progress(index));
}

Skip CheckedDevice::AddStep(CuStream stream) noexcept {
  if (!Ready()) return Reason() != nullptr ? Skip::kSteppedDown : Skip::kStarting;
  const CurrentContext current(shared_.driver, context_, device_, stream);
  if (const Skip skip = SkipFor(current); skip != Skip::kNone) return skip;
  bool capturing = false;
  if (const Skip skip = CaptureState(stream, &capturing); skip != Skip::kNone) return skip;
  StepLaunch launch = {step_word_, 1};
  if (!capturing && !TakeSteps(&launch.steps)) return Skip::kNone;
  const Call call = {"cuLaunchKernel", Launch(add_step_, 1, 1, &launch, stream)};
  return call.Failed() ? Judge(call) : Skip::kNone;
}

// A step has ended. True: report so many steps now, because something was counted in the last of
// them, or because what was counted before no longer counts against any of them.
bool CheckedDevice::TakeSteps(uint64_t* steps) noexcept {
  const uint32_t untold = steps_untold_.load(std::memory_order_relaxed);
  const bool has_counted = has_counted_.load(std::memory_order_relaxed) &&
                           has_counted_.exchange(false, std::memory_order_relaxed);
  if (!has_counted && untold == kStepsUntilForgotten) return false;
  const bool tells = has_counted || untold + 1 == kStepsUntilForgotten;
  *steps = untold + 1;
  steps_untold_.store(has_counted ? 0 : untold + 1, std::memory_order_relaxed);
  return tells;
}

}  // namespace nanwatch::device
