// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/sources.h"

#include <algorithm>

#include "shim/check/scan.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/grad_fn.h"
#include "shim/observe/torch/saved_tensors.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/shared_files.h"

namespace nanwatch {
namespace {

using wire::Phase;
using wire::Source;
using wire::SourceKind;
using wire::Target;

uint8_t ArgumentOf(const InputSeen& input) {
  return static_cast<uint8_t>(std::min<int>(input.argument, 255));
}

// Autograd saves a copy of what an op is about to write in place, inside that op, where nobody
// looks: what a node finds bad is then what its own forward op is known to have had.
bool AddSavedByForward(const ThreadState* thread, const PlainTensor& plain, uint8_t kinds,
                       uint8_t argument, Sources* sources) {
  const SequenceEntry* made = MadeRunningNode(thread);
  if (made == nullptr || made->value.ticket == 0) return false;
  // What is told after the fact has no node that runs.
  const Saved saved =
      thread->told != nullptr ? Saved::kUnknown : IsSavedByRunningNode(plain.storage);
  if (saved == Saved::kNo) return false;  // a gradient that a hook has put there
  sources->assumed |= saved == Saved::kUnknown;
  Source source{};
  source.kind = static_cast<uint8_t>(SourceKind::kValue);
  source.site = made->site;
  source.value = made->value.ticket;
  source.kinds = kinds;
  source.input = argument;
  sources->Add(source, made->value.index);
  return true;
}

// An input that is bad although no observed op is known to have written it: come by a collective
// since, or else named if it is a parameter or buffer, and known from now on.
void AddUnknownInput(Observer& observer, ThreadState* thread, const PlainTensor& plain,
                     uint8_t argument, uint8_t kinds, bool is_result, const OwnWrites& own,
                     Sources* sources) {
  const auto find = [&observer, &plain](BadEntry* entry) {
    return observer.bad_values.Find(plain.storage, plain.byte_begin, plain.byte_end, entry);
  };
  BadEntry entry;
  if (own.outputs == nullptr) observer.collective_results.AwaitHandedOut();
  observer.collective_results.LookAtAll(observer, thread, own.outputs, own.count);
  Source received{};
  ValueRef received_value;
  if (!find(&entry) &&
      !(observer.gpu_events.ResolveReceived(observer, thread, plain) && find(&entry))) {
    // A process group's own thread unpacks what came from a buffer that nobody announces.
    if (own.outputs == nullptr && observer.collective_results.FindReceived(
                                      observer, thread, nullptr, 0, &received, &received_value)) {
      received.input = argument;
      sources->Add(received, received_value.index);
      return;
    }
    if (AddSavedByForward(thread, plain, kinds, argument, sources)) return;
    if (AddForgotten(observer, LocationOf(thread), kinds, argument, sources)) return;
    const NamedTensor* named = observer.python->names().FindByStorage(plain.storage);
    if (named == nullptr &&
        observer.gpu_events.AssumeSource(observer, thread, plain, &received, &received_value)) {
      received.kinds = kinds;
      received.input = argument;
      sources->Add(received, received_value.index);
      sources->assumed = true;
      return;
    }
    const Target target = named != nullptr ? TargetOf(*named) : Target::kInputData;
    RecordExternal(observer, plain, target, named != nullptr ? named->name : "");
    sources->came_in_by_result |= is_result && named == nullptr;
    if (!find(&entry)) entry.target = target;  // the table is full (BadValues::lost)
  }
  Source source = SourceFrom(entry);
  source.kinds = kinds;
  source.input = argument;
  sources->Add(source, 0);
}

// A module may compute with parameters of another: attention with those of its out_proj, which is
// never called, a head with the embedding's. Of these only such count as nobody knows to be bad:
// what is known and did no harm until now is not used here either. Reading a model takes its time:
// it is done once a step, not for every mask, and the layer's own children come first.
void AssumeFromModel(Observer& observer, const Layer& layer, Sources* sources) {
  constexpr uint32_t kLooksMax = 64;
  constexpr uint64_t kBytesMax = uint64_t{64} << 20;
  const uint32_t step = observer.steps.completed() + 1;
  if (observer.model_look_step.exchange(step, std::memory_order_relaxed) == step) return;
  if (observer.model_looks.fetch_add(1, std::memory_order_relaxed) >= kLooksMax) return;
  uint64_t bytes = 0;
  bool of_child = true;
  const auto look = [&](const NamedTensor& named) {
    if (named.kind != NamedTensorKind::kParameter || bytes > kBytesMax) return;
    if ((named.layer != nullptr && named.layer->parent == &layer) != of_child) return;
    const NamedReading reading(observer.python->names(), named);
    if (!reading) return;
    bytes += reading.bytes();
    Source source{};
    ValueRef value;
    if (!reading.IsBad() || SourceOf(observer, reading.tensor(), &source, &value)) return;
    source = NamedSource(observer, named, reading);
    if (source.kinds == wire::kHasNegInf) return;
    sources->Add(source, 0);
    RecordExternal(observer, reading.tensor(), Target::kParameter, named.name);
  };
  observer.python->names().ForEachInRoot(layer.root_layer, look);
  of_child = false;
  if (sources->count == 0) observer.python->names().ForEachInRoot(layer.root_layer, look);
}

}  // namespace

void CollectSeenSources(Observer& observer, ThreadState* thread, const Frame& frame,
                        const OwnWrites& own, Sources* sources) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.overwritten) continue;
    if (input.known) {
      Source source = SourceFrom(input.bad);
      source.kinds = input.kinds;
      source.input = ArgumentOf(input);
      sources->Add(source, input.bad.value.index);
      continue;
    }
    // Not in the table: looked at now, after the op, unless the op has changed it.
    uint8_t kinds = input.kinds;
    if (kinds == 0 && !input.updated && !input.rewritten && IsAlive(input))
      kinds = NonFiniteKinds(input.View());
    if (kinds == 0) continue;
    if (thread->regions_open != 0 &&
        observer.python->names().FindByStorage(
            static_cast<const c10::StorageImpl*>(input.storage.storage)) == nullptr) {
      sources->made_in_region = true;
      continue;
    }
    AddUnknownInput(observer, thread, input.Plain(), ArgumentOf(input), kinds, input.is_result, own,
                    sources);
  }
}

void AddBadInput(Observer& observer, ThreadState* thread, const PlainTensor& plain,
                 uint8_t argument, uint8_t kinds, const OwnWrites& own, Sources* sources) noexcept {
  Source source{};
  ValueRef value;
  if (!SourceOf(observer, plain, &source, &value)) {
    const bool is_result = GradFnOf(*plain.impl) != nullptr;
    return AddUnknownInput(observer, thread, plain, argument, kinds, is_result, own, sources);
  }
  source.kinds = kinds;
  source.input = argument;
  sources->Add(source, value.index);
}

void AssumeSources(Observer& observer, const Location& place, const BadOutput* outputs, int count,
                   uint8_t output_kinds, Sources* sources) noexcept {
  if (place.layer == nullptr) return;
  const auto add = [&](const NamedTensor& named) {
    const NamedReading reading(observer.python->names(), named);
    if (!reading.IsBad()) return;
    // Batch norm's running statistics are what it has just written.
    for (int i = 0; i < count; ++i) {
      if (outputs[i].tensor.storage == reading.tensor().storage) return;
    }
    const Source source = NamedSource(observer, named, reading);
    // A mask of -Inf makes no +Inf.
    if (source.kinds == wire::kHasNegInf && output_kinds == wire::kHasPosInf) return;
    sources->Add(source, 0);
    // Known from now on: an update that finds it bad and leaves it so has made nothing.
    RecordExternal(observer, reading.tensor(), TargetOf(named), named.name);
  };
  observer.python->names().ForEachOwnedBy(place.layer, add);
  if (sources->count == 0 && place.phase == Phase::kForward) {
    AssumeFromModel(observer, *place.layer, sources);
  }
}

bool AddForgotten(Observer& observer, const Location& place, uint8_t kinds, uint8_t argument,
                  Sources* sources) noexcept {
  if (place.phase != Phase::kOptimizer || observer.level.watched() != wire::Level::kCanary) {
    return false;
  }
  const ValueRef value = observer.level.forgotten_value();
  RecentValues::Kept kept;
  if (value.ticket == 0 || !observer.recent_values.Look(value, &kept)) return false;
  Source source{};
  source.kind = static_cast<uint8_t>(SourceKind::kValue);
  source.site = kept.record.site;
  source.value = value.ticket;
  source.kinds = kinds;
  source.input = argument;
  sources->Add(source, value.index);
  sources->assumed = true;
  return true;
}

Source NamedSource(Observer& observer, const NamedTensor& named, const NamedReading& bad) noexcept {
  Source source{};
  source.kind = static_cast<uint8_t>(SourceKind::kExternal);
  source.target = static_cast<uint8_t>(TargetOf(named));
  source.kinds = NonFiniteKinds(bad.tensor().view);
  source.input = 255;
  Emitter* emitter = observer.segment.Ensure();
  source.name = emitter != nullptr ? InternText(*emitter, named.name) : 0;
  return source;
}

bool SourceOf(Observer& observer, const PlainTensor& tensor, Source* source,
              ValueRef* value) noexcept {
  BadEntry entry;
  if (!observer.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &entry)) {
    return false;
  }
  *source = SourceFrom(entry);
  *value = entry.value;
  return true;
}

void RecordExternal(Observer& observer, const PlainTensor& tensor, Target target,
                    const char* name) noexcept {
  Emitter* emitter = observer.segment.Ensure();
  if (emitter != nullptr) RecordExternal(observer, tensor, target, InternText(*emitter, name));
}

void RecordExternal(Observer& observer, const PlainTensor& tensor, Target target,
                    uint32_t name) noexcept {
  BadEntry entry;
  entry.storage = HoldWeakly(tensor.storage);
  entry.byte_begin = tensor.byte_begin;
  entry.byte_end = tensor.byte_end;
  entry.dense = tensor.IsDense();
  entry.name = name;
  entry.target = target;
  entry.born_step = observer.steps.completed();
  entry.shared_file = shared_files::FileOf(observer, tensor);
  if (entry.shared_file == 0 && target == Target::kInputData) {
    entry.shared_file = observer.collective_results.UnnamedBringer(observer);
  }
  CountBad(tensor.view, &entry);
  observer.bad_values.Add(entry);
  observer.input_tracking.Arm();
}

}  // namespace nanwatch
