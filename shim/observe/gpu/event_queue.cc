// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/event_queue.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>

#include "proto/wire/naming.h"

#include "shim/check/scan.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/gpu/event_queue_graphs.h"
#include "shim/observe/gpu/queued_events.h"
#include "shim/observe/observer.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

// How often the head of the queue is looked at while ops go by.
constexpr uint64_t kOpsPerSettle = 32;

bool IsWritten(const InputSeen& input) { return input.updated || input.overwritten; }

// What holds a tensor in an event: by itself, and with counts that say nothing yet.
void Keep(const InputSeen& seen, SeenTensor* kept) {
  kept->seen = seen;
  kept->seen.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(seen.storage.storage));
  kept->looked_at = -1;
  kept->unread = false;
  FillShapeOnly(seen.View(), &kept->stats);
}

// The op's results, `returned` of them, which lie behind the inputs in use, and the arguments that
// it writes without returning them; their number.
uint32_t CollectWritten(const ThreadState* thread, const Frame& frame, uint32_t returned,
                        const InputSeen** written) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < returned; ++i) {
    written[count++] = &thread->inputs[thread->inputs_used + i];
  }
  const bool by_arguments = frame.op->writes_unseen || (frame.op->families & kBatchNorm) != 0;
  for (uint32_t i = 0; by_arguments && i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.gpu < 0 || count == ThreadState::kInputsMax) continue;
    if (input.rewritten || (frame.op->writes_unseen && IsWritten(input))) written[count++] = &input;
  }
  return count;
}

// How many tensors of a list fit into a launch that looks at all that was read for each of them.
uint32_t RoomOfLists(const ThreadState* thread, const Frame& frame, const InputSeen& first) {
  uint32_t lists_read = 0;
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    lists_read += input.place_in_list == first.place_in_list && !IsWritten(input);
  }
  return std::max(1u, static_cast<uint32_t>(device::kInputsMax) / std::max(1u, lists_read));
}

Moment MomentOf(Observer& observer, ThreadState* thread, const Frame& frame) {
  Moment moment = TakeMoment(observer.moment_parts(), thread);
  moment.first_event = frame.first_event;
  return moment;
}

// While parameters are bad every op finds something, and counting that takes the GPU long: only
// what may make a parameter good again is looked at, which is an op of nobody's pass or update.
bool MayHeal(const Observer& observer, const ThreadState* thread, const Frame& frame,
             const InputSeen* const* written, uint32_t count) {
  if (!frame.op->in_place || thread->optimizer_depth != 0 || thread->nodes_open != 0) return false;
  return std::any_of(written, written + count, [&observer](const InputSeen* tensor) {
    return observer.python->names().FindByStorage(
               static_cast<const c10::StorageImpl*>(tensor->storage.storage)) != nullptr;
  });
}

}  // namespace

// One launch's worth of an op.
struct GpuEventQueue::Parts {
  const InputSeen* outputs[device::kOutputsMax];
  uint32_t output_count = 0;
  const InputSeen* inputs[OpEvent::kTensorsMax];
  uint32_t input_count = 0;
  double escaped = 0;

  void AddInputsOf(const ThreadState* thread, const Frame& frame) {
    for (uint32_t i = 0; i < frame.inputs_count; ++i) {
      const InputSeen& input = thread->inputs[frame.inputs_begin + i];
      if (input_count + device::kOutputsMax == OpEvent::kTensorsMax) return;
      if (BelongsTo(input) && (!input.overwritten || IsOutput(input))) {
        inputs[input_count++] = &input;
      }
    }
  }
  // Whether the launch can look at `next` too: on one GPU, and of a list what follows in it.
  bool Continues(const InputSeen& next) const {
    if (output_count == 0) return true;
    const InputSeen& first = *outputs[0];
    if (next.gpu != first.gpu) return false;
    return first.place_in_list == InputSeen::kNoList ||
           (next.argument == first.argument &&
            next.place_in_list == first.place_in_list + output_count);
  }
  // What an op writes beside this part's outputs is another part's to tell about.
  bool IsOutput(const InputSeen& input) const {
    return std::any_of(outputs, outputs + output_count, [&input](const InputSeen* output) {
      return output->storage.storage == input.storage.storage &&
             output->byte_begin < input.byte_end && input.byte_begin < output->byte_end;
    });
  }

 private:
  // Of lists, what stands where the outputs stand.
  bool BelongsTo(const InputSeen& input) const {
    if (output_count == 0 || input.place_in_list == InputSeen::kNoList ||
        outputs[0]->place_in_list == InputSeen::kNoList) {
      return true;
    }
    return input.place_in_list >= outputs[0]->place_in_list &&
           input.place_in_list <= outputs[output_count - 1]->place_in_list;
  }
};

void KeepHanded(const CheckedTensor& handed, SeenTensor* kept) noexcept {
  Keep(handed.seen, kept);
  kept->target = handed.target;
  kept->named = handed.named;
  kept->name = handed.name;
}

// What lies in the CPU's memory is read here and now, if it is there.
void GpuEventQueue::KeepRead(const InputSeen& seen, SeenTensor* kept) noexcept {
  Keep(seen, kept);
  if (seen.gpu >= 0 || IsWritten(seen) || !IsAlive(seen)) return;
  kept->unread = MayBeUnderWay(seen.Plain());
  if (!kept->unread && HasNonFinite(seen.View())) FillStats(seen.View(), 0, &kept->stats);
}

// ---- the queue

bool GpuEventQueue::Begin(Observer& observer) noexcept {
  std::call_once(begun_, [this, &observer] {
    if (!settings_.checks) return;
    const char* why = "";
    if (!gpu_.Begin(&why)) {
      char line[160];
      std::snprintf(line, sizeof line, "tensors on GPUs go unchecked: %s", why);
      observer.entry()->say(line);
      return;
    }
    queue_ = MapQueue(settings_.queue_bytes_for_test);
    resolver_ = ThreadStates::MakeForResolving();
    gpu_gradients_ = new (std::nothrow) canary::GpuGradients(
        observer.canary_reports, observer.passes, observer.losses, observer.late_facts);
    graphs_ = new (std::nothrow) Graphs;
    if (queue_ == nullptr || resolver_ == nullptr || gpu_gradients_ == nullptr ||
        graphs_ == nullptr || !cuts_.Prepare()) {
      return;
    }
    // Inputs are wanted of every op from now on: it cannot be gone back for them.
    observer.input_tracking.Hold();
    on_.store(true, std::memory_order_release);
    ThreadStates::SetOnEnd([](ThreadState* ending) {
      Observer* mine = Observer::Get();
      if (mine->Active() && mine->gpu_events.On()) mine->gpu_events.AskStream(ending);
    });
    StartSettling(&observer);
    EndBeforeDriver();
    observer.python->ReplaceGraphCallsSoon();
    observer.level.OnFirstGpu(ThreadStates::Mine());
  });
  return On();
}

// A job that hangs, or waits for long, calls nothing of ours: what the GPU has found by then is
// told by a thread of our own, which only reads memory.
void GpuEventQueue::StartSettling(Observer* observer) noexcept {
  constexpr useconds_t kMicrosecondsBetween = 50'000;
  const auto run = [](void* context) -> void* {
    for (auto* mine = static_cast<Observer*>(context);;) {
      usleep(kMicrosecondsBetween);
      if (!mine->Active()) continue;
      mine->gpu_events.Settle(*mine);
      mine->op_kernels.Tend();
    }
  };
  // Signals are the job's to take.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, run, observer) == 0) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The driver ends in an exit handler that it has registered when it was initialised, which it was
// before there was a tensor of a GPU; of two handlers the later one runs first. The observer's own
// (start.cc), from before all that, would find a driver that answers nothing any more and has given
// back its memory.
void GpuEventQueue::EndBeforeDriver() noexcept {
  if (!gpu_.DriverIsUp()) return;
  (void)std::atexit([] {
    Observer* mine = Observer::Get();
    if (mine == nullptr || !mine->Active()) return;
    mine->gpu_events.SettleAtExit(*mine);
    mine->op_kernels.EmitAtExit();
  });
}

template <class T>
T* GpuEventQueue::Reserve(size_t extra_bytes) noexcept {
  const uint64_t bytes = (sizeof(T) + extra_bytes + kEventAlignment - 1) & ~(kEventAlignment - 1);
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t to_the_end = queue_->bytes - (end_ & (queue_->bytes - 1));
  const uint64_t filler = bytes > to_the_end ? to_the_end : 0;
  if (end_ + filler + bytes - begin_ > queue_->bytes) {
    pressed_.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  if (filler != 0) {
    static_assert(offsetof(Event, moment) <= kEventAlignment, "a filler has all before it");
    auto* unused = reinterpret_cast<Event*>(At(end_));
    unused->bytes = static_cast<uint32_t>(filler);
    unused->kind = EventKind::kNothing;
    unused->ticket = 0;
    unused->graph = nullptr;
    unused->number = 0;
    unused->noted.store(true, std::memory_order_relaxed);
    end_ += filler;
  }
  auto* event = new (At(end_)) T;
  event->bytes = static_cast<uint32_t>(bytes);
  event->noted.store(false, std::memory_order_relaxed);
  event->ticket = 0;
  event->graph = nullptr;
  event->number = clock_.noted.fetch_add(1, std::memory_order_acq_rel) + 1;
  end_ += bytes;
  if (end_ - begin_ > queue_->bytes / 2) pressed_.store(true, std::memory_order_relaxed);
  return event;
}

template GpuEventQueue::ReplayEvent* GpuEventQueue::Reserve(size_t extra_bytes) noexcept;
template GpuEventQueue::SnapshotEvent* GpuEventQueue::Reserve(size_t extra_bytes) noexcept;
template GpuEventQueue::CollectiveEvent* GpuEventQueue::Reserve(size_t extra_bytes) noexcept;

void GpuEventQueue::Publish(Event* event) noexcept {
  event->noted.store(true, std::memory_order_release);
}

GpuEventQueue::Event* GpuEventQueue::Head() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (begin_ == end_) return nullptr;
  auto* head = reinterpret_cast<Event*>(At(begin_));
  return head->noted.load(std::memory_order_acquire) ? head : nullptr;
}

void GpuEventQueue::Release(Event* event) noexcept {
  const uint64_t number = event->number;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    begin_ += event->bytes;
  }
  if (number != 0) clock_.told.store(number, std::memory_order_release);
}

// ---- noting

void GpuEventQueue::EnqueueOp(Observer& observer, ThreadState* thread, const Frame& frame,
                              uint32_t returned) noexcept {
  if (cuts_.AnyNoted()) LeaveCutsIfLeft(observer, thread);
  const InputSeen* written[ThreadState::kInputsMax];
  const uint32_t count = CollectWritten(thread, frame, returned, written);
  if (frame.op->writes_unseen && thread->optimizer_depth != 0 &&
      std::strncmp(frame.op->name, "aten::_fused_", 13) == 0) {
    observer.steps.OnFusedSeen();
  }
  if (count == 0 && (frame.op->families & kCompares) != 0) {
    Parts parts;
    parts.AddInputsOf(thread, frame);
    return EnqueuePart(observer, thread, frame, MomentOf(observer, thread, frame), parts);
  }
  // Only of a program without an optimizer object are ops seen then (poison_watch.h).
  if (observer.poison.Ignores() && !MayHeal(observer, thread, frame, written, count) &&
      CapturedGraph(observer, thread, /*begins=*/true) == nullptr) {
    thread->counters.unchecked[static_cast<int>(wire::Unchecked::kAfterPoisoned)] += count;
    return;
  }
  if (count == 0) return;
  if ((frame.op->families & kUpdatesScale) != 0) EnqueueScale(observer, thread, frame);
  const Moment moment = MomentOf(observer, thread, frame);
  const InputSeen* const* in_list = std::find_if(
      written, written + count,
      [](const InputSeen* tensor) { return tensor->place_in_list != InputSeen::kNoList; });
  const uint32_t room_of_lists =
      in_list != written + count ? RoomOfLists(thread, frame, **in_list) : 0;
  for (uint32_t at = 0; at < count;) {
    const bool is_list = written[at]->place_in_list != InputSeen::kNoList;
    const uint32_t room = is_list ? room_of_lists : uint32_t{device::kOutputsMax};
    Parts parts;
    while (at < count && parts.output_count < room && parts.Continues(*written[at])) {
      parts.outputs[parts.output_count++] = written[at++];
    }
    parts.AddInputsOf(thread, frame);
    EnqueuePart(observer, thread, frame, moment, parts);
  }
  if (observer.parameter_stats.MeasuresLayers()) {
    MeasureWritten(observer, thread, moment, {written, count});
  }
  // Of several the first: losses bring their weights with them.
  if (written[0]->numel == 1) RememberScalar(thread, frame, *written[0]);
  if (next_event() % kOpsPerSettle < count) Settle(observer);
}

void GpuEventQueue::EnqueuePart(Observer& observer, ThreadState* thread, const Frame& frame,
                                const Moment& moment, const Parts& parts) noexcept {
  const uint32_t tensors = parts.output_count + parts.input_count;
  auto* event = Reserve<OpEvent>((std::max(tensors, 1u) - 1) * sizeof(SeenTensor));
  if (event == nullptr) {
    thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] += parts.output_count;
    if (cuts_.AnyNoted()) cuts_.LetGo();
    return Settle(observer);
  }
  event->kind = EventKind::kOp;
  event->moment = moment;
  event->frame = frame;
  event->escaped = parts.escaped;
  event->region = event->moment.in_region ? thread->region : RegionSeen{};
  event->outputs = parts.output_count;
  event->inputs = parts.input_count;
  for (uint32_t i = 0; i < parts.output_count; ++i) {
    Keep(*parts.outputs[i], &event->tensors[i]);
    event->tensors[i].looked_at = static_cast<int8_t>(i);
  }
  const InputSeen* looked_at[device::kInputsMax];
  uint32_t looked_at_count = 0;
  for (uint32_t i = 0; i < parts.input_count; ++i) {
    const InputSeen& input = *parts.inputs[i];
    SeenTensor& kept = event->tensors[parts.output_count + i];
    KeepRead(input, &kept);
    kept.seen.updated = input.updated && parts.IsOutput(input);
    if (parts.output_count == 0 || input.gpu != parts.outputs[0]->gpu || IsWritten(input) ||
        input.rewritten || looked_at_count == device::kInputsMax) {
      continue;
    }
    kept.looked_at = static_cast<int8_t>(looked_at_count);
    looked_at[looked_at_count++] = &input;
  }
  if (parts.output_count != 0) {
    const bool by_cuts = CutsNow(observer, thread);
    const bool waits = by_cuts && MayWaitForCut(observer, thread, frame, *parts.outputs[0]);
    if (waits) {
      looked_at_count = 0;
    } else {
      Launch(observer, thread, event, parts.outputs, looked_at, looked_at_count);
    }
    if (by_cuts) RecordForCuts(observer, thread, /*at_once=*/!waits, event);
  } else {
    event->graph = CapturedGraph(observer, thread, /*begins=*/false);
  }
  Publish(event);
}

void GpuEventQueue::EnqueueLateCopy(Observer& observer, ThreadState* thread, const Frame& frame,
                                    const InputSeen& to) noexcept {
  late_copies_.Add(to, next_event());
  Parts parts;
  parts.outputs[parts.output_count++] = &to;
  parts.AddInputsOf(thread, frame);
  auto* event = Reserve<OpEvent>(parts.input_count * sizeof(SeenTensor));
  if (event == nullptr) {
    ForgetBad(observer.bad_values, to);
    return Settle(observer);
  }
  event->kind = EventKind::kOp;
  event->moment = MomentOf(observer, thread, frame);
  event->frame = frame;
  event->is_late_copy = true;
  event->escaped = 0;
  event->region = event->moment.in_region ? thread->region : RegionSeen{};
  event->outputs = 1;
  event->inputs = parts.input_count;
  Keep(to, &event->tensors[0]);
  for (uint32_t i = 0; i < parts.input_count; ++i) {
    Keep(*parts.inputs[i], &event->tensors[1 + i]);
  }
  event->graph = CapturedGraph(observer, thread, /*begins=*/false);
  Publish(event);
}

// The outputs are the event's, in order. Without a check that it could wait for the event stands
// for nothing.
bool GpuEventQueue::Launch(Observer& observer, ThreadState* thread, OpEvent* event,
                           const InputSeen* const* outputs, const InputSeen* const* inputs,
                           uint32_t input_count) noexcept {
  const GpuChecks::Launched launched =
      event->measures ? gpu_.MeasureList(thread, {outputs, event->outputs}, event->samples)
      : event->is_list
          ? gpu_.CheckList(
                thread, {outputs, event->outputs}, {}, event->reports, event->sums,
                event->kind == EventKind::kHanded && event->checked_as == CheckedAs::kProbe)
          : gpu_.Check(thread, {outputs, event->outputs}, {inputs, input_count}, event->reports);
  const bool counts = event->kind != EventKind::kHanded || !IsForFigures(event->checked_as);
  CountLaunch(observer, thread, outputs[0]->gpu, launched, {outputs, counts ? event->outputs : 0});
  if (launched.ticket == 0) {
    DropTensors(event);
    event->kind = EventKind::kNothing;
    return launched.nothing_to_check;
  }
  event->ticket = launched.ticket;
  if (launched.graph != 0) {
    event->frame.kernels_pushed = false;  // they run at replays, which have no number
    event->graph = FindGraph({outputs[0]->gpu, launched.graph});
    event->slot = launched.slot;
    captures_.store(thread, std::memory_order_relaxed);
    observer.python->ReplaceGraphCallsSoon();
  } else if (captures_.load(std::memory_order_relaxed) == thread) {
    captures_.store(nullptr, std::memory_order_relaxed);
  }
  return true;
}

void GpuEventQueue::CountLaunch(Observer& observer, ThreadState* thread, int gpu,
                                const GpuChecks::Launched& launched,
                                std::span<const InputSeen* const> counted) noexcept {
  ThreadCounters& counters = thread->counters;
  if (launched.down != nullptr) {
    char line[512];
    std::snprintf(line, sizeof line, "tensors on GPU %d go unchecked from here on: %s", gpu,
                  launched.down);
    observer.entry()->say(line);
  }
  if (launched.nothing_to_check) return;
  if (launched.ticket == 0) {
    counters.unchecked[static_cast<int>(launched.reason)] += counted.size();
    return;
  }
  for (const InputSeen* tensor : counted) {
    ++counters.tensors_checked;
    counters.bytes_checked += static_cast<uint64_t>(tensor->numel) * ElementBytes(tensor->type);
  }
}

bool GpuEventQueue::EnqueueTensors(Observer& observer, ThreadState* thread, CheckedAs as,
                                   std::span<const CheckedTensor> tensors, const RegionSeen& region,
                                   std::span<const CheckedTensor> given) noexcept {
  switch (as) {
    case CheckedAs::kEntries:
    case CheckedAs::kOfRegion:
      return EnqueueFewTensors(observer, thread, as, tensors, region, given);
    default:
      return EnqueueLists(observer, thread, as, tensors);
  }
}

bool GpuEventQueue::EnqueueFewTensors(Observer& observer, ThreadState* thread, CheckedAs as,
                                      std::span<const CheckedTensor> tensors,
                                      const RegionSeen& region,
                                      std::span<const CheckedTensor> given) noexcept {
  constexpr size_t kGivenMax = 32;
  given = given.first(std::min(given.size(), kGivenMax));
  bool all = true;
  while (!tensors.empty()) {
    const size_t room = std::min(tensors.size(), size_t{device::kOutputsMax});
    size_t count = 1;
    while (count < room && tensors[count].seen.gpu == tensors[0].seen.gpu) ++count;
    all &= EnqueuePartOfTensors(observer, thread, as, tensors.first(count), region, given);
    tensors = tensors.subspan(count);
  }
  return all;
}

GpuEventQueue::OpEvent* GpuEventQueue::ReserveHanded(Observer& observer, ThreadState* thread,
                                                     CheckedAs as, size_t looked_at,
                                                     size_t others) noexcept {
  auto* event = Reserve<OpEvent>((looked_at + others - 1) * sizeof(SeenTensor));
  if (event == nullptr) {
    if (!IsForFigures(as)) {
      thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] += looked_at;
    }
    return nullptr;
  }
  event->kind = EventKind::kHanded;
  event->checked_as = as;
  event->region = {};
  event->moment = TakeMoment(observer.moment_parts(), thread);
  event->outputs = static_cast<uint32_t>(looked_at);
  event->inputs = static_cast<uint32_t>(others);
  return event;
}

// All on one GPU, as many as fit into one launch.
bool GpuEventQueue::EnqueuePartOfTensors(Observer& observer, ThreadState* thread, CheckedAs as,
                                         std::span<const CheckedTensor> tensors,
                                         const RegionSeen& region,
                                         std::span<const CheckedTensor> given) noexcept {
  OpEvent* event = ReserveHanded(observer, thread, as, tensors.size(), given.size());
  if (event == nullptr) return false;
  event->region = region;
  const InputSeen* outputs[device::kOutputsMax];
  const InputSeen* inputs[device::kInputsMax];
  uint32_t looked_at = 0;
  SeenTensor* kept = event->tensors;
  for (size_t i = 0; i < tensors.size(); ++i, ++kept) {
    KeepHanded(tensors[i], kept);
    outputs[i] = &tensors[i].seen;
  }
  for (const CheckedTensor& input : given) {
    KeepHanded(input, kept);
    if (looked_at < device::kInputsMax && input.seen.gpu == tensors[0].seen.gpu) {
      kept->looked_at = static_cast<int8_t>(looked_at);
      inputs[looked_at++] = &input.seen;
    }
    ++kept;
  }
  const bool launched = Launch(observer, thread, event, outputs, inputs, looked_at);
  ResolveCutsOfTensors(observer, thread, event, outputs);
  Publish(event);
  return launched;
}

void GpuEventQueue::DropTensors(OpEvent* event) noexcept {
  const WeakStorageOps ops = TorchWeakStorageOps();
  for (uint32_t i = 0; i < event->outputs + event->inputs; ++i) {
    ops.drop(event->tensors[i].seen.storage.handle);
  }
}

void GpuEventQueue::Drop(Event* event) noexcept {
  const WeakStorageOps ops = TorchWeakStorageOps();
  switch (event->kind) {
    case EventKind::kOp:
    case EventKind::kHanded:
      return DropTensors(static_cast<OpEvent*>(event));
    case EventKind::kView:
      return ops.drop(static_cast<ViewEvent*>(event)->tensor.seen.storage.handle);
    case EventKind::kCollective: {
      auto* collective = static_cast<CollectiveEvent*>(event);
      for (uint32_t i = 0; i < collective->count; ++i) {
        ops.drop(collective->tensors[i].seen.storage.handle);
      }
      return;
    }
    case EventKind::kLeaf:
      if (static_cast<LeafEvent*>(event)->has_gradient) {
        ops.drop(static_cast<LeafEvent*>(event)->gradient.seen.storage.handle);
      }
      return;
    default:
      return;
  }
}

void GpuEventQueue::EnqueueView(Observer& observer, ThreadState* thread, const Frame& frame,
                                const PlainTensor& tensor) noexcept {
  if (tensor.view.ndim > wire::kShapeDimsMax) return;
  auto* event = Reserve<ViewEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kView;
  event->moment.thread = thread;
  event->frame = frame;
  event->tensor.seen = InputSeen{};
  event->tensor.seen.Copy(tensor);
  event->graph = CapturedGraph(observer, thread, /*begins=*/false);
  if ((frame.op->families & kCreates) != 0 && event->graph == nullptr &&
      CutsNow(observer, thread)) {
    cuts_.RecordClean(event->tensor.seen, event->number);
  }
  Publish(event);
}

void GpuEventQueue::EnqueueScalarRead(Observer& observer, ThreadState* thread, const Frame& frame,
                                      double number) noexcept {
  Parts parts;
  parts.escaped = number;
  parts.AddInputsOf(thread, frame);
  EnqueuePart(observer, thread, frame, MomentOf(observer, thread, frame), parts);
}

void GpuEventQueue::EnqueuePass(Observer& observer, ThreadState* thread, uint64_t number,
                                const SequenceEntry* root, bool tells_loss) noexcept {
  if (tells_loss) EnqueueLossOf(observer, thread, root);
  auto* event = Reserve<PassEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kPass;
  event->moment = TakeMoment(observer.moment_parts(), thread);
  event->pass = number;
  event->root = SequenceRef(root);
  event->tells_loss = tells_loss;
  event->graph = CapturedGraph(observer, thread, /*begins=*/true);
  Publish(event);
  gpu_.Ask(thread);
}

void GpuEventQueue::EnqueueLeaf(Observer& observer, ThreadState* thread,
                                const PlainTensor* gradient, const NamedTensor* named) noexcept {
  auto* event = Reserve<LeafEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kLeaf;
  event->moment = TakeMoment(observer.moment_parts(), thread);
  event->named = named;
  event->has_gradient = gradient != nullptr && gradient->view.ndim <= wire::kShapeDimsMax;
  if (event->has_gradient) {
    InputSeen seen{};
    seen.Copy(*gradient);
    KeepRead(seen, &event->gradient);
    TorchWeakStorageOps().drop(seen.storage.handle);
  }
  event->graph = CapturedGraph(observer, thread, /*begins=*/false);
  Publish(event);
}

uint64_t GpuEventQueue::EnqueueOptimizerBegin(Observer& observer, ThreadState* thread,
                                              const void* optimizer, const char* range_name,
                                              const Gradients& gradients) noexcept {
  auto* event = Reserve<OptimizerEvent>();
  if (event == nullptr) return 0;
  event->kind = EventKind::kOptimizerBegin;
  event->moment = TakeMoment(observer.moment_parts(), thread);
  event->optimizer = optimizer;
  std::snprintf(event->range_name, sizeof event->range_name, "%s", range_name);
  event->gradients = gradients;
  event->graph = CapturedGraph(observer, thread, /*begins=*/true);
  const uint64_t number = event->number;
  Publish(event);
  return number;
}

void GpuEventQueue::EnqueueOptimizerEnd(Observer& observer, ThreadState* thread, bool stopped,
                                        bool ops_unwatched) noexcept {
  auto* event = Reserve<OptimizerEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kOptimizerEnd;
  event->moment = TakeMoment(observer.moment_parts(), thread);
  event->stopped = stopped;
  event->ops_unwatched = ops_unwatched;
  event->graph = CapturedGraph(observer, thread, /*begins=*/true);
  Publish(event);
  gpu_.AddStep(thread);
  gpu_.Ask(thread);
  Settle(observer);
}

void GpuEventQueue::EnqueuePlainUpdate(Observer& observer, ThreadState* thread) noexcept {
  auto* event = Reserve<PassEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kPlainUpdate;
  event->moment = TakeMoment(observer.moment_parts(), thread);
  event->graph = CapturedGraph(observer, thread, /*begins=*/true);
  Publish(event);
  gpu_.AddStep(thread);
  gpu_.Ask(thread);
  Settle(observer);
}

void GpuEventQueue::AskStream(const ThreadState* thread) noexcept { gpu_.Ask(thread); }

// ---- telling

void GpuEventQueue::Settle(Observer& observer) noexcept {
  if (!On()) return;
  const std::unique_lock<std::mutex> turn(telling_, std::try_to_lock);
  if (turn.owns_lock()) ResolveReady(observer);
}

constexpr uint32_t kMicrosecondsBetweenLooks = 50;

bool GpuEventQueue::WaitForGpu(Observer& observer, ThreadState* thread, uint64_t event) noexcept {
  constexpr uint64_t kPatienceNs = 60'000'000'000;
  if (event == 0 || CapturedGraph(observer, thread, /*begins=*/true) != nullptr) return false;
  // What is held open for a cut that another stream may yet bring would be waited for.
  if (cuts_.AnyNoted()) cuts_.CloseAll(observer, thread);
  gpu_.AskAll();
  uint64_t told = 0;
  for (uint64_t since = MonotonicNs();;) {
    Settle(observer);
    const uint64_t now_told = clock_.told.load(std::memory_order_acquire);
    if (now_told >= event) return true;
    if (now_told != told) {
      told = now_told;
      since = MonotonicNs();
    } else if (MonotonicNs() - since > kPatienceNs) {
      observer.entry()->say(
          "a GPU has not answered for a minute: this step's gradients are not waited for");
      return false;
    }
    observer.python->Rest(kMicrosecondsBetweenLooks);
  }
}

bool GpuEventQueue::WaitForSetUp(Observer& observer) noexcept {
  constexpr uint64_t kPatienceNs = 5'000'000'000;
  const uint64_t since = MonotonicNs();
  while (!gpu_.AllSetUp()) {
    if (MonotonicNs() - since > kPatienceNs) return false;
    observer.python->Rest(kMicrosecondsBetweenLooks);
  }
  return true;
}

void GpuEventQueue::SettleAtExit(Observer& observer) noexcept {
  // A GPU that is steps behind is waited for as long as it answers; one that does not, or does for
  // very long, is not.
  constexpr uint64_t kSilenceNs = 200'000'000;
  constexpr uint64_t kLongestNs = 5'000'000'000;
  constexpr useconds_t kMicrosecondsBetween = 1000;
  if (!On()) return;
  // Threads that end from now on would launch into a driver that ends too, for nobody to read.
  ThreadStates::SetOnEnd(nullptr);
  const bool may_launch = gpu_.DriverIsUp();
  ThreadState* thread = ThreadStates::Mine();
  gpu_.BeginExit();
  if (may_launch && thread != nullptr) {
    // Those of default streams alone: nobody knows any more which stream was current.
    if (cuts_.AnyNoted()) cuts_.CloseAll(observer, thread);
    gpu_.AskAll();
  }
  const bool may_read = may_launch || gpu_.ReadableForEver();
  const uint64_t began_ns = MonotonicNs();
  uint64_t told = clock_.told.load(std::memory_order_acquire);
  uint64_t told_ns = began_ns;
  while (may_read) {
    Settle(observer);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (begin_ == end_) break;
    }
    const uint64_t now_ns = MonotonicNs();
    const uint64_t now_told = clock_.told.load(std::memory_order_acquire);
    if (now_told != told) told_ns = now_ns;
    told = now_told;
    if (now_ns - told_ns >= kSilenceNs || now_ns - began_ns >= kLongestNs) break;
    usleep(kMicrosecondsBetween);
  }
  // Threads that still run ops have nothing launched for them from here on.
  on_.store(false, std::memory_order_release);
  // Never given back: what the process ends with is destroyed next.
  telling_.lock();
}

}  // namespace nanwatch
