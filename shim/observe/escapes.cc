#include "shim/observe/escapes.h"

#include <cmath>

#include "shim/observe/finding_record.h"
#include "shim/observe/place.h"

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

}  // namespace

void EmitEscape(Observer& observer, ThreadState* thread, const Frame& frame, Emitter& emitter,
                const Source& source, ValueRef value, double number) noexcept {
  EmitEscapeAt(observer, thread, observer.NameOf(*frame.op), emitter, source, value, number);
}

void EmitEscapeAt(Observer& observer, ThreadState* thread, uint32_t op, Emitter& emitter,
                  const Source& source, ValueRef value, double number) noexcept {
  wire::EscapeRecord record{};
  record.value = number;
  record.source = source;
  const Place place = PlaceOf(thread);
  bool is_new = false;
  record.site = InternSite(observer, thread, emitter,
                           MakeKey(observer, thread, emitter, place, op, FindingClass::kPropagate,
                                   source.kinds, 0, place.flags, 0),
                           &is_new);
  record.header = MakeHeader(observer, thread, emitter, wire::RecordKind::kEscape, sizeof record);
  emitter.CountSite(record.site, record.header.ticket, record.header.clocks);
  if (observer.read_sites.Count(record.site, source.site) > kFullRecordsPerSite) return;
  if (MayBeLoss(observer, value)) {
    record.flags |= 1;
    emitter.NoteReach(wire::Reach::kLoss, value.ticket, record.header.ticket, 0,
                      record.header.clocks);
  }
  emitter.Emit(record.header);
  if (value.ticket != 0) WriteAncestors(observer, value);
}

void NoteComparedLoss(Observer& observer, ThreadState* thread, const Frame& frame,
                      Emitter& emitter) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!input.known || input.numel != 1 || !MayBeLoss(observer, input.bad.value)) continue;
    Source source = SourceFrom(input.bad);
    source.kinds = input.kinds;
    const double infinity = input.kinds == wire::kHasNegInf ? -HUGE_VAL : HUGE_VAL;
    const double number = (input.kinds & wire::kHasNan) != 0 ? std::nan("") : infinity;
    return EmitEscape(observer, thread, frame, emitter, source, input.bad.value, number);
  }
}

}  // namespace nanwatch
