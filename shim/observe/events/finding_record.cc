// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/finding_record.h"

#include <algorithm>

#include "shim/host/monotonic_clock.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::SourceKind;
using wire::ValueRecord;

constexpr int kAncestorsMax = 512;

struct LineAsker {
  const PythonBridge& python;
  const ThreadState* thread;
};

}  // namespace

SiteKey FindingRecords::MakeKey(const ThreadState* thread, Emitter& emitter, const Location& place,
                                uint32_t op, FindingClass finding_class, uint8_t kinds,
                                uint8_t outputs, uint32_t flags, uint32_t param) const noexcept {
  SiteKey key;
  key.op = op;
  if (place.layer != nullptr) {
    key.layer = InternText(emitter, place.layer->path);
    key.layer_type = InternText(emitter, place.layer->type);
    key.root = InternText(emitter, place.layer->root);
  }
  key.node = InternText(emitter, place.node);
  if (key.node == 0 && thread->told != nullptr) key.node = thread->told->node;
  key.flags = flags;
  key.param = param;
  key.call = UserCallOf(python_, thread);
  key.phase = place.phase;
  key.finding_class = finding_class;
  key.kinds = kinds;
  key.outputs = outputs;
  return key;
}

uint32_t FindingRecords::InternSite(ThreadState* thread, Emitter& emitter, const SiteKey& key,
                                    bool* is_new) const noexcept {
  LineAsker asker{python_, thread};
  const auto line = [](void* context) {
    const auto& from = *static_cast<const LineAsker*>(context);
    return UserLineOf(from.python, from.thread);
  };
  return emitter.InternSite(key, line, &asker, is_new);
}

wire::RecordHeader FindingRecords::MakeHeader(ThreadState* thread, Emitter& emitter,
                                              wire::RecordKind kind, size_t bytes) const noexcept {
  wire::RecordHeader header{};
  header.kind = static_cast<uint16_t>(kind);
  header.bytes = static_cast<uint16_t>(bytes);
  const Moment* told = thread->told;
  header.thread = (told != nullptr ? told->thread : thread)->small_id;
  header.ticket = emitter.DrawTicket();
  header.time_ns = told != nullptr ? told->time_ns : MonotonicNs();
  header.clocks = thread->told_clocks != nullptr ? *thread->told_clocks : clock_.Now();
  header.threads_train = clock_.ThreadsTrain();
  // Of what is told late, the modules that were called since have nothing to say.
  if (told != nullptr || thread->told_clocks != nullptr) return header;
  header.root_is_older = clock_.IsNewestRootOlder();
  header.with_gradients = (LocationOf(thread).flags & ValueRecord::kWithoutGradients) == 0;
  return header;
}

void FindingRecords::NameInput(const Frame& frame, Emitter& emitter, size_t argument,
                               const c10::TensorImpl* impl, const c10::StorageImpl* storage,
                               wire::TensorStats* stats) const noexcept {
  const auto& arguments = frame.op->schema->arguments();
  if (argument < arguments.size()) stats->name = emitter.Intern(arguments[argument].name());
  const NamedTensor* named = python_.names().FindByImpl(impl, storage);
  if (named != nullptr) stats->target = static_cast<uint8_t>(TargetOf(*named));
}

ValueRef FindingRecords::File(Emitter& emitter, Draft& draft, const Sources& sources,
                              const SiteKey& key, bool write, bool is_new_site) noexcept {
  const int tensors = draft.TensorsUsed();
  const size_t bytes =
      sizeof(ValueRecord) + sizeof(wire::TensorStats) * static_cast<size_t>(tensors);
  draft.value.header.bytes = static_cast<uint16_t>(bytes);
  if (write) {
    if (is_new_site) emitter.KeepFirst(draft.value);
    emitter.Emit(draft.value.header);
  } else {
    emitter.SkipRecord(draft.value.site);
    if (tensors != 0) recent_.KeepTensors(draft.value.header.ticket, draft.tensors, tensors);
  }
  RecentValues::Kept kept{};
  kept.record = draft.value;
  std::copy(sources.index, sources.index + wire::kSourcesMax, kept.source_index);
  kept.op = key.op;
  kept.layer = key.layer;
  kept.finding_class = key.finding_class;
  kept.of_one_number = draft.value.n_outputs == 1 && draft.tensors[0].numel == 1;
  kept.written = write;
  return recent_.Add(kept);
}

void FindingRecords::RecordReachOf(Emitter& emitter, const ValueRecord& record,
                                   ValueRef value) noexcept {
  const auto note = [&](wire::Reach reach) {
    emitter.RecordReach(reach, record.header.ticket, record.header.ticket, record.param,
                        record.header.clocks);
  };
  note(wire::Reach::kActivation);
  if ((record.flags & ValueRecord::kWroteParameter) != 0) note(wire::Reach::kParameter);
  if ((record.flags & ValueRecord::kWroteBuffer) != 0) note(wire::Reach::kBuffer);
  constexpr uint32_t kMatters = ValueRecord::kWroteParameter | ValueRecord::kWroteBuffer;
  if ((record.flags & kMatters) != 0) WriteAncestors(value);
}

void FindingRecords::WriteAncestors(ValueRef value) noexcept {
  Emitter* emitter = segment_.emitter();
  if (emitter == nullptr) return;
  ValueRef open[kAncestorsMax];
  int count = 0;
  open[count++] = value;
  // A value that has been traced before ends its branch, so that each is visited once.
  for (int i = 0; i < count; ++i) {
    RecentValues::Kept kept;
    if (!recent_.Trace(open[i], &kept) || kept.traced) continue;
    for (int s = 0; s < kept.record.n_sources && count < kAncestorsMax; ++s) {
      if (kept.record.sources[s].kind != static_cast<uint8_t>(SourceKind::kValue)) continue;
      open[count++] = ValueRef{kept.record.sources[s].value, kept.source_index[s]};
    }
    if (kept.written) continue;
    Draft draft;
    draft.value = kept.record;
    draft.value.flags |= ValueRecord::kLate;
    const int tensors = draft.TensorsUsed();
    if (!recent_.CopyTensors(draft.value.header.ticket, draft.tensors, tensors)) {
      draft.value.n_outputs = draft.value.n_inputs = 0;
      draft.value.flags &= ~uint32_t{ValueRecord::kHasSamples};
      draft.value.header.bytes = sizeof(ValueRecord);
    }
    emitter->Emit(draft.value.header);
  }
}

}  // namespace nanwatch
