// SPDX-License-Identifier: Apache-2.0
// Events that waited for a cut of level layer are resolved (gpu_cuts.h).
#include <algorithm>
#include <string_view>

#include "shim/host/monotonic_clock.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/resolver.h"
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

bool GpuResolver::IsHeldForCuts(OpEvent& event) noexcept {
  // Nothing happens in the job: no cut will come for long.
  constexpr uint64_t kQuietNs = 1'000'000'000;
  if (!state_.cuts.MayReport(event.cut)) {
    const uint64_t now = MonotonicNs();
    const uint64_t noted = state_.ring.clock().noted.load(std::memory_order_relaxed);
    if (quiet_at_ != noted) {
      quiet_at_ = noted;
      quiet_since_ns_ = now;
    }
    if (now - quiet_since_ns_ < kQuietNs) return true;
    state_.cuts.LetGo();
    if (!state_.cuts.MayReport(event.cut)) return true;
  }
  if (event.cut.at_once) return false;
  const uint64_t unanswered = state_.cuts.FirstUnanswered(event.cut);
  if (unanswered == 0) return false;
  event.ticket = unanswered;
  return !IsStuck(event);
}

void GpuResolver::ResolveByCuts(OpEvent& event) noexcept {
  device::CheckResult found{};
  bool bad = false;
  uint64_t known = 0;
  int inputs = 0;
  for (uint32_t i = 0; i < event.outputs + event.inputs; ++i) {
    SeenTensor& tensor = event.tensors[i];
    const bool is_output = i < event.outputs;
    if (!is_output) tensor.looked_at = -1;
    const GpuCuts::Finding finding = state_.cuts.Find(tensor.cut);
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
  RecordResolvedAtLayer(event, known);
  const GpuAnswer answer{event.ticket, device::Finished::Outcome::kBad, &found};
  ResolveOp(event, bad ? &answer : nullptr);
}

void GpuResolver::RecordResolvedAtLayer(OpEvent& event, uint64_t known) noexcept {
  event.cut.known = known;
  const uint64_t all = event.cut.AllOutputsKnown() ? GpuCuts::kOutputsKnown : 0;
  constexpr uint64_t kOfTensors = GpuCuts::kHandsOnNan - 1;
  state_.cuts.RecordTold(event.number, (known & kOfTensors) | all);
}

void GpuResolver::ResolveKnown(const QueuedEvent& event) noexcept {
  if (state_.cuts.AnyNoted()) state_.cuts.RecordTold(event.number, kAllKnown);
}

void GpuResolver::ResolveNotBad(OpEvent& event, uint32_t output) noexcept {
  ForgetBad(parts_.bad_values, event.tensors[output].seen);
  if (event.cut.at_layer && !event.cut.IsKnown(output)) ResolveUnknown(event);
}

// Nobody knows what the op has left there. If something bad went in, it may be bad, too.
void GpuResolver::ResolveUnknown(const OpEvent& event) noexcept {
  const auto note = [this, &event](const BadEntry& from, uint8_t kinds, bool sure) {
    state_.cuts.RecordDoubt(event.number, from, kinds);
    if (!sure || !HandsOnNan(*event.frame.op)) return;
    state_.cuts.RecordTold(event.number,
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
      const BadEntry* doubt = state_.cuts.FindDoubt(writer);
      const bool sure = state_.cuts.IsResolved(writer, GpuCuts::kHandsOnNan);
      if (doubt != nullptr) return note(*doubt, doubt->kinds, sure);
    }
  }
}

Traced GpuResolver::TraceAtLayer(const OpEvent& event, const device::CheckResult& result) noexcept {
  Traced traced = state_.cuts.Trace(event.cut);
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
