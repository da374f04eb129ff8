// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/unobserved_writer.h"

#include <algorithm>

#include "shim/check/scan.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {

using wire::FindingClass;
using wire::Phase;
using wire::Source;
using wire::SourceKind;
using wire::Target;
using wire::ValueRecord;

namespace {

Written WrittenBy(const UnobservedWriter& writer, Emitter& emitter) {
  Written written;
  written.named = writer.named;
  written.target = writer.target;
  if (writer.named != nullptr) written.name = InternText(emitter, writer.named->name);
  if (writer.target == Target::kParameter) written.flags |= ValueRecord::kWroteParameter;
  if (writer.target == Target::kBuffer) written.flags |= ValueRecord::kWroteBuffer;
  return written;
}

Sources SourcesOf(const UnobservedWriter& writer) {
  Sources sources;
  for (int i = 0; i < writer.source_count; ++i) {
    sources.Add(writer.sources[i], writer.values[i].index);
  }
  return sources;
}

}  // namespace

UnobservedWriter UnseenAt(const char* op, const Layer* layer, Phase phase, uint8_t kinds,
                          ValueRef from) noexcept {
  UnobservedWriter writer{};
  writer.op = op;
  writer.node = "";
  writer.layer = layer;
  writer.phase = phase;
  writer.finding_class = FindingClass::kPropagate;
  Source source = UnknownSource(kinds);
  if (from.ticket != 0) {
    source.kind = static_cast<uint8_t>(SourceKind::kValue);
    source.value = from.ticket;
  }
  writer.Add(source, from);
  return writer;
}

ValueRef UnobservedWrites::Record(ThreadState* thread, const PlainTensor& tensor,
                                  const UnobservedWriter& writer) noexcept {
  ++thread->counters.values_bad;
  Emitter* emitter = poison_.Poisoned() ? nullptr : segment_.Ensure();
  if (emitter == nullptr) return {};
  Location place = LocationOf(thread);
  place.layer = writer.layer;
  place.phase = writer.phase;
  if (writer.node != nullptr) place.node = writer.node;
  const uint8_t kinds = NonFiniteKinds(tensor.view);
  const Written written = WrittenBy(writer, *emitter);
  uint32_t flags = writer.flags | place.flags | written.flags;
  if (writer.made_with_gradients) flags &= ~uint32_t{ValueRecord::kWithoutGradients};
  bool is_new = false;
  const SiteKey key = records_.MakeKey(thread, *emitter, place, InternText(*emitter, writer.op),
                                       writer.finding_class, kinds, 1, flags, written.name);
  const uint32_t site = records_.InternSite(thread, *emitter, key, &is_new);
  Draft draft;
  ValueRecord& value = draft.value;
  value.header = records_.MakeHeader(thread, *emitter, wire::RecordKind::kValue, 0);
  const uint32_t seen = emitter->CountSite(site, value.header.ticket, value.header.clocks);
  value.site = site;
  value.flags = flags | GpuFlag(tensor);
  value.param = written.name;
  value.target = static_cast<uint8_t>(written.target);
  value.pass = place.pass;
  const Sources sources = SourcesOf(writer);
  value.n_sources = static_cast<uint8_t>(sources.count);
  std::copy(sources.list, sources.list + sources.count, value.sources);
  const bool write = seen <= kFullRecordsPerSite;
  if (write) {
    value.n_outputs = 1;
    FillStats(tensor.view, 0, &draft.tensors[0]);
    draft.tensors[0].value = value.header.ticket;
  }
  const ValueRef ref = records_.File(*emitter, draft, sources, key, write, is_new);
  const bool in_update = writer.phase == Phase::kOptimizer;
  const bool in_buffer = writer.target == Target::kBuffer;
  if (in_update || in_buffer) records_.RecordReachOf(*emitter, value, ref);
  // A buffer is read again at each step's end; what reads it in between is not watched.
  if (in_buffer || !writer.has_memory) return ref;
  const BadOutput output{tensor, 0, false};
  known_bad_.Remember(&output, 1, {ref, site, written, in_update, in_update});
  if (written.target == Target::kParameter) poison_.Mark(written.named, tensor);
  return ref;
}

}  // namespace nanwatch
