// SPDX-License-Identifier: Apache-2.0
// The event queue at level layer: events that wait for a cut to say what their op has left
// (gpu_cuts.h).
#include <algorithm>
#include <string_view>

#include "shim/host/monotonic_clock.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/gpu/event_queue_graphs.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/queued_events.h"
#include "shim/observe/observer.h"
#include "shim/observe/thread/seen_inputs.h"

namespace nanwatch {
namespace {

constexpr uint64_t kAllKnown = ~uint64_t{0};

// Arithmetic over whole tensors: where a NaN goes in, one comes out (but of a power of 0).
bool HandsOnNan(const OpTraits& op) {
  static constexpr std::string_view kNames[] = {
      "aten::add",      "aten::sub",         "aten::mul",
      "aten::div",      "aten::neg",         "aten::pow",
      "aten::sqrt",     "aten::exp",         "aten::log",
      "aten::tanh",     "aten::sigmoid",     "aten::gelu",
      "aten::addmm",    "aten::mm",          "aten::bmm",
      "aten::baddbmm",  "aten::convolution", "aten::native_layer_norm",
      "aten::_softmax", "aten::_to_copy",    "aten::mean",
      "aten::sum"};
  return std::find(std::begin(kNames), std::end(kNames), op.name) != std::end(kNames);
}

}  // namespace

// ---- noting

bool GpuEventQueue::CutsNow(Observer& observer, ThreadState* thread) noexcept {
  return observer.level.watched() == wire::Level::kLayer && !observer.poison.Poisoned() &&
         CapturedGraph(observer, thread, /*begins=*/true) == nullptr;
}

bool GpuEventQueue::MayWaitForCut(Observer& observer, ThreadState* thread, const Frame& frame,
                                  const InputSeen& output) noexcept {
  constexpr uint32_t kNotToBeWaitedFor = kUnscales | kUpdatesScale | kCommunicates;
  return MayRecordForCut(observer.level, observer.op_path.steps, thread, *frame.op) &&
         !frame.op->writes_unseen && (frame.op->families & kNotToBeWaitedFor) == 0 &&
         output.place_in_list == InputSeen::kNoList && cuts_.MayWait(thread, output.gpu);
}

void GpuEventQueue::RecordForCuts(Observer& observer, ThreadState* thread, bool at_once,
                                  OpEvent* event) noexcept {
  // No launch could be made.
  if (event->kind == EventKind::kNothing) {
    for (uint32_t i = 0; i < event->outputs; ++i) {
      cuts_.RecordLost(event->tensors[i].seen, event->number);
    }
    return;
  }
  if (event->graph != nullptr) return;
  event->cut.number = event->number;
  event->cut.outputs = event->outputs;
  event->cut.inputs = event->inputs;
  event->cut.tensors = event->tensors;
  cuts_.Record(observer, thread, event->frame, event->moment, &event->cut, at_once, event->ticket);
  if (pressed_.exchange(false, std::memory_order_relaxed)) cuts_.Finalize(event->number);
}

// Its launch looks at these.
void GpuEventQueue::ResolveCutsOfTensors(Observer& observer, ThreadState* thread, OpEvent* event,
                                         const InputSeen* const* tensors) noexcept {
  if (event->ticket == 0 || !CutsNow(observer, thread)) return;
  event->cut.at_layer = true;
  cuts_.RecordTensors({tensors, event->outputs}, event->number, event->ticket, event->is_list);
}

void GpuEventQueue::LeaveCutsIfLeft(Observer& observer, ThreadState* thread) noexcept {
  if (observer.level.watched() == wire::Level::kLayer) return;
  // In a graph a look at what lives now would be taken at each replay, when it lives no more.
  if (CapturedGraph(observer, thread, /*begins=*/true) != nullptr) return cuts_.LetGo();
  cuts_.CloseAll(observer, thread);
}

// ---- cuts

void GpuEventQueue::CutAtResults(Observer& observer, ThreadState* thread,
                                 std::span<const at::TensorBase* const> results) noexcept {
  cuts_.ReleaseWithGil();
  if (On() && observer.parameter_stats.MeasuresLayers()) MeasureResults(observer, thread, results);
  if (!AnyWaitForCut() || !CutsNow(observer, thread)) return;
  const bool is_root = ScopeDepth() == 1;
  for (const at::TensorBase* result : results) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (DescribeTensor(*result, &plain, &reason) != Readable::kYes || plain.gpu < 0) continue;
    const bool last = is_root && result == results.back();
    // What needs no gradient is saved by nobody.
    cuts_.AtResult(observer, thread, plain, last || !result->requires_grad());
  }
}

void GpuEventQueue::CutAtPass(Observer& observer, ThreadState* thread,
                              const SequenceEntry* root) noexcept {
  if (!AnyWaitForCut() || !CutsNow(observer, thread)) return;
  cuts_.AtPass(observer, thread, root);
}

void GpuEventQueue::CutAtNodeEnd(Observer& observer, ThreadState* thread) noexcept {
  if (!AnyWaitForCut() || !CutsNow(observer, thread)) return;
  cuts_.AtNodeEnd(observer, thread);
}

void GpuEventQueue::CutAtUpdate(Observer& observer, ThreadState* thread) noexcept {
  if (!AnyWaitForCut()) return;
  // The level is another one, or parameters are bad: nobody asks for what was noted.
  if (!CutsNow(observer, thread)) return cuts_.LetGo();
  cuts_.AtUpdate(observer, thread);
}

void GpuEventQueue::CutAtScalarRead(Observer& observer, ThreadState* thread,
                                    const Frame& frame) noexcept {
  if (!AnyWaitForCut() || !CutsNow(observer, thread)) return;
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.gpu >= 0) cuts_.AtEscape(observer, thread, input);
  }
}

// ---- telling

bool GpuEventQueue::IsHeldForCuts(OpEvent& event) noexcept {
  // Nothing happens in the job: no cut will come for long.
  constexpr uint64_t kQuietNs = 1'000'000'000;
  if (!cuts_.MayReport(event.cut)) {
    const uint64_t now = MonotonicNs();
    const uint64_t noted = clock_.noted.load(std::memory_order_relaxed);
    if (quiet_at_ != noted) {
      quiet_at_ = noted;
      quiet_since_ns_ = now;
    }
    if (now - quiet_since_ns_ < kQuietNs) return true;
    cuts_.LetGo();
    if (!cuts_.MayReport(event.cut)) return true;
  }
  if (event.cut.at_once) return false;
  const uint64_t unanswered = cuts_.FirstUnanswered(event.cut);
  if (unanswered == 0) return false;
  event.ticket = unanswered;
  return !IsStuck(event);
}

void GpuEventQueue::ResolveByCuts(Observer& observer, OpEvent& event) noexcept {
  device::CheckResult found{};
  bool bad = false;
  uint64_t known = 0;
  int inputs = 0;
  for (uint32_t i = 0; i < event.outputs + event.inputs; ++i) {
    SeenTensor& tensor = event.tensors[i];
    const bool is_output = i < event.outputs;
    if (!is_output) tensor.looked_at = -1;
    const GpuCuts::Finding finding = cuts_.Find(tensor.cut);
    if (finding.known == GpuCuts::Known::kNot || (!is_output && inputs == device::kInputsMax)) {
      continue;
    }
    known |= i < 62 ? uint64_t{1} << i : 0;
    const int place = is_output ? static_cast<int>(i) : inputs++;
    if (!is_output) tensor.looked_at = static_cast<int8_t>(place);
    (is_output ? found.output_kinds : found.input_kinds)[place] = finding.kinds;
    device::TensorCounts& counts = (is_output ? found.outputs : found.inputs)[place];
    counts.finite_min = 1;  // above the maximum: nothing was counted
    if (finding.counted) counts = finding.counts;
    if (finding.by_place && !IsOneRun(tensor.seen.View(), /*in_any_order=*/false)) {
      counts.first_bad = ~uint64_t{0};
    }
    found.brief |= finding.brief;
    bad |= is_output && finding.kinds != 0;
    event.cut.seen_beside |= is_output && finding.gated;
  }
  RecordToldAtLayer(event, known);
  const GpuAnswer answer{event.ticket, device::Finished::Outcome::kBad, &found};
  ResolveOp(observer, event, bad ? &answer : nullptr);
}

void GpuEventQueue::RecordToldAtLayer(OpEvent& event, uint64_t known) noexcept {
  event.cut.known = known;
  const uint64_t all = event.cut.AllOutputsKnown() ? GpuCuts::kOutputsKnown : 0;
  constexpr uint64_t kOfTensors = GpuCuts::kHandsOnNan - 1;
  cuts_.RecordTold(event.number, (known & kOfTensors) | all);
}

void GpuEventQueue::ResolveKnown(const Event& event) noexcept {
  if (cuts_.AnyNoted()) cuts_.RecordTold(event.number, kAllKnown);
}

void GpuEventQueue::ResolveNotBad(Observer& observer, OpEvent& event, uint32_t output) noexcept {
  ForgetBad(observer.bad_values, event.tensors[output].seen);
  if (event.cut.at_layer && !event.cut.IsKnown(output)) ResolveUnknown(event);
}

// Nobody knows what the op has left there. If something bad went in, it may be bad, too.
void GpuEventQueue::ResolveUnknown(const OpEvent& event) noexcept {
  const auto note = [this, &event](const BadEntry& from, uint8_t kinds, bool sure) {
    cuts_.RecordDoubt(event.number, from, kinds);
    if (!sure || !HandsOnNan(*event.frame.op)) return;
    cuts_.RecordTold(event.number,
                     (event.cut.known & (GpuCuts::kHandsOnNan - 1)) | GpuCuts::kHandsOnNan);
  };
  for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
    const SeenTensor& input = event.tensors[i];
    // Of a part of what is bad nobody knows that it is.
    const bool whole = input.seen.byte_begin <= input.seen.bad.byte_begin &&
                       input.seen.byte_end >= input.seen.bad.byte_end &&
                       input.seen.Plain().IsDense();
    const bool nan = whole && (input.seen.kinds & wire::kHasNan) != 0;
    if (input.seen.known) return note(input.seen.bad, input.seen.kinds, nan);
    for (uint32_t k = 0; k < input.cut.writers_count; ++k) {
      const uint64_t writer = input.cut.writers[k].event;
      const BadEntry* doubt = cuts_.FindDoubt(writer);
      const bool sure = cuts_.IsResolved(writer, GpuCuts::kHandsOnNan);
      if (doubt != nullptr) return note(*doubt, doubt->kinds, sure);
    }
  }
}

Traced GpuEventQueue::TraceAtLayer(const OpEvent& event,
                                   const device::CheckResult& result) noexcept {
  Traced traced = cuts_.Trace(event.cut);
  uint8_t kinds = 0;
  for (uint32_t i = 0; i < event.outputs; ++i) kinds |= result.output_kinds[i];
  // What went in and is known to be bad explains it, whatever else there was.
  uint8_t given = 0;
  for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
    if (event.tensors[i].seen.known) given |= event.tensors[i].seen.kinds;
  }
  const bool nan = (kinds & wire::kHasNan) != 0;
  traced.complete |= given != 0 && (!nan || (given & wire::kHasNan) != 0);
  // It may make such a mask all the time, and was looked at for another's sake.
  traced.complete &= !event.cut.seen_beside || kinds != wire::kHasNegInf;
  return traced;
}

}  // namespace nanwatch
