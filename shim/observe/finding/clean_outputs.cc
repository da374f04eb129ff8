// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/clean_outputs.h"

#include <algorithm>

#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/finding/scalar_reads.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/seen_inputs.h"

namespace nanwatch {

using wire::FindingClass;
using wire::Source;

void CleanOutputs::OnClean(ThreadState* thread, Frame& frame) noexcept {
  if (uses_.poison.Poisoned()) return;
  // What was written over cleanly is no longer bad. What the ops that a composite is made of have
  // left bad (pow_ within square_) is known, and was not looked at again.
  const bool by_children = frame.child_bad && frame.op->transparent;
  for (uint32_t i = 0; i < frame.inputs_count && !by_children; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.updated || input.overwritten) ForgetBad(uses_.bad_values, input);
  }
  if (!frame.input_bad || frame.op->schema == nullptr || frame.op->skip || frame.child_bad ||
      (frame.op->families & kReadsMetadata) != 0) {
    return;
  }
  Emitter* emitter = uses_.segment.emitter();
  if (emitter == nullptr) return;
  if ((frame.op->families & kCompares) != 0) uses_.scalar_reads.OnCompared(thread, frame, *emitter);
  RecordKill(thread, frame, *emitter);
}

void CleanOutputs::RecordKill(ThreadState* thread, const Frame& frame,
                              Emitter& emitter) const noexcept {
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
  const uint32_t site = uses_.records.InternSite(
      thread, emitter,
      uses_.records.MakeKey(thread, emitter, place, uses_.segment.NameOf(*frame.op),
                            FindingClass::kKilled, sources.kinds, 0, place.flags, 0),
      &is_new);
  wire::KillRecord record{};
  record.header = uses_.records.MakeHeader(thread, emitter, wire::RecordKind::kKill, sizeof record);
  const uint32_t seen = emitter.CountSite(site, record.header.ticket, record.header.clocks);
  if (seen > kFullRecordsPerSite) return emitter.SkipRecord(site);
  record.site = site;
  record.n_sources = static_cast<uint8_t>(sources.count);
  std::copy(sources.list, sources.list + sources.count, record.sources);
  emitter.Emit(record.header);
}

// A view of a bad value stands for it where autograd nodes are concerned, and what is written over
// with good values is good again.
void CleanOutputs::OnSkipped(ThreadState* thread, const Frame& frame,
                             const PlainTensor& tensor) noexcept {
  if (uses_.bad_values.size() == 0) return;
  if ((frame.op->families & kCreates) != 0) {
    return uses_.bad_values.Clear(tensor.storage, tensor.byte_begin, tensor.byte_end,
                                  tensor.IsDense());
  }
  BadEntry entry;
  SequenceEntry* sequence = frame.op->is_view ? SequenceOf(thread, frame) : nullptr;
  if (sequence == nullptr || !uses_.known_bad.Find(tensor, &entry)) return;
  sequence->value = entry.value;
  sequence->site = entry.site;
}

}  // namespace nanwatch
