// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/scalar_reads.h"

#include <cmath>

#include "proto/wire/escape_flags.h"
#include "shim/check/scan.h"
#include "shim/observe/finding/finding_record.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/seen_inputs.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::Source;
using wire::ValueRecord;

// A pass may begin at the value: it is made where the roots of passes are made. A metric may be
// made by the same op there (mean, div), but needs no gradient.
bool MayBeLoss(Observer& observer, ValueRef value) {
  RecentValues::Kept made;
  return observer.recent_values.Look(value, &made) &&
         (made.record.flags & ValueRecord::kNeedsGradient) != 0 &&
         observer.passes.WasRoot(made.op, made.layer);
}

// Of a value that is forgotten nobody knows.
bool NeedsNoGradient(Observer& observer, ValueRef value) {
  RecentValues::Kept made;
  return observer.recent_values.Look(value, &made) &&
         (made.record.flags & ValueRecord::kNeedsGradient) == 0;
}

}  // namespace

void EmitScalarRead(Observer& observer, ThreadState* thread, const Frame& frame, Emitter& emitter,
                    const Source& source, ValueRef value, double number, bool of_many) noexcept {
  EmitScalarReadAt(observer, thread, observer.segment.NameOf(*frame.op), emitter, source, value,
                   number, of_many);
}

void EmitScalarReadAt(Observer& observer, ThreadState* thread, uint32_t op, Emitter& emitter,
                      const Source& source, ValueRef value, double number, bool of_many) noexcept {
  wire::EscapeRecord record{};
  record.value = number;
  record.source = source;
  const Location place = LocationOf(thread);
  bool is_new = false;
  record.site = observer.records.InternSite(
      thread, emitter,
      observer.records.MakeKey(thread, emitter, place, op, FindingClass::kPropagate, source.kinds,
                               0, place.flags, 0),
      &is_new);
  record.header =
      observer.records.MakeHeader(thread, emitter, wire::RecordKind::kEscape, sizeof record);
  emitter.CountSite(record.site, record.header.ticket, record.header.clocks);
  if (observer.read_sites.Count(record.site, source.site) > kFullRecordsPerSite) return;
  if (of_many) {
    record.flags |= wire::kReadWithOthers;
  } else if (MayBeLoss(observer, value)) {
    record.flags |= wire::kMayBeLoss;
    emitter.RecordReach(wire::Reach::kLoss, value.ticket, record.header.ticket, 0,
                        record.header.clocks);
  }
  emitter.Emit(record.header);
  if (value.ticket != 0) observer.records.WriteAncestors(value);
}

void RecordComparedLoss(Observer& observer, ThreadState* thread, const Frame& frame,
                        Emitter& emitter) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!input.known || input.numel != 1) continue;
    const bool metric = (frame.op->families & kOrders) != 0 && (input.kinds & wire::kHasNan) != 0 &&
                        NeedsNoGradient(observer, input.bad.value);
    if (!metric && !MayBeLoss(observer, input.bad.value)) continue;
    Source source = SourceFrom(input.bad);
    source.kinds = input.kinds;
    const double infinity = input.kinds == wire::kHasNegInf ? -HUGE_VAL : HUGE_VAL;
    const double number = (input.kinds & wire::kHasNan) != 0 ? std::nan("") : infinity;
    return EmitScalarRead(observer, thread, frame, emitter, source, input.bad.value, number);
  }
}

void EmitReadAll(Observer& observer, ThreadState* thread, const Frame& frame) noexcept {
  if (observer.Poisoned() || frame.inputs_count != 1) return;
  const InputSeen& input = thread->inputs[frame.inputs_begin];
  if (!input.known || (input.kinds & wire::kHasNan) == 0 || !IsAlive(input)) return;
  wire::TensorStats stats;
  CountNonFinite(input.View(), &stats);
  if (stats.nan != static_cast<uint64_t>(input.numel)) return;
  Emitter* emitter = observer.segment.Ensure();
  if (emitter == nullptr) return;
  Source source = SourceFrom(input.bad);
  source.kinds = input.kinds;
  EmitScalarRead(observer, thread, frame, *emitter, source, input.bad.value, std::nan(""),
                 input.numel != 1);
}

}  // namespace nanwatch
