// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/op_judge.h"

#include <algorithm>
#include <cstring>

#include "shim/check/scan.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/finding/op_evidence.h"
#include "shim/observe/finding/picked_values.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/finding/stacked_values.h"
#include "shim/observe/finding/written_tensor.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/read_numbers.h"
#include "shim/observe/unseen/unread_inputs.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::Source;

bool IsGivenFinite(const ThreadState* thread, StepClock& clock) {
  return thread->given_finite_after_passes_plus_one == uint64_t{clock.Now().passes} + 1;
}

// The op that was called, where it takes no number: what its part was given is no constant of the
// program's, it is what the op computes where it has no answer (the logarithm of a negative
// determinant). Null elsewhere. A mask of -Inf is how ops write what they are to leave out.
const OpTraits* WholeOp(const Finding& finding) {
  if (finding.finding_class != FindingClass::kScalar || !finding.just_made() ||
      finding.outputs[0].of_number || finding.place.phase == wire::Phase::kBackward ||
      (finding.evidence.output_kinds & wire::kHasNan) == 0) {
    return nullptr;
  }
  const OpTraits* whole = OutermostOp(*finding.thread, finding.frame);
  const bool is_another = whole != finding.frame.op && whole->schema != nullptr;
  return is_another && IsOfAten(*whole) && !TakesNumber(*whole) ? whole : nullptr;
}

// A coefficient that the optimizer has computed of its bad rate, and made a tensor of (ASGD).
bool IsFactorAsTensor(const Finding& finding) {
  const Sources& sources = finding.sources;
  const bool came_in = std::all_of(sources.list, sources.list + sources.count, [](const auto& one) {
    return one.kind == static_cast<uint8_t>(wire::SourceKind::kExternal);
  });
  return finding.place.phase == wire::Phase::kOptimizer && finding.thread->optimizer_factor_bad &&
         finding.evidence.enters && finding.outputs[0].tensor.view.numel == 1 && came_in;
}

}  // namespace

bool OpJudge::FindSources(Finding& finding) noexcept {
  ThreadState* thread = finding.thread;
  const Frame& frame = finding.frame;
  Sources& sources = finding.sources;
  const bool in_python = UserCallOf(python_, thread) != 0;
  if (in_python) finding.own = {finding.outputs, finding.count};
  finding.of_numbers = read_numbers_.MayBeIn(frame, finding.outputs[0]);
  if (finding.of_numbers) {
    // What a tensor is built of has no memory that anybody knows.
  } else if (frame.inputs_seen) {
    sources_.CollectSeen(thread, frame, finding.own, &sources);
    // What a parameter or a buffer held before is read no more than it was.
    if (PutsBad(thread, frame)) {
      const uint8_t kinds = NonFiniteKinds(finding.outputs[0].tensor.view);
      if ((kinds & ~sources.KindsBeside(0)) == 0) sources.DropExternalOf(0);
    }
  } else if (finding.just_made() && thread->regions_open == 0) {
    finding.kept.Take(frame, finding.outputs, finding.count);
    finding.kept.AddSources(sources_, thread, finding.own, &sources);
    if (sources.count == 0) stacked_values_.AddSources(frame, finding.outputs[0], &sources);
  }
  if (finding.traced != nullptr) sources.AddAll(finding.traced->sources);
  // Kernels that nobody announces run between the ops that a compiled region calls. What they made,
  // and what these ops make of it, is judged where the region returns, by what went in.
  return !sources.made_in_region || sources.count != 0;
}

// Something bad that a collective has brought in this step.
bool OpJudge::CameByCollective(Finding& finding) noexcept {
  Sources received;
  return sources_.AddReceived(finding.thread, finding.own, 255, &received);
}

bool OpJudge::IsUpdateByHand(const Finding& finding) noexcept {
  return finding.frame.op->in_place && finding.just_made() &&
         finding.place.phase != wire::Phase::kOptimizer &&
         IsUpdateOfLeaf(finding.place, finding.outputs[0], marks_, leaves_);
}

void OpJudge::Classify(Finding& finding) noexcept {
  const Frame& frame = finding.frame;
  Sources& sources = finding.sources;
  OpEvidence& evidence = finding.evidence;
  const wire::Phase phase = finding.place.phase;
  evidence = EvidenceOf(
      frame, finding.place, finding.outputs, finding.count, sources,
      {.given_finite = IsGivenFinite(finding.thread, clock_), .by_hand = IsUpdateByHand(finding)});
  const bool source_known = (finding.traced != nullptr || !frame.inputs_seen) && sources.count != 0;
  if (source_known || finding.kept.number_bad()) {
    evidence.inputs_seen = true;
    evidence.input_kinds = sources.kinds;
    evidence.scalar_bad = finding.kept.number_bad() && phase != wire::Phase::kBackward;
  }
  // By Inf, as a rate, it grows.
  if (finding.thread->optimizer_factor_bad) evidence.shrinks = false;
  // A gradient that a collective has just brought spoils an update as a rate of NaN does.
  if (evidence.bad_number && !evidence.inputs_seen && CameByCollective(finding)) {
    evidence.bad_number = false;
  }
  finding.finding_class = nanwatch::Classify(evidence);
  if (finding.finding_class == FindingClass::kExternal && IsCastTooLarge(finding)) {
    finding.finding_class = FindingClass::kProduce;
  }
  finding.whole_op = WholeOp(finding);
  if (finding.whole_op != nullptr) finding.finding_class = FindingClass::kProduce;
  if (finding.finding_class == FindingClass::kProduce && !evidence.inputs_seen &&
      phase == wire::Phase::kOptimizer && finding.thread->optimizer_factor_bad &&
      IsAllBad(finding.outputs[0].tensor.view)) {
    finding.finding_class = FindingClass::kScalar;
  }
  if (IsFactorAsTensor(finding)) {
    finding.finding_class = FindingClass::kScalar;
    sources = {};
  }
  GuessNumber(finding);
  if (!evidence.inputs_seen && !finding.number_guessed) {
    AssumeSources(finding);
  } else if (finding.finding_class == FindingClass::kExternal && sources.count == 0 &&
             finding.just_made() && std::strcmp(frame.op->name, "aten::set_") == 0 &&
             sources_.AddRuinedAlike(finding.outputs[0].tensor, evidence.output_kinds, &sources)) {
    // A checkpoint of a ruined model was loaded.
    finding.finding_class = FindingClass::kPropagate;
  }
  // "Asked for" and "came in" are said of clean inputs, and these may have been anything.
  if (finding.traced != nullptr && !finding.traced->complete && sources.count == 0 &&
      evidence.output_kinds != wire::kHasNegInf &&
      (finding.finding_class == FindingClass::kScalar ||
       finding.finding_class == FindingClass::kExternal)) {
    finding.finding_class = FindingClass::kPropagate;
    sources.Add(UnknownSource(evidence.output_kinds), 0);
  }
}

// Data that was prepared as float64: an Inf of float32 may have been there, or be made by the cast.
bool OpJudge::IsCastTooLarge(const Finding& finding) noexcept {
  return !finding.evidence.inputs_seen && finding.just_made() &&
         (finding.evidence.output_kinds & wire::kHasNan) == 0 &&
         std::strcmp(finding.frame.op->name, "aten::_to_copy") == 0 &&
         unread_inputs_.HoldCastFrom(finding.outputs[0]);
}

// A number without a source may be the last NaN that Python has read.
void OpJudge::GuessNumber(Finding& finding) noexcept {
  const bool is_number = finding.finding_class == FindingClass::kScalar &&
                         finding.sources.count == 0 &&
                         (finding.evidence.output_kinds & wire::kHasNan) != 0;
  if (!finding.of_numbers && !is_number) return;
  Source read{};
  ValueRef value;
  finding.number_guessed = read_numbers_.FindLast(&read, &value);
  if (!finding.number_guessed) return;
  finding.sources.Add(read, value.index);
  finding.finding_class = FindingClass::kScalar;
}

// Of values that were read in part, those found bad now: the op may have read any of them.
void OpJudge::AssumeSuspects(Finding& finding) noexcept {
  const Doubt* doubt = finding.thread->doubt;
  if (doubt == nullptr || doubt->suspects.count == 0 || finding.kept.complete()) return;
  Sources& sources = finding.sources;
  sources.AddAll(doubt->suspects);
  sources.assumed = true;
  const bool makes_nan = (finding.evidence.output_kinds & ~sources.kinds & wire::kHasNan) != 0;
  finding.finding_class = makes_nan ? FindingClass::kInfToNan : FindingClass::kPropagate;
}

void OpJudge::AssumeSources(Finding& finding) noexcept {
  Sources& sources = finding.sources;
  const uint8_t kinds = finding.evidence.output_kinds;
  if (finding.finding_class != FindingClass::kScalar) {
    const bool wrote_buffers =
        finding.thread->statistics_op_plus_one == finding.thread->counters.ops_seen + 1;
    sources_.Assume(finding.place, {finding.outputs, finding.count}, wrote_buffers, kinds,
                    &sources);
    // Nothing was known to be bad when the op began; what a collective has delivered since may be
    // what it read.
    if (sources.count == 0) {
      (void)sources_.AddReceived(finding.thread, finding.own, 255, &sources);
    }
  }
  BadEntry picked;
  // Weights that somebody kept are loaded. What torch.load or numpy has brought is known by then.
  const bool is_load = std::strcmp(finding.frame.op->name, "aten::copy_") == 0 &&
                       finding.place.phase == wire::Phase::kOther && finding.just_made() &&
                       sources_.IsOfModule(finding.outputs[0].tensor);
  // Or averaged.
  const bool is_outside = finding.place.phase != wire::Phase::kOptimizer &&
                          finding.place.layer == nullptr && finding.just_made();
  if (finding.finding_class == FindingClass::kExternal && sources.count == 0 &&
      !(is_load && sources_.AddLeftByPoison(kinds, 255, &sources)) &&
      !(is_outside && sources_.AddRuinedAlike(finding.outputs[0].tensor, kinds, &sources)) &&
      !sources_.AddForgotten(finding.place, kinds, 255, &sources) &&
      picked_values_.Find(finding.outputs[0], kinds, &picked)) {
    (void)sources_.AddUnread(picked, kinds, 255, &sources);
  }
  if (sources.count != 0) {
    finding.finding_class = FindingClass::kPropagate;
  } else if (finding.finding_class != FindingClass::kScalar) {
    AssumeSuspects(finding);
  }
}

}  // namespace nanwatch
