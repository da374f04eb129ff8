// SPDX-License-Identifier: Apache-2.0
// Collectives are resolved, and bad tensors that came by one (gpu_collective_results.h).
#include <cstring>
#include <utility>

#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/gpu/resolver.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/unseen/collective_records.h"
#include "shim/observe/unseen/external_values.h"

namespace nanwatch {
namespace {

// What comes back is made of what all ranks gave in.
bool Mixes(const CollectiveName& collective) {
  return std::strstr(collective.name, "reduce") != nullptr;
}

}  // namespace

BadEntry GpuResolver::EntryOf(const PlainTensor& tensor, ValueRef value, uint32_t site) noexcept {
  BadEntry entry = BadEntryOf(tensor, parts_.progress.completed());
  entry.value = value;
  entry.site = site;
  return entry;
}

void GpuResolver::ResolveCollective(CollectiveEvent& event) noexcept {
  const uint32_t step = parts_.progress.completed();
  state_.collective_results.SetStep(event.number, event.count, step);
  const auto set_own = [this, &event](const InputSeen& seen, ValueRef value, uint32_t site) {
    GpuCollectiveResults::CollectiveResult result;
    if (state_.collective_results.Find(seen.storage.storage, seen.byte_begin, seen.byte_end,
                                       event.number + 1, &result) &&
        result.event == event.number) {
      state_.collective_results.SetValue(result, value, site, /*own=*/true);
    }
  };
  // A leaf of this pass took a bad gradient: that is what was averaged.
  const bool leaf_bad = bad_leaf_.ticket != 0 && bad_leaf_step_ == step && Mixes(event.collective);
  bool emitted = false;
  for (uint32_t i = 0; i < event.count; ++i) {
    const InputSeen& seen = event.tensors[i].seen;
    BadEntry known;
    const bool in_table =
        parts_.bad_values.Find(seen.storage.storage, seen.byte_begin, seen.byte_end, &known);
    if (!event.given_in) {
      // Whatever stood there is written over, and by what this rank gave in, too.
      if (in_table) {
        parts_.bad_values.Clear(seen.storage.storage, seen.byte_begin, seen.byte_end,
                                seen.Plain().IsDense());
      }
      if (own_given_ == event.collective.sequence) set_own(seen, own_value_, own_site_);
      continue;
    }
    if (!in_table && !leaf_bad) continue;
    if (!in_table) known.value = bad_leaf_;
    own_given_ = event.collective.sequence;
    own_value_ = known.value;
    own_site_ = known.site;
    set_own(seen, known.value, known.site);
    if (!in_table || std::exchange(emitted, true)) continue;
    wire::Source source = SourceFrom(known);
    source.kinds = known.kinds;
    parts_.collective_records.Emit(resolver_, event.collective, &source, {});
  }
}

void GpuResolver::ResolveGiven(const PlainTensor& tensor) noexcept {
  if (ResolveReceived(resolver_, tensor)) return;
  const NamedTensor* named = parts_.python.names().FindByStorage(tensor.storage);
  parts_.external_values.Remember(tensor,
                                  named != nullptr ? TargetOf(*named) : wire::Target::kInputData,
                                  named != nullptr ? named->name : "");
}

// gloo carries a GPU's tensors by the CPU: they are copied to pinned memory, a thread of gloo's
// fills that memory with the result, which nobody sees, and copies it back. A copy makes nothing,
// so what it leaves there was received, whatever was known of its source.
bool GpuResolver::ResolveCopyOfReceived(const OpEvent& event) noexcept {
  if ((event.frame.op->families & kMoves) == 0 || event.outputs != 1) return false;
  // At level sampled nobody knows what it has read.
  bool from_cpu = event.inputs == 0;
  for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
    const InputSeen& input = event.tensors[i].seen;
    if (input.updated || input.overwritten) continue;  // where it copies to
    if (input.gpu >= 0 || input.known || input.type != event.tensors[0].seen.type) return false;
    from_cpu = true;
  }
  return from_cpu && ResolveReceived(resolver_, event.tensors[0].seen.Plain());
}

bool GpuResolver::ResolveReceived(ThreadState* thread, const PlainTensor& tensor) noexcept {
  if (!state_.On() || tensor.gpu < 0 || parts_.poison.Poisoned()) return false;
  const uint64_t event = thread == resolver_ ? told_event_ : ~uint64_t{0};
  GpuCollectiveResults::CollectiveResult result;
  BadEntry known;
  if (parts_.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &known)) {
    return true;
  }
  if (!state_.collective_results.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, event,
                                      &result)) {
    return false;
  }
  // What came steps ago was in use since, and good.
  if (result.step != 0 && result.step < parts_.progress.completed()) return false;
  if (result.value.ticket != 0) {
    parts_.bad_values.Add(EntryOf(tensor, result.value, result.site));
    parts_.input_tracking.Arm();
    return true;
  }
  const ValueRef value =
      parts_.collective_records.ReportReceived(thread, tensor, result.collective, result.layer);
  if (!parts_.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &known)) {
    return false;
  }
  state_.collective_results.SetValue(result, value, known.site, /*own=*/false);
  parts_.collective_records.Emit(thread, result.collective, nullptr, value);
  return true;
}

}  // namespace nanwatch
