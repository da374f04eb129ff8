// SPDX-License-Identifier: Apache-2.0
// Ops are enqueued: what they wrote, what they read, and the launches that check both.
#include <algorithm>

#include "shim/check/scan.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/figures/parameter_stats.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/gpu_graphs.h"
#include "shim/observe/gpu/launch_counts.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

// How often the head of the queue is tried while ops go by; and while they go into batches, in
// events, each of some sixteen ops.
constexpr uint64_t kOpsPerSettle = 32;
constexpr uint64_t kBatchesPerSettle = 8;

// Families whose ops wait for no batch: they are resolved by what they read, or decide about the
// step.
constexpr uint32_t kByThemselves =
    kUnscales | kUpdatesScale | kCommunicates | kCompares | kReadsScalar;

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

// While parameters are bad every op finds something, and counting that takes the GPU long: only
// what may make a parameter good again is looked at, which is an op of nobody's pass or update.
bool MayHeal(const PythonNames& names, const ThreadState* thread, const Frame& frame,
             const InputSeen* const* written, uint32_t count) {
  if (!frame.op->in_place || thread->optimizer_depth != 0 || thread->nodes_open != 0) return false;
  return std::any_of(written, written + count, [&names](const InputSeen* tensor) {
    return names.FindByStorage(static_cast<const c10::StorageImpl*>(tensor->storage.storage)) !=
           nullptr;
  });
}

}  // namespace

// One launch's worth of an op.
struct GpuEventQueue::OpParts {
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
    return std::any_of(outputs, outputs + output_count,
                       [&input](const InputSeen* output) { return Overlap(*output, input); });
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

// What lies in the CPU's memory is read here and now, if it is there.
void GpuEventQueue::KeepRead(const InputSeen& seen, SeenTensor* kept) noexcept {
  KeepSeen(seen, kept);
  if (seen.gpu >= 0 || IsWritten(seen) || !IsAlive(seen)) return;
  kept->unread = MayBeUnderWay(seen.Plain());
  if (!kept->unread && HasNonFinite(seen.View())) FillStats(seen.View(), 0, &kept->stats);
}

void GpuEventQueue::EnqueueOp(ThreadState* thread, const Frame& frame, uint32_t returned) noexcept {
  const InputSeen* written[ThreadState::kInputsMax];
  const uint32_t count = CollectWritten(thread, frame, returned, written);
  if (thread->optimizer_depth != 0 && IsFusedUpdate(*frame.op)) parts_.steps.OnFusedSeen();
  if (count == 0 && (frame.op->families & kCompares) != 0) {
    OpParts parts;
    parts.AddInputsOf(thread, frame);
    return EnqueuePart(thread, frame, MomentOf(thread, frame), parts);
  }
  // Only of a program without an optimizer object are ops seen then (poison_watch.h).
  if (parts_.poison.Ignores() && !MayHeal(parts_.python.names(), thread, frame, written, count) &&
      CapturedGraph(thread, /*begins=*/true) == nullptr) {
    thread->counters.unchecked[static_cast<int>(wire::Unchecked::kAfterPoisoned)] += count;
    return;
  }
  if (count == 0) return;
  if ((frame.op->families & kUpdatesScale) != 0) EnqueueScale(thread, frame, *written[0]);
  const Moment moment = MomentOf(thread, frame);
  // What an update has written is read at its end, in one list.
  const bool samples = parts_.level.watched() == wire::Level::kSampled && !frame.inputs_seen;
  if (samples && moment.place.phase == wire::Phase::kOptimizer) return;
  if (!samples || !MayBeBatched(thread, frame, {written, count}) ||
      !state_.batches.Record(thread, frame, moment, {written, count})) {
    if (frame.op->in_place) state_.batches.RecordWritten({written, count});
    LaunchBatches();
    LaunchParts(thread, frame, moment, {written, count});
  }
  if (parts_.parameter_stats.MeasuresLayers()) {
    MeasureWritten(thread, moment, {written, count});
  }
  // Of several the first: losses bring their weights with them.
  if (written[0]->numel == 1) RememberScalar(thread, frame, *written[0]);
  if (next_event() % kOpsPerSettle < count) Settle();
}

// As many launches as the op's tensors need.
void GpuEventQueue::LaunchParts(ThreadState* thread, const Frame& frame, const Moment& moment,
                                std::span<const InputSeen* const> written) noexcept {
  const auto in_list = std::find_if(written.begin(), written.end(), [](const InputSeen* tensor) {
    return tensor->place_in_list != InputSeen::kNoList;
  });
  const uint32_t room_of_lists =
      in_list != written.end() ? RoomOfLists(thread, frame, **in_list) : 0;
  for (size_t at = 0; at < written.size();) {
    const bool is_list = written[at]->place_in_list != InputSeen::kNoList;
    const uint32_t room = is_list ? room_of_lists : uint32_t{device::kOutputsMax};
    OpParts parts;
    while (at < written.size() && parts.output_count < room && parts.Continues(*written[at])) {
      parts.outputs[parts.output_count++] = written[at++];
    }
    parts.AddInputsOf(thread, frame);
    EnqueuePart(thread, frame, moment, parts);
  }
}

void GpuEventQueue::EnqueuePart(ThreadState* thread, const Frame& frame, const Moment& moment,
                                const OpParts& parts) noexcept {
  const uint32_t tensors = parts.output_count + parts.input_count;
  auto* event = state_.ring.Reserve<OpEvent>((std::max(tensors, 1u) - 1) * sizeof(SeenTensor));
  if (event == nullptr) {
    thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] += parts.output_count;
    return Settle();
  }
  FillOp(parts, thread, frame, moment, event);
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
    Launch(thread, event, parts.outputs, looked_at, looked_at_count);
  } else {
    event->graph = CapturedGraph(thread, /*begins=*/false);
  }
  state_.ring.Publish(event);
}

void GpuEventQueue::FillOp(const OpParts& parts, ThreadState* thread, const Frame& frame,
                           const Moment& moment, OpEvent* event) noexcept {
  event->kind = EventKind::kOp;
  event->moment = moment;
  event->frame = frame;
  event->escaped = parts.escaped;
  event->region = event->moment.in_region ? thread->region : RegionSeen{};
  event->outputs = parts.output_count;
  event->inputs = parts.input_count;
  for (uint32_t i = 0; i < parts.output_count; ++i) {
    KeepSeen(*parts.outputs[i], &event->tensors[i]);
    event->tensors[i].looked_at = static_cast<int8_t>(i);
  }
}

bool GpuEventQueue::MayBeBatched(const ThreadState* thread, const Frame& frame,
                                 std::span<const InputSeen* const> written) noexcept {
  return (frame.op->families & kByThemselves) == 0 && !frame.op->writes_unseen &&
         thread->regions_open == 0 && !thread->proof &&
         std::all_of(written.begin(), written.end(), [&written](const InputSeen* tensor) {
           return tensor->place_in_list == InputSeen::kNoList && tensor->gpu == written[0]->gpu &&
                  IsOneRun(tensor->View(), /*in_any_order=*/true);
         });
}

bool GpuEventQueue::MayNote(const ThreadState* thread, const Frame& frame) noexcept {
  constexpr uint32_t kOthers = kByThemselves | kFills | kMayNotWait;
  return On() && parts_.level.watched() == wire::Level::kSampled && !frame.inputs_seen &&
         (frame.op->families & kOthers) == 0 && !frame.op->writes_unseen &&
         thread->optimizer_depth == 0 && thread->regions_open == 0 && !thread->proof &&
         !parts_.poison.Ignores() && !parts_.parameter_stats.MeasuresLayers();
}

bool GpuEventQueue::NoteResult(ThreadState* thread, const Frame& frame,
                               const at::TensorBase& result) noexcept {
  PlainTensor plain;
  if (!MayNote(thread, frame) || !ReadDenseOnGpu(result, &plain) || plain.view.numel == 1 ||
      plain.view.ndim > wire::kShapeDimsMax) {
    return false;
  }
  BusyScope busy(thread);
  const uint64_t before = next_event();
  if (!state_.batches.Record(thread, frame, MomentOf(thread), plain, result.requires_grad())) {
    return false;
  }
  const uint64_t now = next_event();
  if (now / kBatchesPerSettle != before / kBatchesPerSettle) Settle();
  return true;
}

void GpuEventQueue::EnqueueLateCopy(ThreadState* thread, const Frame& frame,
                                    const InputSeen& to) noexcept {
  LaunchBatches();
  late_copies_.Add(to, next_event());
  OpParts parts;
  parts.outputs[parts.output_count++] = &to;
  parts.AddInputsOf(thread, frame);
  auto* event = state_.ring.Reserve<OpEvent>(parts.input_count * sizeof(SeenTensor));
  if (event == nullptr) {
    ForgetBad(parts_.bad_values, to);
    return Settle();
  }
  event->kind = EventKind::kOp;
  event->moment = MomentOf(thread, frame);
  event->frame = frame;
  event->is_late_copy = true;
  event->escaped = 0;
  event->region = event->moment.in_region ? thread->region : RegionSeen{};
  event->outputs = 1;
  event->inputs = parts.input_count;
  KeepSeen(to, &event->tensors[0]);
  for (uint32_t i = 0; i < parts.input_count; ++i) {
    KeepSeen(*parts.inputs[i], &event->tensors[1 + i]);
  }
  event->graph = CapturedGraph(thread, /*begins=*/false);
  state_.ring.Publish(event);
}

// The outputs are the event's, in order. Without a check that it could wait for the event stands
// for nothing.
bool GpuEventQueue::Launch(ThreadState* thread, OpEvent* event, const InputSeen* const* outputs,
                           const InputSeen* const* inputs, uint32_t input_count) noexcept {
  const std::span<const InputSeen* const> all(outputs, event->outputs);
  const GpuChecks::Launched launched =
      event->measures ? state_.checks.MeasureList(thread, all, event->samples)
                      : state_.checks.Check(thread, all, {inputs, input_count}, event->reports);
  return OnLaunched(thread, event, outputs[0]->gpu, launched, LaunchedTensors::Of(all));
}

bool GpuEventQueue::LaunchList(ThreadState* thread, OpEvent* event) noexcept {
  const TensorList& list = *event->list;
  // Of these it is only asked which are bad.
  const bool kinds_only =
      event->checked_as == CheckedAs::kProbe || event->checked_as == CheckedAs::kUnread;
  const GpuChecks::Launched launched =
      state_.checks.CheckList(thread, list, event->reports, event->sums, kinds_only);
  return OnLaunched(thread, event, list.gpu(), launched, {list.size(), list.bytes()});
}

bool GpuEventQueue::OnLaunched(ThreadState* thread, OpEvent* event, int gpu,
                               const GpuChecks::Launched& launched,
                               const LaunchedTensors& tensors) noexcept {
  const bool counts = event->kind != EventKind::kHanded || !IsForFigures(event->checked_as);
  CountLaunch(parts_.entry, thread, gpu, launched, counts ? tensors : LaunchedTensors{});
  if (launched.ticket == 0) {
    DropTensors(event);
    event->kind = EventKind::kNothing;
    return launched.nothing_to_check;
  }
  event->ticket = launched.ticket;
  event->ops_before = state_.batches.ops();
  if (launched.graph != 0) {
    event->frame.kernels_pushed = false;  // they run at replays, which have no number
    event->graph = FindGraph({gpu, launched.graph});
    event->slot = launched.slot;
    state_.captures.store(thread, std::memory_order_relaxed);
    parts_.python.ReplaceGraphCallsSoon();
  } else if (state_.captures.load(std::memory_order_relaxed) == thread) {
    state_.captures.store(nullptr, std::memory_order_relaxed);
  }
  return true;
}

void GpuEventQueue::EnqueueView(ThreadState* thread, const Frame& frame,
                                const PlainTensor& tensor) noexcept {
  if (tensor.view.ndim > wire::kShapeDimsMax) return;
  auto* event = state_.ring.Reserve<ViewEvent>();
  if (event == nullptr) return;
  event->kind = EventKind::kView;
  event->moment.thread = thread;
  event->frame = frame;
  event->tensor.seen = InputSeen{};
  event->tensor.seen.Copy(tensor);
  event->graph = CapturedGraph(thread, /*begins=*/false);
  state_.ring.Publish(event);
}

void GpuEventQueue::EnqueueScalarRead(ThreadState* thread, const Frame& frame,
                                      double number) noexcept {
  LaunchBatches();
  OpParts parts;
  parts.escaped = number;
  parts.AddInputsOf(thread, frame);
  EnqueuePart(thread, frame, MomentOf(thread, frame), parts);
}

}  // namespace nanwatch
