// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/findings.h"

#include <algorithm>
#include <cstring>

#include "shim/check/scan.h"
#include "shim/classify/finding_class.h"
#include "shim/observe/capsule/capsules.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/figures/trail.h"
#include "shim/observe/finding/op_evidence.h"
#include "shim/observe/finding/op_judge.h"
#include "shim/observe/finding/stacked_rows.h"
#include "shim/observe/finding/unchanged_values.h"
#include "shim/observe/finding/written_tensor.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/out_of_sight.h"
#include "shim/observe/unseen/shared_files.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::Source;
using wire::SourceKind;
using wire::Target;
using wire::ValueRecord;

// Writes to parameters and the like matter by themselves.
constexpr uint32_t kFullWritesPerSite = 8;
// Of so many findings of one place it is asked whether their inputs were finite (unread_inputs.h).
constexpr uint32_t kLookedBehindPerSite = 8;

bool MayBeOrigin(FindingClass finding_class) {
  return finding_class == FindingClass::kProduce || finding_class == FindingClass::kInfToNan ||
         finding_class == FindingClass::kExternal;
}

// An op that met nothing bad but what came in from outside: an origin of that kind names it.
bool IsFirstToRead(const Finding& finding) {
  const Sources& sources = finding.sources;
  return finding.finding_class == FindingClass::kPropagate && sources.count != 0 &&
         std::all_of(sources.list, sources.list + sources.count, [](const Source& source) {
           return source.kind == static_cast<uint8_t>(SourceKind::kExternal);
         });
}

// Whether the tensors of a value that is not written yet are measured all the same. Validation may
// meet a fault many times before a training step does. That costs as much again as the op itself,
// so what is made by design over and over, a large mask, is measured ever more rarely.
bool IsWorthFigures(const BadOutput& output, uint8_t kinds, uint32_t seen) {
  constexpr int64_t kSmallMax = 1 << 16;  // elements
  constexpr uint32_t kLargeMax = 256;
  if (IsEarlyOrRare(seen)) return true;
  if (kinds == wire::kHasNegInf) return false;
  return output.tensor.view.numel <= kSmallMax || seen <= kLargeMax;
}

// Written by an update itself. What its closure makes is the training's: losses and activations,
// and all that a backward pass leaves. An update that runs with gradients on has neither.
bool IsOfUpdate(const ThreadState* thread, const Location& place, const BadOutput& output) {
  if (thread->optimizer_depth == 0) return false;
  if (place.phase == wire::Phase::kOptimizer) return true;
  return place.phase == wire::Phase::kForward && place.pass == 0 && place.layer == nullptr &&
         !output.requires_grad;
}

}  // namespace

int Findings::TakeChanged(const ThreadState* thread, const Frame& frame, const BadOutput* outputs,
                          int count, BadOutput* changed) noexcept {
  int changed_count = 0;
  for (int i = 0; i < count; ++i) {
    if (!IsUnchanged(thread, frame, outputs[i], uses_.known_bad))
      changed[changed_count++] = outputs[i];
  }
  return changed_count;
}

// A composite returns what an op called by it has computed and reported, or what it was given: the
// same value, once.
bool Findings::IsInherited(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                           int count) noexcept {
  if (!frame.op->transparent || !(frame.child_bad || PassesOn(frame))) return false;
  for (int i = 0; i < count; ++i) {
    BadEntry entry;
    if (!uses_.known_bad.Find(outputs[i].tensor, &entry)) return false;
    if (SequenceEntry* sequence = SequenceOf(thread, frame); sequence != nullptr) {
      sequence->value = entry.value;
      sequence->site = entry.site;
    }
  }
  return true;
}

// A composite keeps a NaN at hand for where it has no answer (the logarithm of a negative
// determinant). Whether it was needed shows in what follows. Where inputs are asked for, what takes
// it has to know it.
bool Findings::IsPartsConstant(const Finding& finding) const noexcept {
  return finding.whole_op != nullptr && (finding.frame.op->families & kFills) != 0 &&
         finding.count == 1 && finding.outputs[0].tensor.view.numel == 1 &&
         !finding.frame.inputs_seen && !uses_.known_bad.AnyTransient();
}

void Findings::OnBadOutputs(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                            int count) noexcept {
  if (thread->proof) {
    thread->proof_seen = true;
    return;
  }
  ++thread->counters.values_bad;
  if (uses_.poison.Poisoned()) return;
  Emitter* emitter = uses_.segment.Ensure();
  if (emitter == nullptr || IsInherited(thread, frame, outputs, count)) return;
  BadOutput changed[kBadOutputsMax];
  const int changed_count = TakeChanged(thread, frame, outputs, count, changed);
  if (changed_count == 0) return;
  Finding finding(thread, frame, changed, changed_count, *emitter);
  if (!uses_.judge.FindSources(finding)) return;
  uses_.judge.Classify(finding);
  if (FollowRest(finding, uses_.known_bad, uses_.recent)) return;
  if (IsPartsConstant(finding)) {
    --thread->counters.values_bad;
    return;
  }
  NameSite(finding);
  FillRecord(finding);
  File(finding);
  Follow(finding);
  RememberWritten(finding);
}

void Findings::NameSite(Finding& finding) noexcept {
  const Frame& frame = finding.frame;
  ThreadState* thread = finding.thread;
  Emitter& emitter = finding.emitter;
  const uint8_t kinds = finding.evidence.output_kinds;
  Written& written = finding.written;
  written = WhatWasWritten(uses_.python.names(), frame, finding.place, emitter, finding.outputs[0],
                           uses_.marks, uses_.leaves);
  // A copy of the model that averages its weights. What a checkpoint or a constant left there is
  // told when the module is called. A tensor that is told of late may be gone.
  const PlainTensor& first = finding.outputs[0].tensor;
  const bool is_there = first.gpu < 0 && first.view.counted == nullptr && finding.just_made();
  if (written.target == Target::kNone && frame.op->in_place && is_there &&
      finding.finding_class != FindingClass::kExternal &&
      finding.finding_class != FindingClass::kScalar && kinds != wire::kHasNegInf &&
      uses_.python.names().IsParameterObject(first.impl)) {
    written.target = Target::kParameter;
    written.flags |= ValueRecord::kWroteParameter;
    written.never_called = true;
  }
  if (finding.finding_class == FindingClass::kExternal && written.target == Target::kNone &&
      kinds != wire::kHasNegInf) {
    uses_.python.names().ExpectReplaced();
  }
  if (finding.finding_class == FindingClass::kExternal && finding.sources.count == 0) {
    uses_.shared_files.AddSource(finding.outputs[0].tensor, written, kinds, &finding.sources);
  }
  uint8_t output_bits = 0;
  for (int i = 0; i < finding.count; ++i) {
    output_bits |= static_cast<uint8_t>(1u << (finding.outputs[i].index & 7));
  }
  uint32_t flags = finding.place.flags | written.flags;
  uint32_t op_name =
      uses_.segment.NameOf(finding.whole_op != nullptr ? *finding.whole_op : *frame.op);
  if (thread->regions_open != 0 && !frame.inputs_seen) {
    op_name = InternText(emitter, thread->region.name);
    flags |= ValueRecord::kIsCompiledRegion;
  }
  finding.key =
      uses_.records.MakeKey(thread, emitter, finding.place, op_name, finding.finding_class, kinds,
                            output_bits, flags, written.name);
  finding.site = uses_.records.InternSite(thread, emitter, finding.key, &finding.is_new_site);
}

void Findings::FillRecord(Finding& finding) noexcept {
  const Frame& frame = finding.frame;
  ThreadState* thread = finding.thread;
  const Sources& sources = finding.sources;
  const BadOutput& first = finding.outputs[0];
  const bool is_traced = finding.traced != nullptr;
  ValueRecord& value = finding.draft.value;
  value.header = uses_.records.MakeHeader(thread, finding.emitter, wire::RecordKind::kValue, 0);
  finding.seen = finding.emitter.CountSite(finding.site, value.header.ticket, value.header.clocks);
  value.site = finding.site;
  const bool inexact = (is_traced && !finding.traced->complete) || sources.assumed;
  value.flags = finding.key.flags | (frame.inputs_seen ? ValueRecord::kInputsSeen : 0u) |
                (first.requires_grad ? ValueRecord::kNeedsGradient : 0u) |
                (inexact ? ValueRecord::kInexact : 0u) | GpuFlag(first.tensor);
  if (is_traced || (thread->told == nullptr && thread->regions_open == 0)) {
    const Claim claim{.thread = thread,
                      .finding_class = finding.finding_class,
                      .output_kinds = finding.evidence.output_kinds,
                      .phase = finding.place.phase,
                      .outputs = finding.outputs,
                      .count = finding.count,
                      .sources = &sources,
                      .is_new = finding.seen <= kLookedBehindPerSite,
                      .number_known = finding.kept.number_known(),
                      .traced = is_traced,
                      .inputs_known = finding.kept.complete()};
    value.flags |= uses_.out_of_sight.FlagsOf(frame, claim);
  }
  if (finding.number_guessed || sources.unread) value.flags |= ValueRecord::kUnseenInputs;
  value.param = finding.written.name;
  value.target = static_cast<uint8_t>(finding.written.target);
  value.pass = finding.place.pass;
  value.n_sources = static_cast<uint8_t>(sources.count);
  std::copy(sources.list, sources.list + sources.count, value.sources);
}

int Findings::FillInputs(const Finding& finding, wire::TensorStats* stats) noexcept {
  const Frame& frame = finding.frame;
  int count = 0;
  // Bad inputs first: they are what the reader wants to see if not all fit.
  for (const bool want_bad : {true, false}) {
    for (uint32_t i = 0; i < frame.inputs_count && count < wire::kInputsMax; ++i) {
      const InputSeen& input = finding.thread->inputs[frame.inputs_begin + i];
      if ((input.kinds != 0) != want_bad || input.overwritten || input.updated || input.rewritten ||
          !IsAlive(input)) {
        continue;
      }
      wire::TensorStats* one = &stats[count++];
      FillStats(input.View(), static_cast<uint8_t>(input.argument), one);
      uses_.records.NameInput(frame, finding.emitter, input.argument, input.impl,
                              static_cast<const c10::StorageImpl*>(input.storage.storage), one);
      if (input.known) one->value = input.bad.value.ticket;
    }
  }
  return count;
}

void Findings::FillTensors(Finding& finding) noexcept {
  const Frame& frame = finding.frame;
  Draft& draft = finding.draft;
  ValueRecord& value = draft.value;
  value.n_outputs = static_cast<uint8_t>(std::min(finding.count, wire::kOutputsMax));
  for (int i = 0; i < value.n_outputs; ++i) {
    FillStats(finding.outputs[i].tensor.view, finding.outputs[i].index, &draft.tensors[i]);
    draft.tensors[i].value = value.header.ticket;
  }
  wire::TensorStats* inputs = &draft.tensors[value.n_outputs];
  const bool seen = frame.inputs_seen && frame.op->schema != nullptr;
  value.n_inputs = static_cast<uint8_t>(
      seen ? FillInputs(finding, inputs)
           : finding.kept.Fill(uses_.records, uses_.known_bad, frame, finding.emitter, inputs));
}

// Behind the tensors. The last inputs give way to it, which are finite if any are.
void Findings::FillSamples(Finding& finding) noexcept {
  wire::LoaderSamples samples;
  const LoaderFetch::Rows rows = StackedRowsOf(finding.frame, finding.outputs[0]);
  if (!uses_.python.ReadLoaderSamples(rows, &samples)) return;
  ValueRecord& value = finding.draft.value;
  value.n_inputs = static_cast<uint8_t>(
      std::min<int>(value.n_inputs, wire::kTensorsWithSamplesMax - value.n_outputs));
  value.flags |= ValueRecord::kHasSamples;
  std::memcpy(&finding.draft.tensors[value.n_outputs + value.n_inputs], &samples, sizeof samples);
}

void Findings::File(Finding& finding) noexcept {
  constexpr uint32_t kMatters = ValueRecord::kWroteParameter | ValueRecord::kWroteBuffer;
  const bool matters = (finding.key.flags & kMatters) != 0;
  const bool may_be_origin = MayBeOrigin(finding.finding_class);
  const bool write = finding.seen <= (matters ? kFullWritesPerSite : kFullRecordsPerSite);
  if (write || (may_be_origin &&
                IsWorthFigures(finding.outputs[0], finding.evidence.output_kinds, finding.seen))) {
    FillTensors(finding);
    if (finding.just_made() && (may_be_origin || finding.finding_class == FindingClass::kScalar)) {
      FillSamples(finding);
    }
  }
  finding.value = uses_.records.File(finding.emitter, finding.draft, finding.sources, finding.key,
                                     write, finding.is_new_site);
  if (finding.is_new_site) uses_.python.CallAtExitSoon();
}

void Findings::KeepCapsule(const Finding& finding) noexcept {
  const OpTraits& op = finding.whole_op != nullptr ? *finding.whole_op : *finding.frame.op;
  uses_.capsules.OnPossibleOrigin({.thread = finding.thread,
                                   .frame = finding.frame,
                                   .outputs = finding.outputs,
                                   .count = finding.count,
                                   .place = finding.place,
                                   .header = finding.draft.value.header,
                                   .finding_class = finding.finding_class,
                                   .kinds = finding.evidence.output_kinds,
                                   .op = op.name,
                                   .site = finding.site,
                                   .seen = finding.seen,
                                   .emitter = finding.emitter});
}

void Findings::Follow(const Finding& finding) noexcept {
  ThreadState* thread = finding.thread;
  const ValueRecord& value = finding.draft.value;
  if (__builtin_expect(uses_.capsules.on(), 0) &&
      (MayBeOrigin(finding.finding_class) || IsFirstToRead(finding))) {
    if (finding.just_made()) {
      KeepCapsule(finding);
    } else if (finding.outputs[0].tensor.gpu >= 0) {
      uses_.capsules.OnPossibleOriginOnGpu();
    }
  }
  if (MayBeOrigin(finding.finding_class) && IsEarlyOrRare(finding.seen)) {
    uses_.trail.Keep(thread, value.header.ticket);
  }
  if (__builtin_expect(finding.frame.kernels_pushed, 0) && finding.outputs[0].tensor.gpu >= 0 &&
      finding.finding_class != FindingClass::kPropagate && IsEarlyOrRare(finding.seen)) {
    uses_.sink.RecordFinding(finding.frame, value.header);
  }
  uses_.records.RecordReachOf(finding.emitter, value, finding.value);
  Source as_source{};
  as_source.kind = static_cast<uint8_t>(SourceKind::kValue);
  as_source.site = finding.site;
  as_source.value = finding.value.ticket;
  as_source.kinds = finding.evidence.output_kinds;
  as_source.input = 255;
  if (finding.finding_class != FindingClass::kExternal) {
    uses_.shared_files.OnBadOutputs(thread, finding.outputs, finding.count, as_source);
  }
  if (thread->regions_open != 0 && thread->region.source.kinds == 0) {
    thread->region.source = as_source;
    thread->region.value = finding.value;
  }
}

void Findings::RememberWritten(const Finding& finding) noexcept {
  ThreadState* thread = finding.thread;
  const BadOutput& first = finding.outputs[0];
  const bool mask = finding.evidence.output_kinds == wire::kHasNegInf;
  uses_.known_bad.Remember(finding.outputs, finding.count,
                           {.value = finding.value,
                            .site = finding.site,
                            .written = finding.written,
                            .in_optimizer = IsOfUpdate(thread, finding.place, first),
                            .kinds = finding.evidence.output_kinds,
                            .count_elements = finding.frame.op->in_place || mask ||
                                              finding.finding_class == FindingClass::kExternal ||
                                              first.tensor.gpu >= 0});
  // A constant that was asked for (a class switched off by a bias of -Inf) ruins nothing by itself:
  // what reads it is watched on. What an update makes of it is another matter.
  const bool deliberate = thread->optimizer_depth == 0 && !finding.evidence.bad_number &&
                          uses_.recent.WasGiven(finding.value, /*external_counts=*/mask);
  if (finding.written.target == Target::kParameter && !deliberate &&
      !finding.written.never_called) {
    uses_.poison.Mark(finding.written.named, first.tensor);
  }
  if (SequenceEntry* sequence = SequenceOf(thread, finding.frame); sequence != nullptr) {
    sequence->value = finding.value;
    sequence->site = finding.site;
  }
}

}  // namespace nanwatch
