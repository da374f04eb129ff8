// Launching and polling: the hot half of CheckedDevice. Setting up is in set_up_device.cc.
#include "shim/device/checked_device.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "shim/device/current_context.h"
#include "shim/host/monotonic_clock.h"

namespace nanwatch::device {
namespace {

// Captured slots that one Poll looks at: a line of memory each that the GPU may have written, so
// that thousands would cost tens of microseconds every time.
constexpr uint32_t kCapturedPolledMax = 512;

// A word in memory that the GPU writes.
uint64_t LoadAcquire(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

// What the launch with this ticket has told in its slot besides; a copy.
bool SumsOf(const CheckResult& slot, uint64_t ticket, ListSums* sums) {
  if (LoadAcquire(&slot.list_sums_ticket) != ticket) return false;
  *sums = ListOf(slot).sums;
  return true;
}

// The same of a launch that measures, in place; null: it has told nothing.
const Measure* MeasuresOf(const CheckResult& slot, uint64_t ticket) {
  const auto& told = reinterpret_cast<const MeasureResult&>(slot);
  return LoadAcquire(&told.measures_ticket) == ticket ? told.measures : nullptr;
}

void RaiseTo(std::atomic<uint64_t>& word, uint64_t value) {
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (seen < value && !word.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

bool HoldElements(std::span<const DeviceTensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const DeviceTensor& tensor) { return tensor.numel > 0; });
}

bool HoldElements(std::span<const ListEntry> entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [](const ListEntry& entry) { return NumelOf(entry) > 0; });
}

// As many of the `i`-th `each` as there are.
template <class T>
std::span<const T> Slice(std::span<const T> all, uint32_t i, size_t each) {
  const auto rest = all.subspan(std::min(all.size(), i * each));
  return rest.first(std::min(rest.size(), each));
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
  if (state == State::kWarming && LoadAcquire(Word(0)) != 0) {
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
    StepDown(call, "too many calls failed one after another");
  }
  return Skip::kDriverError;
}

void CheckedDevice::StepDown(const Call& call, const char* why) noexcept {
  if (MeansContextLost(call.result)) context_lost_.store(true, std::memory_order_release);
  if (reason_taken_.exchange(true, std::memory_order_acq_rel)) return;
  // Where the process ends there is nothing to say.
  if (call.result != kCuDeinitialized) {
    std::snprintf(reason_, sizeof reason_, "%s answered CUDA error %d: %s", call.function,
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
  // Each launch has one kind or the other.
  head.output_count = static_cast<uint32_t>(part.outputs.size() + part.gate.size());
  head.input_count =
      static_cast<uint32_t>(part.inputs.size() + part.others.size() + part.samples.size());
  return head;
}

CuResult CheckedDevice::LaunchCheck(const LaunchHead& head, const Part& part) noexcept {
  const CuResult result = part.gate.empty() ? LaunchTensors(head, part) : LaunchList(head, part);
  if (result == kCuSuccess) {
    shared_.launches.fetch_add(1, std::memory_order_relaxed);
    if (failures_in_a_row_.load(std::memory_order_relaxed) != 0) {
      failures_in_a_row_.store(0, std::memory_order_relaxed);
    }
  }
  return result;
}

CuResult CheckedDevice::LaunchList(const LaunchHead& head, const Part& part) noexcept {
  ListLaunch launch;  // what is behind its entries is not read
  launch.head = head;
  std::copy(part.gate.begin(), part.gate.end(), launch.entries);
  std::copy(part.others.begin(), part.others.end(), launch.entries + part.gate.size());
  if (!part.samples.empty()) return LaunchComparison(&launch, part);
  const uint32_t blocks = shared_.options.list_grid_for(launch, multiprocessors_);
  const CuFunction function = part.measures ? measure_list_ : part.sums ? sum_list_ : check_list_;
  return Launch(function, blocks, kThreadsPerBlock, &launch, part.stream);
}

// A block for each tensor: its sample is small, however large it is.
CuResult CheckedDevice::LaunchComparison(ListLaunch* launch, const Part& part) noexcept {
  ListEntry* kept = launch->entries + part.gate.size();
  for (const SampleSpan& span : part.samples) {
    *kept++ = MakeEntry(samples_ + span.begin * sizeof(double), span.count,
                        static_cast<uint8_t>(wire::ElementType::kFloat64));
  }
  return Launch(compare_list_, static_cast<uint32_t>(part.gate.size()), kThreadsPerBlock, launch,
                part.stream);
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

uint32_t CheckedDevice::Parts::Count() const noexcept {
  const auto launches = [](size_t all, size_t each) {
    return static_cast<uint32_t>((all + each - 1) / each);
  };
  if (!others.empty()) return launches(others.size(), kListMax - gate.size());
  if (!gate.empty()) return launches(gate.size(), measures ? kMeasuredMax : kListMax);
  return outputs.empty() ? 1 : launches(outputs.size(), kOutputsMax);
}

CheckedDevice::Part CheckedDevice::Parts::At(uint32_t i, uint64_t first_ticket) const noexcept {
  Part part = {
      Slice(outputs, i, kOutputsMax), inputs, gate, others, first_ticket + i, stream, step_word};
  part.sums = sums && (others.empty() || i == 0);
  part.measures = measures;
  part.samples = Slice(samples, i, kMeasuredMax);
  if (others.empty()) {
    part.gate = Slice(gate, i, measures ? kMeasuredMax : kListMax);
  } else {
    part.others = Slice(others, i, kListMax - gate.size());
  }
  return part;
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

Skip CheckedDevice::EnqueueList(const CheckListRequest& request, Enqueued* enqueued) noexcept {
  if (!HoldElements(request.gate)) return Skip::kNothingToCheck;
  Parts parts;
  parts.gate = request.gate;
  parts.stream = request.stream;
  parts.sums = request.sums;
  parts.measures = request.measures;
  parts.samples = request.samples;
  if (request.gate.size() <= size_t{kListGateMax}) {
    parts.others = request.others;
  } else {
    shared_.inputs_left_out.fetch_add(request.others.size(), std::memory_order_relaxed);
  }
  return EnqueueParts(parts, request.reports, enqueued);
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
    uint64_t word = ReplayWord(*graph);
    const Call call = {"cuLaunchKernel", Launch(add_step_, 1, 1, &word, stream)};
    return call.Failed() ? Judge(call) : Skip::kNone;
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
  __atomic_store_n(&Result(layout_.slots + captured_slot)->ticket, 0, __ATOMIC_RELAXED);
  captured_[captured_slot].hits_told = 0;
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
  // the launch is made: either the other one still has the right and looks at `ask_again` behind
  // it, or has given it up. (Asking before the launch would not do: the other one may look between,
  // and find nothing that it has not told of.)
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
  if (slot == kNoSlot) return Skip::kNoSlot;
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

Skip CheckedDevice::AskForProgress(CuStream handle, LaunchStream& stream,
                                   uint64_t progress) noexcept {
  do {
    const bool told_by_others = stream.progress_wanted.load() <= stream.progress_asked.load();
    if (told_by_others || stream.queued.load(std::memory_order_relaxed) == 0) {
      stream.ask_again.store(false);
      return Skip::kNone;
    }
    // Whoever holds the right looks at this once it is given up.
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
  if (capturing) return Skip::kNone;  // what is in a graph has no progress to tell
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
  if (!capturing && (!has_counted_.load(std::memory_order_relaxed) ||
                     !has_counted_.exchange(false, std::memory_order_relaxed))) {
    return Skip::kNone;
  }
  uint64_t step_word = step_word_;
  const Call call = {"cuLaunchKernel", Launch(add_step_, 1, 1, &step_word, stream)};
  return call.Failed() ? Judge(call) : Skip::kNone;
}

// ---- polling

size_t CheckedDevice::Poll(FinishedCallback callback, void* context) noexcept {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kUnseen || state == State::kSettingUp || table_ == nullptr) return 0;
  // What is in the host's memory by then is told as ever. Slots of a device that is down are not
  // used again, so that what comes later finds nobody's.
  const bool lost =
      context_lost_.load(std::memory_order_acquire) ||
      (state == State::kDown &&
       MonotonicNs() - down_ns_.load(std::memory_order_relaxed) >= shared_.options.down_after_ns);
  size_t told = 0;
  for (uint32_t index = 0; index < kStreamsMax; ++index) {
    if (table_->Stream(index).key.load(std::memory_order_relaxed) != 0) {
      told += PollStream(index, lost, callback, context);
    }
  }
  return captured_ == nullptr ? told : told + PollCaptured(callback, context);
}

size_t CheckedDevice::PollStream(uint32_t index, bool lost, FinishedCallback callback,
                                 void* context) noexcept {
  LaunchStream& stream = table_->Stream(index);
  table_->TakeQueued(stream);
  const uint64_t progress = ProgressOf(index);
  size_t told = 0;
  while (stream.oldest != kNoSlot) {
    const uint32_t slot = stream.oldest;
    const PendingLaunch& launch = table_->Launch(slot);
    const bool done = progress >= launch.finished_at;
    if (!done && !lost) break;

    CheckResult* result = Result(slot);
    Finished finished;
    finished.device = ordinal_;
    finished.ticket = launch.ticket;
    if (LoadAcquire(&result->ticket) == launch.ticket) {
      finished.outcome = Finished::Outcome::kBad;
      finished.result = result;
      finished.hits = LoadAcquire(&result->hits);
      has_counted_.store(true, std::memory_order_relaxed);
    } else if (!done) {
      finished.outcome = Finished::Outcome::kLost;
    }
    const bool is_known = finished.outcome != Finished::Outcome::kLost;
    ListSums sums;
    if (is_known && !launch.measures && SumsOf(*result, launch.ticket, &sums)) {
      finished.sums = &sums;
    }
    if (is_known && launch.measures) finished.measures = MeasuresOf(*result, launch.ticket);
    callback(context, finished);
    ++told;
    if (finished.result != nullptr) {
      // The next launch writes those of its own tensors only.
      std::memset(result->output_kinds, 0, sizeof result->output_kinds);
      std::memset(result->input_kinds, 0, sizeof result->input_kinds);
      __atomic_store_n(&result->ticket, 0, __ATOMIC_RELAXED);
    }
    stream.oldest = launch.next_queued;
    stream.queued.fetch_sub(1, std::memory_order_relaxed);
    table_->Give(slot);
  }
  return told;
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
