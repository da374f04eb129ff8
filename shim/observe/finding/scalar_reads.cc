// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/scalar_reads.h"

#include <cmath>

#include "proto/wire/escape_flags.h"
#include "shim/check/scan.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/finding/loss_roots.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/compiled_writer.h"
#include "shim/observe/unseen/read_numbers.h"

namespace nanwatch {

using wire::FindingClass;
using wire::Source;
using wire::ValueRecord;

// A pass may begin at the value: it is made where the roots of passes are made. A metric may be
// made by the same op there (mean, div), but needs no gradient.
bool ScalarReads::MayBeLoss(ValueRef value) noexcept {
  RecentValues::Kept made;
  return uses_.recent.Look(value, &made) &&
         (made.record.flags & ValueRecord::kNeedsGradient) != 0 &&
         uses_.loss_roots.Has(made.op, made.layer);
}

// Of a value that is forgotten nobody knows.
bool ScalarReads::NeedsNoGradient(ValueRef value) noexcept {
  RecentValues::Kept made;
  return uses_.recent.Look(value, &made) && (made.record.flags & ValueRecord::kNeedsGradient) == 0;
}

void ScalarReads::Emit(ThreadState* thread, Emitter& emitter, const Read& read) noexcept {
  wire::EscapeRecord record{};
  record.value = read.number;
  record.source = read.source;
  const Location place = LocationOf(thread);
  bool is_new = false;
  record.site = uses_.records.InternSite(
      thread, emitter,
      uses_.records.MakeKey(thread, emitter, place, read.op, FindingClass::kPropagate,
                            read.source.kinds, 0, place.flags, 0),
      &is_new);
  record.header =
      uses_.records.MakeHeader(thread, emitter, wire::RecordKind::kEscape, sizeof record);
  emitter.CountSite(record.site, record.header.ticket, record.header.clocks);
  if (read_sites_.Count(record.site, read.source.site) > kFullRecordsPerSite)
    return emitter.SkipRecord(record.site);
  if (read.asked_only) {
    record.flags |= wire::kAskedOnly;
  } else if (read.of_many) {
    record.flags |= wire::kReadWithOthers;
  } else if (MayBeLoss(read.value)) {
    record.flags |= wire::kMayBeLoss;
    emitter.RecordReach(wire::Reach::kLoss, read.value.ticket, record.header.ticket, 0,
                        record.header.clocks);
  }
  emitter.Emit(record.header);
  if (read.value.ticket != 0) uses_.records.WriteAncestors(read.value);
}

void ScalarReads::OnRead(ThreadState* thread, const Frame& frame, double number) noexcept {
  if (uses_.poison.Poisoned()) return;
  Emitter* emitter = uses_.segment.Ensure();
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
  const bool is_known = source.kind != static_cast<uint8_t>(wire::SourceKind::kNone);
  if (!is_known && std::isnan(number)) value = uses_.compiled_writes.OnNumber(thread, number);
  if (!is_known && value.ticket != 0) {
    source.kind = static_cast<uint8_t>(wire::SourceKind::kValue);
    source.value = value.ticket;
    source.kinds = wire::kHasNan;
  }
  uses_.read_numbers.OnRead(source, value, number);
  Emit(thread, *emitter, {uses_.segment.NameOf(*frame.op), source, value, number});
}

void ScalarReads::OnCompared(ThreadState* thread, const Frame& frame, Emitter& emitter) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!input.known) continue;
    const bool plain = NeedsNoGradient(input.bad.value);
    const bool orders = (frame.op->families & kOrders) != 0;
    const bool metric = orders && plain && (input.kinds & wire::kHasNan) != 0;
    const bool asked = !orders && plain && input.kinds != wire::kHasNegInf;
    if (input.numel != 1 && !asked) continue;
    if (!metric && !asked && !MayBeLoss(input.bad.value)) continue;
    Source source = SourceFrom(input.bad);
    source.kinds = input.kinds;
    const double infinity = input.kinds == wire::kHasNegInf ? -HUGE_VAL : HUGE_VAL;
    const double number = (input.kinds & wire::kHasNan) != 0 ? std::nan("") : infinity;
    return Emit(thread, emitter,
                {.op = uses_.segment.NameOf(*frame.op),
                 .source = source,
                 .value = input.bad.value,
                 .number = number,
                 .asked_only = asked});
  }
}

void ScalarReads::OnReadAll(ThreadState* thread, const Frame& frame) noexcept {
  if (uses_.poison.Poisoned() || frame.inputs_count != 1) return;
  const InputSeen& input = thread->inputs[frame.inputs_begin];
  if (!input.known || (input.kinds & wire::kHasNan) == 0 || !IsAlive(input)) return;
  wire::TensorStats stats;
  CountNonFinite(input.View(), &stats);
  if (stats.nan != static_cast<uint64_t>(input.numel)) return;
  Emitter* emitter = uses_.segment.Ensure();
  if (emitter == nullptr) return;
  Source source = SourceFrom(input.bad);
  source.kinds = input.kinds;
  Emit(thread, *emitter,
       {uses_.segment.NameOf(*frame.op), source, input.bad.value, std::nan(""), input.numel != 1});
}

}  // namespace nanwatch
