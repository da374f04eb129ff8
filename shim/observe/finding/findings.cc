// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/findings.h"

#include <algorithm>
#include <cstring>

#include "shim/check/scan.h"
#include "shim/classify/finding_class.h"
#include "shim/observe/finding/finding_record.h"
#include "shim/observe/finding/kept_inputs.h"
#include "shim/observe/finding/op_evidence.h"
#include "shim/observe/finding/scalar_reads.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/finding/written_tensor.h"
#include "shim/observe/python/names/named_reading.h"
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

int FillInputs(Observer& observer, ThreadState* thread, const Frame& frame, Emitter& emitter,
               wire::TensorStats* stats) {
  int count = 0;
  // Bad inputs first: they are what the reader wants to see if not all fit.
  for (const bool want_bad : {true, false}) {
    for (uint32_t i = 0; i < frame.inputs_count && count < wire::kInputsMax; ++i) {
      const InputSeen& input = thread->inputs[frame.inputs_begin + i];
      if ((input.kinds != 0) != want_bad || input.overwritten || input.updated || input.rewritten ||
          !IsAlive(input)) {
        continue;
      }
      wire::TensorStats* one = &stats[count++];
      FillStats(input.View(), static_cast<uint8_t>(input.argument), one);
      observer.records.NameInput(frame, emitter, input.argument, input.impl,
                                 static_cast<const c10::StorageImpl*>(input.storage.storage), one);
      if (input.known) one->value = input.bad.value.ticket;
    }
  }
  return count;
}

// An in-place op left exactly as much bad as it found (an optimizer stepping over a parameter that
// holds a NaN row, a clipped gradient): nothing came to be, and what is known of the memory stays
// true. What is known may be of a part only (one entry of a bias was set to -Inf): it explains all
// that is bad if it counts as much.
bool IsUnchanged(Observer& observer, const Frame& frame, const BadOutput& output) {
  if (!frame.op->in_place) return false;
  BadEntry entry;
  const PlainTensor& tensor = output.tensor;
  if (!observer.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &entry) ||
      entry.byte_begin < tensor.byte_begin || entry.byte_end > tensor.byte_end ||
      entry.elements == 0) {
    return false;
  }
  BadEntry now;
  CountBad(tensor.view, &now);
  return now.elements == entry.elements && now.kinds == entry.kinds;
}

// A composite returns what an op called by it has computed and reported, or what it was given: the
// same value, once.
bool IsInherited(Observer& observer, ThreadState* thread, Frame& frame, const BadOutput* outputs,
                 int count) {
  if (!frame.op->transparent || !(frame.child_bad || PassesOn(frame))) return false;
  for (int i = 0; i < count; ++i) {
    BadEntry entry;
    if (!observer.bad_values.Find(outputs[i].tensor.storage, outputs[i].tensor.byte_begin,
                                  outputs[i].tensor.byte_end, &entry)) {
      return false;
    }
    if (SequenceEntry* sequence = SequenceOf(thread, frame); sequence != nullptr) {
      sequence->value = entry.value;
      sequence->site = entry.site;
    }
  }
  return true;
}

// Something bad that a collective has brought in this step.
bool CameByCollective(Observer& observer, ThreadState* thread, const OwnWrites& own) {
  Source received{};
  ValueRef value;
  return observer.collective_results.FindReceived(observer, thread, own.outputs, own.count,
                                                  &received, &value);
}

bool MayBeOrigin(FindingClass finding_class) {
  return finding_class == FindingClass::kProduce || finding_class == FindingClass::kInfToNan ||
         finding_class == FindingClass::kExternal;
}

// Of what one place has found `seen` times: often at first, because it may be excused for a while
// (a scaler's skips), then ever more rarely, because it may be so by design.
bool IsWorthATrail(uint32_t seen) {
  constexpr uint32_t kAlwaysMax = 16;
  return seen <= kAlwaysMax || (seen & (seen - 1)) == 0;
}

// Whether the tensors of a value that is not written yet are measured all the same. Validation may
// meet a fault many times before a training step does. That costs as much again as the op itself,
// so what is made by design over and over, a large mask, is measured ever more rarely.
bool IsWorthFigures(const BadOutput& output, uint8_t kinds, uint32_t seen) {
  constexpr int64_t kSmallMax = 1 << 16;  // elements
  constexpr uint32_t kLargeMax = 256;
  if (IsWorthATrail(seen)) return true;
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

bool IsBadRow(const void* context, size_t row) {
  TensorView view = *static_cast<const TensorView*>(context);
  const auto offset =
      static_cast<int64_t>(row) * view.strides[0] * static_cast<int64_t>(ElementBytes(view.type));
  view.data = static_cast<const unsigned char*>(view.data) + offset;
  view.numel /= view.sizes[0];
  --view.ndim;
  ++view.sizes;
  ++view.strides;
  return NonFiniteKinds(view) != 0;
}

// The rows of a tensor that others were stacked to.
LoaderFetch::Rows RowsOf(const Frame& frame, const BadOutput& output) {
  const TensorView& view = output.tensor.view;
  const bool stacked =
      strcmp(frame.op->name, "aten::stack") == 0 || strcmp(frame.op->name, "aten::cat") == 0;
  if (!stacked || output.tensor.gpu >= 0 || view.ndim == 0) return {};
  return {static_cast<size_t>(view.sizes[0]), IsBadRow, &view};
}

// Behind the tensors. The last inputs give way to it, which are finite if any are.
void FillSamples(const Observer& observer, const LoaderFetch::Rows& rows, Draft* draft) {
  wire::LoaderSamples samples;
  if (!observer.python->ReadLoaderSamples(rows, &samples)) return;
  ValueRecord& value = draft->value;
  value.n_inputs = static_cast<uint8_t>(
      std::min<int>(value.n_inputs, wire::kTensorsWithSamplesMax - value.n_outputs));
  value.flags |= ValueRecord::kHasSamples;
  std::memcpy(&draft->tensors[value.n_outputs + value.n_inputs], &samples, sizeof samples);
}

void FillTensors(Observer& observer, ThreadState* thread, const Frame& frame, Emitter& emitter,
                 const BadOutput* outputs, int count, const KeptInputs& kept, Draft* draft) {
  ValueRecord& value = draft->value;
  value.n_outputs = static_cast<uint8_t>(std::min(count, wire::kOutputsMax));
  for (int i = 0; i < value.n_outputs; ++i) {
    FillStats(outputs[i].tensor.view, outputs[i].index, &draft->tensors[i]);
    draft->tensors[i].value = value.header.ticket;
  }
  wire::TensorStats* inputs = &draft->tensors[value.n_outputs];
  const bool seen = frame.inputs_seen && frame.op->schema != nullptr;
  value.n_inputs = static_cast<uint8_t>(seen ? FillInputs(observer, thread, frame, emitter, inputs)
                                             : kept.Fill(observer, frame, emitter, inputs));
}

}  // namespace

void OnBadOutputs(Observer& observer, ThreadState* thread, Frame& frame, const BadOutput* outputs,
                  int count) noexcept {
  if (thread->proof) {
    thread->proof_seen = true;
    return;
  }
  ++thread->counters.values_bad;
  if (observer.Poisoned()) return;
  Emitter* emitter = observer.segment.Ensure();
  if (emitter == nullptr || IsInherited(observer, thread, frame, outputs, count)) return;
  BadOutput changed[kBadOutputsMax];
  int changed_count = 0;
  for (int i = 0; i < count; ++i) {
    if (!IsUnchanged(observer, frame, outputs[i])) changed[changed_count++] = outputs[i];
  }
  if (changed_count == 0) return;
  outputs = changed;
  count = changed_count;

  const Location place = LocationOf(thread);
  Sources sources;
  const bool in_python = UserCallOf(*observer.python, thread) != 0;
  const OwnWrites own{in_python ? outputs : nullptr, in_python ? count : 0};
  const Traced* traced = thread->traced;
  KeptInputs kept;
  const bool of_numbers = observer.read_numbers.MayBeIn(frame, outputs[0]);
  if (of_numbers) {
    // What a tensor is built of has no memory that anybody knows.
  } else if (frame.inputs_seen) {
    CollectSeenSources(observer, thread, frame, own, &sources);
  } else if (traced == nullptr && thread->told == nullptr && thread->regions_open == 0) {
    kept.Take(frame, outputs, count);
    kept.AddSources(observer, thread, own, &sources);
  }
  if (traced != nullptr) {
    for (int i = 0; i < traced->sources.count; ++i) {
      sources.Add(traced->sources.list[i], traced->sources.index[i]);
    }
  }
  // Kernels that nobody announces run between the ops that a compiled region calls. What they made,
  // and what these ops make of it, is judged where the region returns, by what went in.
  if (sources.made_in_region && sources.count == 0) return;
  OpEvidence evidence = EvidenceOf(frame, place, outputs, count, sources);
  const bool source_known = (traced != nullptr || !frame.inputs_seen) && sources.count != 0;
  if (source_known || kept.number_bad()) {
    evidence.inputs_seen = true;
    evidence.input_kinds = sources.kinds;
    evidence.scalar_bad = kept.number_bad() && place.phase != wire::Phase::kBackward;
  }
  // A gradient that a collective has just brought spoils an update as a rate of NaN does.
  if (evidence.bad_number && !evidence.inputs_seen && CameByCollective(observer, thread, own)) {
    evidence.bad_number = false;
  }
  FindingClass finding_class = Classify(evidence);
  if (finding_class == FindingClass::kProduce && !evidence.inputs_seen &&
      place.phase == wire::Phase::kOptimizer && thread->optimizer_number_bad &&
      IsAllBad(outputs[0].tensor.view)) {
    finding_class = FindingClass::kScalar;
  }
  bool number_guessed = false;
  if (of_numbers || (finding_class == FindingClass::kScalar && sources.count == 0 &&
                     (evidence.output_kinds & wire::kHasNan) != 0)) {
    Source read{};
    ValueRef read_value;
    number_guessed = observer.read_numbers.FindLast(&read, &read_value);
    if (number_guessed) {
      sources.Add(read, read_value.index);
      finding_class = FindingClass::kScalar;
    }
  }
  if (!evidence.inputs_seen && !number_guessed) {
    if (finding_class != FindingClass::kScalar)
      AssumeSources(observer, place, outputs, count, evidence.output_kinds, &sources);
    Source received{};
    ValueRef received_value;
    // Nothing was known to be bad when the op began; what a collective has delivered since may be
    // what it read.
    if (finding_class != FindingClass::kScalar && sources.count == 0 &&
        observer.collective_results.FindReceived(observer, thread, own.outputs, own.count,
                                                 &received, &received_value)) {
      received.input = 255;
      sources.Add(received, received_value.index);
    }
    if (finding_class == FindingClass::kExternal && sources.count == 0) {
      (void)AddForgotten(observer, place, evidence.output_kinds, 255, &sources);
    }
    if (sources.count != 0) finding_class = FindingClass::kPropagate;
  }

  // "Asked for" and "came in" are said of clean inputs, and these may have been anything.
  if (traced != nullptr && !traced->complete && sources.count == 0 &&
      evidence.output_kinds != wire::kHasNegInf &&
      (finding_class == FindingClass::kScalar || finding_class == FindingClass::kExternal)) {
    finding_class = FindingClass::kPropagate;
    sources.Add(UnknownSource(evidence.output_kinds), 0);
  }

  const Written written = WhatWasWritten(observer, frame, place, *emitter, outputs[0]);
  const bool came_in = finding_class == FindingClass::kExternal;
  if (came_in && sources.count == 0) {
    shared_files::AddSource(observer, outputs[0].tensor, written, evidence.output_kinds, &sources);
  }
  uint8_t output_bits = 0;
  for (int i = 0; i < count; ++i) output_bits |= static_cast<uint8_t>(1u << (outputs[i].index & 7));
  uint32_t flags = place.flags | written.flags;
  uint32_t op_name = observer.segment.NameOf(*frame.op);
  if (thread->regions_open != 0 && !frame.inputs_seen) {
    op_name = InternText(*emitter, thread->region.name);
    flags |= ValueRecord::kIsCompiledRegion;
  }
  const SiteKey key =
      observer.records.MakeKey(thread, *emitter, place, op_name, finding_class,
                               evidence.output_kinds, output_bits, flags, written.name);
  bool is_new = false;
  const uint32_t site = observer.records.InternSite(thread, *emitter, key, &is_new);

  Draft draft;
  ValueRecord& value = draft.value;
  value.header = observer.records.MakeHeader(thread, *emitter, wire::RecordKind::kValue, 0);
  const uint32_t seen = emitter->CountSite(site, value.header.ticket, value.header.clocks);
  value.site = site;
  value.flags =
      flags | (frame.inputs_seen ? ValueRecord::kInputsSeen : 0u) |
      (outputs[0].requires_grad ? ValueRecord::kNeedsGradient : 0u) |
      ((traced != nullptr && !traced->complete) || sources.assumed ? ValueRecord::kInexact : 0u) |
      GpuFlag(outputs[0].tensor);
  const bool judged = traced != nullptr;
  if (judged || (thread->told == nullptr && thread->regions_open == 0)) {
    const Claim claim{
        thread, finding_class, evidence.output_kinds,        place.phase,         outputs,
        count,  &sources,      seen <= kLookedBehindPerSite, kept.number_known(), judged};
    value.flags |= OutOfSight(observer, frame, claim);
  }
  if (number_guessed) value.flags |= ValueRecord::kUnseenInputs;
  value.param = written.name;
  value.target = static_cast<uint8_t>(written.target);
  value.pass = place.pass;
  value.n_sources = static_cast<uint8_t>(sources.count);
  std::copy(sources.list, sources.list + sources.count, value.sources);
  const bool matters = (flags & (ValueRecord::kWroteParameter | ValueRecord::kWroteBuffer)) != 0;
  const bool write = seen <= (matters ? kFullWritesPerSite : kFullRecordsPerSite);
  if (write ||
      (MayBeOrigin(finding_class) && IsWorthFigures(outputs[0], evidence.output_kinds, seen))) {
    FillTensors(observer, thread, frame, *emitter, outputs, count, kept, &draft);
    const bool just_made = traced == nullptr && thread->told == nullptr;
    if (just_made && (MayBeOrigin(finding_class) || finding_class == FindingClass::kScalar)) {
      FillSamples(observer, RowsOf(frame, outputs[0]), &draft);
    }
  }
  const ValueRef ref = observer.records.File(*emitter, draft, sources, key, write, is_new);
  if (is_new) observer.python->CallAtExitSoon();
  if (MayBeOrigin(finding_class) && IsWorthATrail(seen)) {
    observer.trail.Keep(thread, value.header.ticket);
  }
  if (__builtin_expect(frame.kernels_pushed, 0) && outputs[0].tensor.gpu >= 0 &&
      finding_class != FindingClass::kPropagate && IsWorthATrail(seen)) {
    observer.op_kernels.RecordFinding(frame, value.header);
  }
  observer.records.RecordReachOf(*emitter, value, ref);
  wire::Source as_source{};
  as_source.kind = static_cast<uint8_t>(SourceKind::kValue);
  as_source.site = site;
  as_source.value = ref.ticket;
  as_source.kinds = evidence.output_kinds;
  as_source.input = 255;
  if (!came_in) shared_files::OnBadOutputs(observer, thread, outputs, count, as_source);
  if (thread->regions_open != 0 && thread->region.source.kinds == 0) {
    thread->region.source = as_source;
    thread->region.value = ref;
  }
  Remember(observer, outputs, count, ref, site, written, IsOfUpdate(thread, place, outputs[0]),
           frame.op->in_place || came_in || outputs[0].tensor.gpu >= 0);
  // A constant that was asked for (a class switched off by a bias of -Inf) ruins nothing by itself:
  // what reads it is watched on. What an update makes of it is another matter.
  const bool mask = evidence.output_kinds == wire::kHasNegInf;
  const bool deliberate = thread->optimizer_depth == 0 &&
                          observer.recent_values.WasGiven(ref, /*external_counts=*/mask);
  if (written.target == Target::kParameter && !deliberate) {
    observer.poison.Mark(written.named, outputs[0].tensor);
  }
  if (SequenceEntry* sequence = SequenceOf(thread, frame); sequence != nullptr) {
    sequence->value = ref;
    sequence->site = site;
  }
}

void OnCleanOutputs(Observer& observer, ThreadState* thread, Frame& frame) noexcept {
  if (observer.Poisoned()) return;
  // What was written over cleanly is no longer bad.
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!(input.updated || input.overwritten)) continue;
    ForgetBad(observer.bad_values, input);
  }
  if (!frame.input_bad || frame.op->schema == nullptr || frame.op->skip || frame.child_bad ||
      (frame.op->families & kReadsMetadata) != 0) {
    return;
  }
  Emitter* emitter = observer.segment.emitter();
  if (emitter == nullptr) return;
  if ((frame.op->families & kCompares) != 0) RecordComparedLoss(observer, thread, frame, *emitter);
  Sources sources;
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!input.known) continue;
    Source source = SourceFrom(input.bad);
    source.kinds = input.kinds;
    source.input = static_cast<uint8_t>(std::min<int>(input.argument, 255));
    sources.Add(source, input.bad.value.index);
  }
  const Location place = LocationOf(thread);
  bool is_new = false;
  const uint32_t site = observer.records.InternSite(
      thread, *emitter,
      observer.records.MakeKey(thread, *emitter, place, observer.segment.NameOf(*frame.op),
                               FindingClass::kKilled, sources.kinds, 0, place.flags, 0),
      &is_new);
  wire::KillRecord record{};
  record.header =
      observer.records.MakeHeader(thread, *emitter, wire::RecordKind::kKill, sizeof record);
  const uint32_t seen = emitter->CountSite(site, record.header.ticket, record.header.clocks);
  if (seen > kFullRecordsPerSite) return;
  record.site = site;
  record.n_sources = static_cast<uint8_t>(sources.count);
  std::copy(sources.list, sources.list + sources.count, record.sources);
  emitter->Emit(record.header);
}

// A view of a bad value stands for it where autograd nodes are concerned, and what is written over
// with good values is good again.
void OnSkippedOutput(Observer& observer, ThreadState* thread, const Frame& frame,
                     const PlainTensor& tensor) noexcept {
  if (observer.bad_values.size() == 0) return;
  if ((frame.op->families & kCreates) != 0) {
    return observer.bad_values.Clear(tensor.storage, tensor.byte_begin, tensor.byte_end,
                                     tensor.IsDense());
  }
  BadEntry entry;
  SequenceEntry* sequence = frame.op->is_view ? SequenceOf(thread, frame) : nullptr;
  if (sequence == nullptr ||
      !observer.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &entry)) {
    return;
  }
  sequence->value = entry.value;
  sequence->site = entry.site;
}

void OnScalarRead(Observer& observer, ThreadState* thread, Frame& frame, double number) noexcept {
  if (observer.Poisoned()) return;
  Emitter* emitter = observer.segment.Ensure();
  if (emitter == nullptr) return;
  Source source{};
  ValueRef value;
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!input.known) continue;
    source = SourceFrom(input.bad);
    source.kinds = input.kinds;
    value = input.bad.value;
  }
  observer.read_numbers.OnRead(observer, source, value, number);
  EmitScalarRead(observer, thread, frame, *emitter, source, value, number);
}

}  // namespace nanwatch
