// SPDX-License-Identifier: Apache-2.0
// The event queue's other half: what was noted, and what the GPU has answered since, told to those
// who decide about it.
#include "shim/check/scan.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/event_queue_graphs.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/queued_events.h"
#include "shim/observe/observer.h"
#include "shim/observe/step/loss.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/compiled_writer.h"
#include "shim/observe/unseen/named_values.h"

namespace nanwatch {
namespace {

// What the table knows stands for what was not looked at.
uint8_t KindsOf(const BadEntry& entry) { return entry.kinds != 0 ? entry.kinds : wire::kHasNan; }

void FillOutput(const device::CheckResult& result, int place, wire::TensorStats* stats) {
  FillCounts(result.outputs[place], result.output_kinds[place], result.brief != 0, stats);
}

void FillInput(const device::CheckResult& result, int place, wire::TensorStats* stats) {
  FillCounts(result.inputs[place], result.input_kinds[place], result.brief != 0, stats);
}

// Names of parameters take room in the segment only where one is told.
uint32_t NameOf(Observer& observer, const SeenTensor& tensor) {
  Emitter* emitter = tensor.named != nullptr ? observer.segment.Ensure() : nullptr;
  return emitter != nullptr ? InternText(*emitter, tensor.named->name) : tensor.name;
}

bool FindBad(Observer& observer, const InputSeen& seen, BadEntry* entry) {
  return observer.bad_values.Find(seen.storage.storage, seen.byte_begin, seen.byte_end, entry);
}

// Found out about an input of an op that is told: `looked_at` says whether the launch has looked at
// it, which it does only where an output is bad.
void SettleInput(Observer& observer, bool looked_at, SeenTensor* tensor) {
  InputSeen& seen = tensor->seen;
  seen.counted = &tensor->stats;
  seen.known = !seen.overwritten && FindBad(observer, seen, &seen.bad);
  if (seen.known && !looked_at && (seen.gpu >= 0 || tensor->unread))
    FillKinds(KindsOf(seen.bad), &tensor->stats);
  seen.kinds = seen.overwritten ? 0 : KindsCounted(tensor->stats);
  if (seen.kinds == 0) seen.known = false;
}

}  // namespace

void GpuEventQueue::SettleInputs(Observer& observer, ThreadState* thread,
                                 const Frame& frame) noexcept {
  // What it has read was cut where it began (CutAtScalarRead), and nothing waits for a later pass.
  if (cuts_.AnyNoted()) cuts_.Finalize(next_event() - 1);
  Settle(observer);
  static constexpr wire::TensorStats kClean = CountsOf(0);
  static constexpr wire::TensorStats kBad = CountsOf(wire::kHasNan);
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.gpu < 0) continue;
    input.known = !input.overwritten && FindBad(observer, input, &input.bad);
    input.kinds = input.known ? KindsOf(input.bad) : 0;
    input.counted = input.known ? &kBad : &kClean;
  }
}

void GpuEventQueue::ResolveReady(Observer& observer) noexcept {
  ThreadState* thread = ThreadStates::Mine();
  const bool was_busy = thread != nullptr && thread->busy;
  if (thread != nullptr) thread->busy = true;
  gpu_.Collect();
  if (gpu_.TakeHit() && cuts_.AnyNoted() && !observer.poison.Poisoned()) observer.level.Raise();
  const bool may_tell = ResolveUnannounced(observer);
  for (Event* head = Head(); may_tell && head != nullptr; head = Head()) {
    const GpuAnswer* answer = nullptr;
    bool lost = false;
    if (head->kind == EventKind::kNothing) {
      // Of one that fills the queue up to its end there may be no more than kEventAlignment bytes.
      Release(head);
      continue;
    }
    if (head->graph != nullptr && head->kind != EventKind::kReplay) {
      KeepForReplays(head);
      Release(head);
      continue;
    }
    if (head->kind == EventKind::kOp) {
      auto& op = static_cast<OpEvent&>(*head);
      if (op.cut.at_layer && IsHeldForCuts(op)) break;
      if (op.cut.at_layer && !op.cut.at_once) {
        Resolve(observer, op, nullptr);
        Drop(head);
        Release(head);
        continue;
      }
    }
    if (head->ticket != 0) {
      answer = gpu_.Find(head->ticket, &lost);
      if (answer == nullptr && !lost && !IsStuck(*head)) break;
      lost = answer == nullptr;
    }
    if (lost) {
      // What was found in a replay is told with the next.
      if (head->kind == EventKind::kHanded &&
          AreGradients(static_cast<const OpEvent*>(head)->checked_as)) {
        gpu_gradients_->RecordUnseen();
      }
      if (head->kind == EventKind::kHanded &&
          static_cast<const OpEvent*>(head)->checked_as == CheckedAs::kProbe) {
        observer.poison_watch.OnProbeLost();
      }
      ++resolver_->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)];
    } else {
      Resolve(observer, *head, answer);
    }
    Drop(head);
    Release(head);
  }
  if (thread != nullptr) thread->busy = was_busy;
}

// A stream whose launches are answered no more must not hold up what others have answered since. (A
// GPU that is busy with one long kernel answers nothing at all.)
bool GpuEventQueue::IsStuck(const Event& head) noexcept {
  constexpr uint64_t kPatienceNs = 2'000'000'000;
  // Less than SettleAtExit's, and shared by events that follow each other.
  constexpr uint64_t kPatienceAtExitNs = 150'000'000;
  const uint64_t now = MonotonicNs();
  if (stuck_at_ != head.number) {
    if (!gpu_.AtExit() || stuck_at_ + 1 != head.number) stuck_since_ns_ = now;
    stuck_at_ = head.number;
  }
  const uint64_t patience_ns = gpu_.AtExit() ? kPatienceAtExitNs : kPatienceNs;
  return now - stuck_since_ns_ > patience_ns && gpu_.newest_answer() > head.ticket;
}

void GpuEventQueue::Resolve(Observer& observer, Event& event, const GpuAnswer* answer) noexcept {
  ThreadState* thread = resolver_;
  thread->told = &event.moment;
  told_event_ = event.number;
  thread->depth = thread->inputs_used = 0;
  thread->pass = event.moment.place.pass;
  switch (event.kind) {
    case EventKind::kNothing:  // is released before
      break;
    case EventKind::kOp: {
      auto& op = static_cast<OpEvent&>(event);
      if (op.cut.at_layer && !op.cut.at_once) {
        ResolveByCuts(observer, op);
      } else {
        if (op.cut.at_layer) RecordToldAtLayer(op, ~uint64_t{0});
        ResolveOp(observer, op, answer);
      }
      break;
    }
    case EventKind::kHanded:
      if (static_cast<OpEvent&>(event).cut.at_layer) ResolveKnown(event);
      ResolveTensors(observer, static_cast<OpEvent&>(event), *answer);
      break;
    case EventKind::kView: {
      auto& view = static_cast<ViewEvent&>(event);
      ResolveKnown(view);
      observer.clean_outputs.OnSkipped(thread, view.frame, view.tensor.seen.Plain());
      break;
    }
    case EventKind::kPass: {
      const auto& pass = static_cast<const PassEvent&>(event);
      observer.passes.RecordBegin(thread, pass.pass, pass.root.Get(), pass.tells_loss);
      break;
    }
    case EventKind::kLeaf:
      ResolveLeaf(observer, static_cast<LeafEvent&>(event));
      break;
    case EventKind::kOptimizerBegin: {
      const auto& begin = static_cast<const OptimizerEvent&>(event);
      Gradients gradients = begin.gradients;
      gradients.skipped |= skips_update_;
      skips_update_ = false;
      gpu_gradients_->Settle(thread, begin.range_name, &gradients);
      observer.steps.RecordOptimizerBegin(thread, {begin.optimizer, begin.range_name, gradients});
      break;
    }
    case EventKind::kOptimizerEnd: {
      const auto& end = static_cast<const OptimizerEvent&>(event);
      observer.steps.RecordOptimizerEnd(thread, {end.stopped, end.ops_unwatched});
      break;
    }
    case EventKind::kPlainUpdate:
      observer.steps.RecordPlainUpdate(thread);
      break;
    case EventKind::kCollective:
      ResolveCollective(observer, static_cast<CollectiveEvent&>(event));
      break;
    case EventKind::kSnapshot:
      observer.parameter_stats.EmitLast(static_cast<SnapshotEvent&>(event).snapshot);
      break;
    case EventKind::kReplay:
      ResolveReplay(observer, static_cast<ReplayEvent&>(event));
      break;
  }
  thread->told = nullptr;
}

void GpuEventQueue::ResolveOp(Observer& observer, OpEvent& event,
                              const GpuAnswer* answer) noexcept {
  const bool bad = answer != nullptr && answer->outcome == device::Finished::Outcome::kBad;
  const uint32_t families = event.frame.op->families;
  const bool of_scaler = (families & (kUnscales | kUpdatesScale)) != 0;
  // The way of nearly all events.
  if (!bad && event.escaped == 0 && !of_scaler && observer.bad_values.size() == 0 &&
      !observer.poison.Poisoned()) {
    return;
  }
  ThreadState* thread = resolver_;
  uint64_t& last_bad_event =
      last_bad_event_ != nullptr ? *last_bad_event_ : event.moment.thread->last_bad_event;
  thread->optimizer_depth = event.moment.in_optimizer;
  thread->regions_open = event.moment.in_region;
  Frame& frame = thread->frames[0];
  frame = event.frame;
  frame.inputs_begin = 0;
  frame.inputs_count = static_cast<uint16_t>(event.inputs);
  frame.input_bad = false;
  frame.child_bad = last_bad_event != 0 && last_bad_event >= event.moment.first_event;

  SeenTensor* const inputs = event.tensors + event.outputs;
  bool bad_read = false;
  for (uint32_t i = 0; i < event.inputs; ++i) {
    const bool looked_at = bad && inputs[i].looked_at >= 0;
    if (looked_at) {
      FillInput(*answer->result, inputs[i].looked_at, &inputs[i].stats);
    }
    SettleInput(observer, looked_at, &inputs[i]);
    frame.input_bad |= inputs[i].seen.kinds != 0;
    bad_read |= inputs[i].seen.kinds != 0 && inputs[i].seen.argument == 0;
    thread->inputs[i] = inputs[i].seen;
    frame.inputs_unread |= inputs[i].unread && !inputs[i].seen.known;
    if (!bad && observer.poison.Poisoned() &&
        (inputs[i].seen.updated || inputs[i].seen.overwritten)) {
      observer.poison.RecordCleanWrite(inputs[i].seen.storage.storage, inputs[i].seen.byte_begin,
                                       inputs[i].seen.byte_end);
    }
  }
  if (event.is_late_copy && frame.input_bad) return ResolveLateCopy(observer, event);
  if (event.escaped != 0) return observer.scalar_reads.OnRead(thread, frame, event.escaped);
  if ((families & kUnscales) != 0) observer.scaler_state.OnUnscale(bad_read);
  if (bad) {
    thread->region = event.region;
    thread->region.source = wire::Source{};
    Traced traced;
    if (event.cut.at_layer) {
      traced = TraceAtLayer(event, *answer->result);
      thread->traced = &traced;
    }
    if (!ResolveCopyOfReceived(observer, event))
      ResolveBadOutputs(observer, event, *answer->result);
    thread->traced = nullptr;
    if (thread->region.source.kinds != 0 && region_bad_at_ < event.region.first_event) {
      region_bad_at_ = event.number;
      region_source_ = thread->region.source;
      region_value_ = thread->region.value;
    }
    last_bad_event = event.number;
    RecordNewestBad(observer, event);
  } else if (event.cut.at_layer && !event.cut.AllOutputsKnown()) {
    for (uint32_t i = 0; i < event.outputs; ++i) ResolveNotBad(observer, event, i);
  } else {
    observer.clean_outputs.OnClean(thread, frame);
  }
  if ((families & kUpdatesScale) != 0) {
    observer.steps.OnScaleUpdate(thread, {scale_, scale_known_});
    scale_known_ = false;  // in a graph it stays there
  }
}

// Of what the copy has left nothing is known but what is known of its source, all of which may be
// bad or a part.
void GpuEventQueue::ResolveLateCopy(Observer& observer, OpEvent& event) noexcept {
  SeenTensor& to = event.tensors[0];
  uint8_t kinds = 0;
  for (uint32_t i = 0; i < event.inputs; ++i) kinds |= resolver_->inputs[i].kinds;
  FillKinds(kinds, &to.stats);
  to.seen.counted = &to.stats;
  const BadOutput output{to.seen.Plain(), 0, to.seen.requires_grad};
  observer.findings.OnBadOutputs(resolver_, resolver_->frames[0], &output, 1);
}

void GpuEventQueue::ResolveBadOutputs(Observer& observer, OpEvent& event,
                                      const device::CheckResult& result) noexcept {
  Frame& frame = resolver_->frames[0];
  const uint32_t families = frame.op->families;
  BadOutput together[kBadOutputsMax];
  int count = 0;
  for (uint32_t i = 0; i < event.outputs; ++i) {
    InputSeen& seen = event.tensors[i].seen;
    wire::TensorStats& stats = event.tensors[i].stats;
    const uint8_t kinds = result.output_kinds[i];
    if (kinds == 0) {
      ResolveNotBad(observer, event, i);
      continue;
    }
    FillOutput(result, static_cast<int>(i), &stats);
    if ((families & kFills) != 0 && stats.nan != 0) stats.nan = static_cast<uint64_t>(seen.numel);
    seen.counted = &stats;
    const BadOutput output{seen.Plain(), static_cast<uint8_t>(seen.argument), seen.requires_grad};
    BadEntry known;
    if (seen.place_in_list != InputSeen::kNoList) {
      // Each tensor of a list was made of those that stand where it stands.
      frame.inputs_count = TakeInputs(event, seen.place_in_list);
      observer.findings.OnBadOutputs(resolver_, frame, &output, 1);
    } else if (!seen.rewritten) {
      together[count++] = output;
    } else if (!FindBad(observer, seen, &known)) {
      // Running statistics: reported when they go bad, and then each by itself.
      observer.findings.OnBadOutputs(resolver_, frame, &output, 1);
    }
  }
  if (count != 0) observer.findings.OnBadOutputs(resolver_, frame, together, count);
}

void GpuEventQueue::RecordNewestBad(Observer& observer, const OpEvent& event) noexcept {
  if (event.moment.place.phase != wire::Phase::kBackward) return;
  BadEntry entry;
  for (uint32_t i = 0; i < event.outputs; ++i) {
    if (!FindBad(observer, event.tensors[i].seen, &entry) || entry.value.ticket == 0) continue;
    newest_bad_ = entry.value;
    newest_bad_step_ = observer.progress.completed();
    return;
  }
}

bool GpuEventQueue::AssumeSource(Observer& observer, const ThreadState* thread,
                                 const PlainTensor& tensor, wire::Source* source,
                                 ValueRef* value) const noexcept {
  const uint32_t step = observer.progress.completed();
  if (tensor.gpu < 0 || thread != resolver_ || newest_bad_.ticket == 0 ||
      newest_bad_step_ != step || observer.level.asked() != wire::Level::kLayer) {
    return false;
  }
  *source = {};
  source->kind = static_cast<uint8_t>(wire::SourceKind::kValue);
  source->value = newest_bad_.ticket;
  *value = newest_bad_;
  return true;
}

// Gives the told op the event's inputs, of lists those in this place; their number.
uint16_t GpuEventQueue::TakeInputs(const OpEvent& event, uint16_t place) noexcept {
  uint16_t taken = 0;
  for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
    const InputSeen& input = event.tensors[i].seen;
    if (input.place_in_list != InputSeen::kNoList && input.place_in_list != place) continue;
    resolver_->inputs[taken++] = input;
  }
  return taken;
}

void GpuEventQueue::ResolveTensors(Observer& observer, OpEvent& event,
                                   const GpuAnswer& answer) noexcept {
  if (answer.measures != nullptr) return ResolveMeasures(observer, event, answer.measures);
  if (answer.sums != nullptr) ResolveSums(observer, event, *answer.sums);
  if (event.checked_as == CheckedAs::kProbe) {
    return observer.poison_watch.OnProbe(event.number, event.outputs,
                                         answer.outcome == device::Finished::Outcome::kBad);
  }
  if (answer.outcome != device::Finished::Outcome::kBad) return;
  // Whose gradients are bad is known of each step, whatever else is not told any more.
  if (observer.poison.Poisoned() && !AreGradients(event.checked_as)) return;
  if (event.is_list) return ResolveList(observer, event, answer);
  if (event.checked_as == CheckedAs::kOfRegion) SettleGiven(observer, event, answer);
  for (uint32_t i = 0; i < event.outputs; ++i) {
    if (answer.result->output_kinds[i] == 0) continue;
    FillOutput(*answer.result, static_cast<int>(i), &event.tensors[i].stats);
    ResolveTensor(observer, event, event.tensors[i]);
  }
}

// One that is bad; its `stats` are filled.
void GpuEventQueue::ResolveTensor(Observer& observer, OpEvent& event, SeenTensor& tensor) noexcept {
  tensor.seen.counted = &tensor.stats;
  const PlainTensor plain = tensor.seen.Plain();
  switch (event.checked_as) {
    case CheckedAs::kEntries:
      ResolveReceived(observer, resolver_, plain);
      return observer.named_values.ReportEntry(plain, tensor.target, NameOf(observer, tensor));
    case CheckedAs::kGradients:
      if (observer.poison.Poisoned()) return gpu_gradients_->ReportWatched(plain, tensor.named);
      return gpu_gradients_->Report(resolver_, plain, tensor.named);
    case CheckedAs::kWatchedGradients:
      return gpu_gradients_->ReportWatched(plain, tensor.named);
    case CheckedAs::kSkippableGradients:
      skips_update_ = true;
      return;
    case CheckedAs::kLoss:
      return observer.loss_reads.ReportBad(resolver_, plain, event.moment.place.layer);
    case CheckedAs::kLossNumber:
    case CheckedAs::kScale:
    case CheckedAs::kScaleOfStep:
    case CheckedAs::kGradientScale:
    case CheckedAs::kFoundInf:
    case CheckedAs::kProbe:
    case CheckedAs::kMeasuredGradients:
    case CheckedAs::kMeasuredResults:
    case CheckedAs::kSampled:
    case CheckedAs::kMeasuredUpdates:
      return;
    case CheckedAs::kGiven:
      return ResolveGiven(observer, plain);
    case CheckedAs::kReceived:
      ResolveReceived(observer, resolver_, plain);
      return;
    case CheckedAs::kOfRegion:
      return ResolveOfRegion(observer, event, plain);
    case CheckedAs::kWritten:
      return gpu_gradients_->ReportWritten(resolver_, plain, tensor.named,
                                           tensor.target == wire::Target::kOptimizerState);
  }
}

// What went into the region: known where it is bad, and where nobody knew, from now on.
void GpuEventQueue::SettleGiven(Observer& observer, OpEvent& event,
                                const GpuAnswer& answer) noexcept {
  for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
    SeenTensor& tensor = event.tensors[i];
    const int place = tensor.looked_at;
    if (place >= 0) {
      FillInput(*answer.result, place, &tensor.stats);
    }
    SettleInput(observer, place >= 0, &tensor);
    if (tensor.seen.kinds == 0 || tensor.seen.known) continue;
    if (!ResolveReceived(observer, resolver_, tensor.seen.Plain()))
      observer.external_values.Remember(tensor.seen.Plain(), tensor.target,
                                        NameOf(observer, tensor));
    tensor.seen.known = FindBad(observer, tensor.seen, &tensor.seen.bad);
  }
}

void GpuEventQueue::ResolveOfRegion(Observer& observer, const OpEvent& event,
                                    const PlainTensor& output) noexcept {
  wire::Source known{};
  ValueRef value;
  if (observer.known_bad.SourceOf(output, &known, &value)) return;
  UnobservedWriter writer =
      compiled_regions::WriterOf(event.region.name, event.region.layer, event.region.is_backward);
  // An op that the region called has said more than its arguments do.
  if (event.region.first_event != 0 && region_bad_at_ >= event.region.first_event) {
    writer.Add(region_source_, region_value_);
  } else {
    for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
      const InputSeen& given = event.tensors[i].seen;
      if (!given.known) continue;
      wire::Source source = SourceFrom(given.bad);
      source.kinds = given.kinds;
      writer.Add(source, given.bad.value);
    }
  }
  observer.compiled_writes.Report(resolver_, &writer, output);
}

void GpuEventQueue::ResolveLeaf(Observer& observer, LeafEvent& event) noexcept {
  if (!event.has_gradient) return observer.passes.RecordLeaf(resolver_, nullptr, event.named);
  InputSeen& seen = event.gradient.seen;
  BadEntry entry;
  if (seen.gpu >= 0 && FindBad(observer, seen, &entry)) {
    FillKinds(KindsOf(entry), &event.gradient.stats);
    if (bad_leaf_.ticket == 0 || bad_leaf_step_ != observer.progress.completed()) {
      bad_leaf_ = entry.value;
      bad_leaf_step_ = observer.progress.completed();
    }
  }
  seen.counted = &event.gradient.stats;
  const PlainTensor gradient = seen.Plain();
  observer.passes.RecordLeaf(resolver_, &gradient, event.named);
}

}  // namespace nanwatch
