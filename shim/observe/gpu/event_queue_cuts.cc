// SPDX-License-Identifier: Apache-2.0
// The event queue at level layer: events that wait for a cut to say what their op has left
// (gpu_cuts.h).
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/figures/parameter_stats.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_graphs.h"

namespace nanwatch {

bool GpuEventQueue::CutsNow(ThreadState* thread) noexcept {
  return parts_.level.watched() == wire::Level::kLayer && !parts_.poison.Poisoned() &&
         CapturedGraph(thread, /*begins=*/true) == nullptr;
}

bool GpuEventQueue::MayWaitForCut(ThreadState* thread, const Frame& frame,
                                  const InputSeen& output) noexcept {
  constexpr uint32_t kNotToBeWaitedFor = kUnscales | kUpdatesScale | kCommunicates;
  return MayRecordForCut(parts_.level, parts_.marks, thread, *frame.op) &&
         !frame.op->writes_unseen && (frame.op->families & kNotToBeWaitedFor) == 0 &&
         output.place_in_list == InputSeen::kNoList && state_.cuts.MayWait(thread, output.gpu);
}

void GpuEventQueue::RecordForCuts(ThreadState* thread, bool at_once, OpEvent* event) noexcept {
  // No launch could be made.
  if (event->kind == EventKind::kNothing) {
    for (uint32_t i = 0; i < event->outputs; ++i) {
      state_.cuts.RecordLost(event->tensors[i].seen, event->number);
    }
    return;
  }
  if (event->graph != nullptr) return;
  event->cut.number = event->number;
  event->cut.outputs = event->outputs;
  event->cut.inputs = event->inputs;
  event->cut.tensors = event->tensors;
  state_.cuts.Record(thread, event->frame, event->moment, &event->cut, at_once, event->ticket);
  if (state_.ring.TakePressure()) state_.cuts.Finalize(event->number);
}

// Its launch looks at these.
void GpuEventQueue::RecordCutsOfTensors(ThreadState* thread, OpEvent* event,
                                        const InputSeen* const* tensors) noexcept {
  if (event->ticket == 0 || !CutsNow(thread)) return;
  event->cut.at_layer = true;
  state_.cuts.RecordTensors({tensors, event->outputs}, event->number, event->ticket,
                            event->is_list);
}

void GpuEventQueue::LeaveCutsIfLeft(ThreadState* thread) noexcept {
  if (parts_.level.watched() == wire::Level::kLayer) return;
  // In a graph a look at what lives now would be taken at each replay, when it lives no more.
  if (CapturedGraph(thread, /*begins=*/true) != nullptr) return state_.cuts.LetGo();
  state_.cuts.CloseAll(thread);
}

void GpuEventQueue::CutAtResults(ThreadState* thread,
                                 std::span<const at::TensorBase* const> results) noexcept {
  state_.cuts.ReleaseWithGil();
  if (On() && parts_.parameter_stats.MeasuresLayers()) MeasureResults(thread, results);
  if (!AnyWaitForCut() || !CutsNow(thread)) return;
  const bool is_root = ScopeDepth() == 1;
  for (const at::TensorBase* result : results) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (DescribeTensor(*result, &plain, &reason) != Readable::kYes || plain.gpu < 0) continue;
    const bool last = is_root && result == results.back();
    // What needs no gradient is saved by nobody.
    state_.cuts.AtResult(thread, plain, last || !result->requires_grad());
  }
}

void GpuEventQueue::CutAtPass(ThreadState* thread, const SequenceEntry* root) noexcept {
  if (!AnyWaitForCut() || !CutsNow(thread)) return;
  state_.cuts.AtPass(thread, root);
}

void GpuEventQueue::CutAtNodeEnd(ThreadState* thread) noexcept {
  if (!AnyWaitForCut() || !CutsNow(thread)) return;
  state_.cuts.AtNodeEnd(thread);
}

void GpuEventQueue::CutAtUpdate(ThreadState* thread) noexcept {
  if (!AnyWaitForCut()) return;
  // The level is another one, or parameters are bad: nobody asks for what was noted.
  if (!CutsNow(thread)) return state_.cuts.LetGo();
  state_.cuts.AtUpdate(thread);
}

void GpuEventQueue::CutAtScalarRead(ThreadState* thread, const Frame& frame) noexcept {
  if (!AnyWaitForCut() || !CutsNow(thread)) return;
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.gpu >= 0) state_.cuts.AtEscape(thread, input);
  }
}

}  // namespace nanwatch
