// SPDX-License-Identifier: Apache-2.0
// The event queue's collectives: what was given in is known when they are told, what came back when
// somebody meets it (gpu_collective_results.h).
#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "shim/observe/finding/sources.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/queued_events.h"
#include "shim/observe/observer.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/unseen/collective_results.h"

namespace nanwatch {
namespace {

// What comes back is made of what all ranks gave in.
bool Mixes(const CollectiveName& collective) {
  return std::strstr(collective.name, "reduce") != nullptr;
}

BadEntry EntryOf(Observer& observer, const PlainTensor& tensor, ValueRef value, uint32_t site) {
  BadEntry entry;
  entry.storage = HoldWeakly(tensor.storage);
  entry.byte_begin = tensor.byte_begin;
  entry.byte_end = tensor.byte_end;
  entry.dense = tensor.IsDense();
  entry.value = value;
  entry.site = site;
  entry.born_step = observer.progress.completed();
  return entry;
}

}  // namespace

void GpuEventQueue::EnqueueCollective(Observer& observer, ThreadState* thread,
                                      const CollectiveName& collective,
                                      std::span<const CheckedTensor> tensors,
                                      bool given_in) noexcept {
  // In a graph it runs at every replay, and would have to be noted there.
  if (CapturedGraph(observer, thread, /*begins=*/true) != nullptr) return;
  const Layer* layer = CurrentLayer();
  while (!tensors.empty()) {
    const size_t count = std::min(tensors.size(), size_t{OpEvent::kTensorsMax});
    auto* event = Reserve<CollectiveEvent>((count - 1) * sizeof(SeenTensor));
    if (event == nullptr) return;
    event->kind = EventKind::kCollective;
    event->moment = TakeMoment(observer.moment_parts(), thread);
    event->collective = collective;
    event->given_in = given_in;
    event->count = static_cast<uint32_t>(count);
    for (size_t i = 0; i < count; ++i) {
      const InputSeen& seen = tensors[i].seen;
      KeepHanded(tensors[i], &event->tensors[i]);
      // Who wrote there before says nothing of what is read there from now on.
      if (cuts_.AnyNoted()) cuts_.Forget(seen);
      collective_results_.Record(seen, collective, layer, event->number, given_in);
    }
    Publish(event);
    tensors = tensors.subspan(count);
  }
}

template <class Fn>
void GpuEventQueue::LookAtInputs(Observer& observer, ThreadState* thread, const Frame& frame,
                                 CheckedAs as, Fn&& wanted) noexcept try {
  std::vector<CheckedTensor> tensors;
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.gpu >= 0 && wanted(input)) {
      tensors.push_back({input, wire::Target::kNone, nullptr, 0});
    }
  }
  // Asking the driver about the stream comes last: it is nearly always for nothing.
  if (tensors.empty() || observer.poison.Ignores() ||
      CapturedGraph(observer, thread, /*begins=*/true) != nullptr) {
    return;
  }
  EnqueueLists(observer, thread, as, tensors);
} catch (const std::bad_alloc&) {
}

void GpuEventQueue::LookAtGiven(Observer& observer, ThreadState* thread,
                                const Frame& frame) noexcept {
  if (std::strstr(frame.op->name, "broadcast") == nullptr) return;
  LookAtInputs(observer, thread, frame, CheckedAs::kGiven, [](const InputSeen&) { return true; });
}

void GpuEventQueue::LookAtReceived(Observer& observer, ThreadState* thread,
                                   const Frame& frame) noexcept {
  LookAtInputs(observer, thread, frame, CheckedAs::kReceived, [this](const InputSeen& input) {
    return input.updated && collective_results_.TakeUnlooked(input);
  });
}

// ---- telling

void GpuEventQueue::ResolveCollective(Observer& observer, CollectiveEvent& event) noexcept {
  const uint32_t step = observer.progress.completed();
  collective_results_.SetStep(event.number, event.count, step);
  const auto set_own = [this, &event](const InputSeen& seen, ValueRef value, uint32_t site) {
    GpuCollectiveResults::CollectiveResult result;
    if (collective_results_.Find(seen.storage.storage, seen.byte_begin, seen.byte_end,
                                 event.number + 1, &result) &&
        result.event == event.number) {
      collective_results_.SetValue(result, value, site, /*own=*/true);
    }
  };
  // A leaf of this pass took a bad gradient: that is what was averaged.
  const bool leaf_bad = bad_leaf_.ticket != 0 && bad_leaf_step_ == step && Mixes(event.collective);
  bool emitted = false;
  for (uint32_t i = 0; i < event.count; ++i) {
    const InputSeen& seen = event.tensors[i].seen;
    BadEntry known;
    const bool in_table =
        observer.bad_values.Find(seen.storage.storage, seen.byte_begin, seen.byte_end, &known);
    if (!event.given_in) {
      // Whatever stood there is written over, and by what this rank gave in, too.
      if (in_table) {
        observer.bad_values.Clear(seen.storage.storage, seen.byte_begin, seen.byte_end,
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
    observer.collective_records.Emit(resolver_, event.collective, &source, {});
  }
}

void GpuEventQueue::ResolveGiven(Observer& observer, const PlainTensor& tensor) noexcept {
  if (ResolveReceived(observer, resolver_, tensor)) return;
  const NamedTensor* named = observer.python->names().FindByStorage(tensor.storage);
  observer.external_values.Remember(tensor,
                                    named != nullptr ? TargetOf(*named) : wire::Target::kInputData,
                                    named != nullptr ? named->name : "");
}

// gloo carries a GPU's tensors by the CPU: they are copied to pinned memory, a thread of gloo's
// fills that memory with the result, which nobody sees, and copies it back. A copy makes nothing,
// so what it leaves there was received, whatever was known of its source.
bool GpuEventQueue::ResolveCopyOfReceived(Observer& observer, const OpEvent& event) noexcept {
  if ((event.frame.op->families & kMoves) == 0 || event.outputs != 1) return false;
  bool from_cpu = false;
  for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
    const InputSeen& input = event.tensors[i].seen;
    if (input.updated || input.overwritten) continue;  // where it copies to
    if (input.gpu >= 0 || input.known || input.type != event.tensors[0].seen.type) return false;
    from_cpu = true;
  }
  return from_cpu && ResolveReceived(observer, resolver_, event.tensors[0].seen.Plain());
}

bool GpuEventQueue::ResolveReceived(Observer& observer, ThreadState* thread,
                                    const PlainTensor& tensor) noexcept {
  if (!On() || tensor.gpu < 0 || observer.poison.Poisoned()) return false;
  const uint64_t event = thread == resolver_ ? told_event_ : ~uint64_t{0};
  GpuCollectiveResults::CollectiveResult result;
  BadEntry known;
  if (observer.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &known)) {
    return true;
  }
  if (!collective_results_.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, event,
                                &result)) {
    return false;
  }
  // What came steps ago was in use since, and good.
  if (result.step != 0 && result.step < observer.progress.completed()) return false;
  if (result.value.ticket != 0) {
    observer.bad_values.Add(EntryOf(observer, tensor, result.value, result.site));
    observer.input_tracking.Arm();
    return true;
  }
  const ValueRef value =
      observer.collective_records.ReportReceived(thread, tensor, result.collective, result.layer);
  if (!observer.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &known)) {
    return false;
  }
  collective_results_.SetValue(result, value, known.site, /*own=*/false);
  observer.collective_records.Emit(thread, result.collective, nullptr, value);
  return true;
}

}  // namespace nanwatch
