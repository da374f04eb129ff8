// SPDX-License-Identifier: Apache-2.0
// Ops are resolved: what they left bad goes to the same functions as on the CPU.
#include "shim/check/scan.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/finding/clean_outputs.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/finding/scalar_reads.h"
#include "shim/observe/gpu/answer_stats.h"
#include "shim/observe/gpu/resolver.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/step/scaler_state.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {

bool GpuResolver::FindBad(const InputSeen& seen, BadEntry* entry) const noexcept {
  return parts_.bad_values.Find(seen.storage.storage, seen.byte_begin, seen.byte_end, entry);
}

void GpuResolver::SettleInput(bool looked_at, SeenTensor* tensor) const noexcept {
  InputSeen& seen = tensor->seen;
  seen.counted = &tensor->stats;
  seen.known = !seen.overwritten && FindBad(seen, &seen.bad);
  if (seen.known && !looked_at && (seen.gpu >= 0 || tensor->unread))
    FillKinds(KindsOf(seen.bad), &tensor->stats);
  seen.kinds = seen.overwritten ? 0 : KindsCounted(tensor->stats);
  if (seen.kinds == 0) seen.known = false;
}

void GpuResolver::FillInputs(ThreadState* thread, const Frame& frame) noexcept {
  static constexpr wire::TensorStats kClean = CountsOf(0);
  static constexpr wire::TensorStats kBad = CountsOf(wire::kHasNan);
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.gpu < 0) continue;
    input.known = !input.overwritten && FindBad(input, &input.bad);
    input.kinds = input.known ? KindsOf(input.bad) : 0;
    input.counted = input.known ? &kBad : &kClean;
  }
}

void GpuResolver::ResolveOp(OpEvent& event, const GpuAnswer* answer) noexcept {
  const bool bad = answer != nullptr && answer->outcome == device::Finished::Outcome::kBad;
  const uint32_t families = event.frame.op->families;
  const bool of_scaler = (families & (kUnscales | kUpdatesScale)) != 0;
  // The way of nearly all events.
  if (!bad && event.escaped == 0 && !of_scaler && parts_.bad_values.size() == 0 &&
      !parts_.poison.Poisoned()) {
    return;
  }
  if (IsFusedUpdate(*event.frame.op) && parts_.gradients.IsSkipped(event.moment.thread)) return;
  const bool bad_read = FillFrame(event, answer, bad);
  ThreadState* thread = resolver_;
  Frame& frame = thread->frames[0];
  if (event.is_late_copy && frame.input_bad) return ResolveLateCopy(event);
  if (event.escaped != 0) return parts_.scalar_reads.OnRead(thread, frame, event.escaped);
  if ((families & kUnscales) != 0) parts_.scaler_state.OnUnscale(bad_read);
  if (bad) {
    ResolveBadOp(event, *answer);
  } else {
    parts_.clean_outputs.OnClean(thread, frame);
  }
  if ((families & kUpdatesScale) != 0) {
    parts_.steps.OnScaleUpdate(thread, {scale_, scale_known_});
    scale_known_ = false;  // in a graph it stays there
  }
}

bool GpuResolver::FillFrame(OpEvent& event, const GpuAnswer* answer, bool bad) noexcept {
  ThreadState* thread = resolver_;
  const uint64_t last_bad_event =
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
    SettleInput(looked_at, &inputs[i]);
    frame.input_bad |= inputs[i].seen.kinds != 0;
    bad_read |= inputs[i].seen.kinds != 0 && inputs[i].seen.argument == 0;
    thread->inputs[i] = inputs[i].seen;
    frame.inputs_unread |= inputs[i].unread && !inputs[i].seen.known;
    if (!bad && parts_.poison.Poisoned() &&
        (inputs[i].seen.updated || inputs[i].seen.overwritten)) {
      parts_.poison.RecordCleanWrite(inputs[i].seen.storage.storage, inputs[i].seen.byte_begin,
                                     inputs[i].seen.byte_end);
    }
  }
  return bad_read;
}

void GpuResolver::ResolveBadOp(OpEvent& event, const GpuAnswer& answer) noexcept {
  ThreadState* thread = resolver_;
  thread->region = event.region;
  thread->region.source = wire::Source{};
  // It began while nobody asked for inputs, and had a launch of its own.
  Traced unread;
  const bool knows_inputs = thread->traced != nullptr || thread->frames[0].inputs_seen;
  if (!knows_inputs && parts_.level.was_lower()) {
    unread.complete = false;
    TraceNewest(event.moment, /*knows_none=*/true, &unread);
    thread->traced = &unread;
  }
  if (!ResolveCopyOfReceived(event)) ResolveBadOutputs(event, *answer.result);
  if (thread->traced == &unread) thread->traced = nullptr;
  if (thread->region.source.kinds != 0 && region_bad_at_ < event.region.first_event) {
    region_bad_at_ = event.number;
    region_source_ = thread->region.source;
    region_value_ = thread->region.value;
  }
  uint64_t& last_bad_event =
      last_bad_event_ != nullptr ? *last_bad_event_ : event.moment.thread->last_bad_event;
  last_bad_event = event.number;
  RecordNewestBad(event);
  for (uint32_t i = 0; i < event.outputs; ++i) {
    const uint8_t kinds = answer.result->output_kinds[i];
    if (kinds != 0) RecordNewest(event, event.tensors[i].seen, kinds);
  }
}

// Of what the copy has left nothing is known but what is known of its source, all of which may be
// bad or a part.
void GpuResolver::ResolveLateCopy(OpEvent& event) noexcept {
  SeenTensor& to = event.tensors[0];
  uint8_t kinds = 0;
  for (uint32_t i = 0; i < event.inputs; ++i) kinds |= resolver_->inputs[i].kinds;
  FillKinds(kinds, &to.stats);
  to.seen.counted = &to.stats;
  const BadOutput output{to.seen.Plain(), 0, to.seen.requires_grad};
  parts_.findings.OnBadOutputs(resolver_, resolver_->frames[0], &output, 1);
}

void GpuResolver::ResolveBadOutputs(OpEvent& event, const device::CheckResult& result) noexcept {
  Frame& frame = resolver_->frames[0];
  const uint32_t families = frame.op->families;
  BadOutput together[kBadOutputsMax];
  int count = 0;
  for (uint32_t i = 0; i < event.outputs; ++i) {
    InputSeen& seen = event.tensors[i].seen;
    wire::TensorStats& stats = event.tensors[i].stats;
    const uint8_t kinds = result.output_kinds[i];
    if (kinds == 0) {
      ForgetBad(parts_.bad_values, seen);
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
      parts_.findings.OnBadOutputs(resolver_, frame, &output, 1);
    } else if (!seen.rewritten) {
      together[count++] = output;
    } else if (!FindBad(seen, &known)) {
      // Running statistics: reported when they go bad, and then each by itself.
      parts_.findings.OnBadOutputs(resolver_, frame, &output, 1);
    }
  }
  if (count != 0) parts_.findings.OnBadOutputs(resolver_, frame, together, count);
}

void GpuResolver::RecordNewestBad(const OpEvent& event) noexcept {
  if (event.moment.place.phase != wire::Phase::kBackward) return;
  BadEntry entry;
  for (uint32_t i = 0; i < event.outputs; ++i) {
    if (!FindBad(event.tensors[i].seen, &entry) || entry.value.ticket == 0) continue;
    newest_bad_ = entry.value;
    newest_bad_step_ = parts_.progress.completed();
    return;
  }
}

bool GpuResolver::AssumeSource(const ThreadState* thread, const PlainTensor& tensor,
                               wire::Source* source, ValueRef* value) const noexcept {
  const uint32_t step = parts_.progress.completed();
  if (tensor.gpu < 0 || thread != resolver_ || newest_bad_.ticket == 0 ||
      newest_bad_step_ != step || parts_.level.asked() != wire::Level::kSampled) {
    return false;
  }
  *source = {};
  source->kind = static_cast<uint8_t>(wire::SourceKind::kValue);
  source->value = newest_bad_.ticket;
  *value = newest_bad_;
  return true;
}

// Gives the told op the event's inputs, of lists those in this place; their number.
uint16_t GpuResolver::TakeInputs(const OpEvent& event, uint16_t place) noexcept {
  uint16_t taken = 0;
  for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
    const InputSeen& input = event.tensors[i].seen;
    if (input.place_in_list != InputSeen::kNoList && input.place_in_list != place) continue;
    resolver_->inputs[taken++] = input;
  }
  return taken;
}

}  // namespace nanwatch
