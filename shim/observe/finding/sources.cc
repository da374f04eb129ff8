// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/sources.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "shim/check/scan.h"
#include "shim/classify/recent_values.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/ruined_parameters.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/grad_fn.h"
#include "shim/observe/torch/saved_tensors.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/collective_results.h"
#include "shim/observe/unseen/external_values.h"

namespace nanwatch {
namespace {

using wire::Phase;
using wire::Source;
using wire::SourceKind;
using wire::Target;

uint8_t ArgumentOf(const InputSeen& input) {
  return static_cast<uint8_t>(std::min<int>(input.argument, 255));
}

// torch.tensor(...): torch has just written Python's numbers, and no op did.
bool TakesNumbersOfPython(const OpTraits& op) {
  constexpr char kLift[] = "aten::lift";
  return (op.families & kEnters) != 0 && std::strncmp(op.name, kLift, sizeof(kLift) - 1) == 0;
}

// An earlier value, made at `site`.
void AddValue(const ValueRef& value, uint32_t site, uint8_t kinds, uint8_t argument,
              Sources* sources) {
  Source source{};
  source.kind = static_cast<uint8_t>(SourceKind::kValue);
  source.site = site;
  source.value = value.ticket;
  source.kinds = kinds;
  source.input = argument;
  sources->Add(source, value.index);
}

bool AddLeft(const std::optional<RuinedParameters::Left>& left, uint8_t kinds, uint8_t argument,
             Sources* sources) {
  if (!left) return false;
  AddValue(left->value, left->site, kinds, argument, sources);
  sources->assumed = true;
  return true;
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
  AddValue(made->value, made->site, kinds, argument, sources);
  return true;
}

}  // namespace

// What came in nameless may have become a parameter since (`nn.Parameter(torch.from_numpy(...))`,
// load_state_dict(assign=True)): it has that name from now on. A buffer may hold a batch.
BadEntry SourceFinder::NamedNow(const PlainTensor& plain, const BadEntry& entry) noexcept {
  const bool can_be_read = plain.gpu < 0 || plain.view.counted != nullptr;
  const bool came_in =
      entry.IsExternal() ? entry.target == Target::kInputData : uses_.recent.CameIn(entry.value);
  if (!can_be_read || !came_in) return entry;
  const NamedTensor* named = uses_.names.FindByStorage(plain.storage);
  if (named == nullptr || named->kind != NamedTensorKind::kParameter) return entry;
  using Writer = ExternalValues::Writer;
  uses_.external.Remember(plain, Target::kParameter, named->name,
                          entry.writer_unseen ? Writer::kMayBeUnseen : Writer::kKnown);
  BadEntry now;
  return uses_.known_bad.Find(plain, &now) ? now : entry;
}

bool SourceFinder::AddReceived(ThreadState* thread, const OwnWrites& own, uint8_t argument,
                               Sources* sources) noexcept {
  Source received{};
  ValueRef value;
  if (!uses_.collective_results.FindReceived(thread, own.outputs, own.count, &received, &value)) {
    return false;
  }
  received.input = argument;
  sources->Add(received, value.index);
  return true;
}

// What can have left it there is assumed. False: nothing can.
bool SourceFinder::AddAssumed(ThreadState* thread, const UnknownInput& input, Sources* sources) {
  if (AddSavedByForward(thread, input.plain, input.kinds, input.argument, sources)) return true;
  if (AddForgotten(LocationOf(thread), input.kinds, input.argument, sources)) return true;
  Source source{};
  ValueRef value;
  if (uses_.names.FindByStorage(input.plain.storage) != nullptr ||
      !uses_.late.AssumeSource(thread, input.plain, &source, &value)) {
    return false;
  }
  source.kinds = input.kinds;
  source.input = input.argument;
  sources->Add(source, value.index);
  sources->assumed = true;
  return true;
}

// It has come by a collective since, or else is named if it is a parameter or buffer, and known
// from now on.
void SourceFinder::AddUnknownInput(ThreadState* thread, const UnknownInput& input,
                                   const OwnWrites& own, Sources* sources) {
  const PlainTensor& plain = input.plain;
  BadEntry entry;
  if (own.outputs == nullptr) uses_.collective_results.AwaitHandedOut();
  uses_.collective_results.CheckAll(thread, own.outputs, own.count);
  if (!uses_.known_bad.Find(plain, &entry) &&
      !(uses_.late.ResolveReceived(thread, plain) && uses_.known_bad.Find(plain, &entry))) {
    // A process group's own thread unpacks what came from a buffer that nobody announces.
    if (own.outputs == nullptr && AddReceived(thread, own, input.argument, sources)) return;
    if (AddAssumed(thread, input, sources)) return;
    const NamedTensor* named = uses_.names.FindByStorage(plain.storage);
    if (own.outputs == nullptr && named == nullptr && uses_.collective_results.any_begun()) {
      // What this rank has given comes back to it, too.
      Source given = UnknownSource(input.kinds);
      sources->assumed |= uses_.collective_results.FindGiven(&given);
      given.kinds = input.kinds;
      given.input = input.argument;
      sources->Add(given, 0);
      return;
    }
    const Target target = named != nullptr ? TargetOf(*named) : Target::kInputData;
    if (!input.is_of_python && uses_.external.MayHaveUnseenWriter(plain, target) &&
        AddLeftByPoison(input.kinds, input.argument, sources)) {
      return;
    }
    using Writer = ExternalValues::Writer;
    uses_.external.Remember(plain, target, named != nullptr ? named->name : "",
                            input.is_of_python ? Writer::kKnown : Writer::kMayBeUnseen);
    sources->came_in_by_result |= input.is_result && named == nullptr;
    if (named == nullptr && input.kinds != wire::kHasNegInf) uses_.names.ExpectReplaced();
    // The table is full (BadValues::lost).
    if (!uses_.known_bad.Find(plain, &entry)) entry.target = target;
  }
  Source source = SourceFrom(entry);
  source.kinds = input.kinds;
  source.input = input.argument;
  sources->Add(source, 0);
}

// A module may compute with parameters of another: attention with those of its out_proj, which is
// never called, a head with the embedding's. Of these only such count as nobody knows to be bad:
// what is known and did no harm until now is not used here either. Reading a model takes its time:
// it is done once a step, not for every mask, and the layer's own children come first.
void SourceFinder::AssumeFromModel(const Layer& layer, Sources* sources) {
  constexpr uint32_t kReadsMax = 64;
  constexpr uint64_t kBytesMax = uint64_t{64} << 20;
  const uint32_t step = uses_.clock.completed() + 1;
  if (model_read_step_.exchange(step, std::memory_order_relaxed) == step) return;
  if (model_reads_.fetch_add(1, std::memory_order_relaxed) >= kReadsMax) return;
  uint64_t bytes = 0;
  bool of_child = true;
  const auto check = [&](const NamedTensor& named) {
    if (named.kind != NamedTensorKind::kParameter || bytes > kBytesMax) return;
    if ((named.layer != nullptr && named.layer->parent == &layer) != of_child) return;
    const NamedReading reading(uses_.names, named);
    if (!reading) return;
    bytes += reading.bytes();
    Source source{};
    ValueRef value;
    if (!reading.IsBad() || uses_.known_bad.SourceOf(reading.tensor(), &source, &value)) return;
    source = uses_.external.SourceOf(named, reading);
    if (source.kinds == wire::kHasNegInf) return;
    sources->Add(source, 0);
    sources->unread = true;
    uses_.external.Remember(reading.tensor(), Target::kParameter, named.name);
  };
  uses_.names.ForEachInRoot(layer.root_layer, check);
  of_child = false;
  if (sources->count == 0) uses_.names.ForEachInRoot(layer.root_layer, check);
}

// The kernels of a compiled region write results and buffers; parameters are an optimizer's.
bool SourceFinder::MayBeOfKernels(const InputSeen& input) const noexcept {
  const NamedTensor* named =
      uses_.names.FindByStorage(static_cast<const c10::StorageImpl*>(input.storage.storage));
  // Of a function that is no module's nobody reads what it leaves.
  return named == nullptr || (named->kind == NamedTensorKind::kBuffer && CurrentLayer() != nullptr);
}

void SourceFinder::CollectSeen(ThreadState* thread, const Frame& frame, const OwnWrites& own,
                               Sources* sources) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.overwritten) continue;
    if (input.known) {
      const bool is_as_read = !input.updated && !input.rewritten && IsAlive(input);
      const BadEntry bad = is_as_read ? NamedNow(input.Plain(), input.bad) : input.bad;
      Source source = SourceFrom(bad);
      source.kinds = input.kinds;
      source.input = ArgumentOf(input);
      sources->Add(source, bad.value.index);
      continue;
    }
    // Not known: read now, after the op, unless the op has changed it.
    uint8_t kinds = input.kinds;
    if (kinds == 0 && !input.updated && !input.rewritten && IsAlive(input))
      kinds = NonFiniteKinds(input.View());
    if (kinds == 0) continue;
    if (thread->regions_open != 0 && MayBeOfKernels(input)) {
      sources->made_in_region = true;
      continue;
    }
    const bool is_of_python = TakesNumbersOfPython(*frame.op);
    AddUnknownInput(thread,
                    {input.Plain(), ArgumentOf(input), kinds, input.is_result, is_of_python}, own,
                    sources);
  }
}

void SourceFinder::AddBadInput(ThreadState* thread, const PlainTensor& plain, uint8_t argument,
                               uint8_t kinds, const OwnWrites& own, Sources* sources) noexcept {
  BadEntry entry;
  if (!uses_.known_bad.Find(plain, &entry)) {
    const bool is_result = GradFnOf(*plain.impl) != nullptr;
    return AddUnknownInput(thread, {plain, argument, kinds, is_result, false}, own, sources);
  }
  entry = NamedNow(plain, entry);
  Source source = SourceFrom(entry);
  source.kinds = kinds;
  source.input = argument;
  sources->Add(source, entry.value.index);
}

void SourceFinder::Assume(const Location& place, const OwnWrites& written, bool wrote_buffers,
                          uint8_t output_kinds, Sources* sources) noexcept {
  if (place.layer == nullptr) return;
  const auto add = [&](const NamedTensor& named) {
    if (wrote_buffers && named.kind == NamedTensorKind::kBuffer) return;
    const NamedReading reading(uses_.names, named);
    if (!reading.IsBad()) return;
    for (int i = 0; i < written.count; ++i) {
      if (written.outputs[i].tensor.storage == reading.tensor().storage) return;
    }
    const Source source = uses_.external.SourceOf(named, reading);
    // A mask of -Inf makes no +Inf.
    if (source.kinds == wire::kHasNegInf && output_kinds == wire::kHasPosInf) return;
    if (AddMade(reading.tensor(), source.kinds, sources)) return;
    sources->Add(source, 0);
    sources->unread = true;  // the op may have made it of others
    // Known from now on: an update that finds it bad and leaves it so has made nothing.
    uses_.external.Remember(reading.tensor(), TargetOf(named), named.name);
  };
  uses_.names.ForEachOwnedBy(place.layer, add);
  if (sources->count == 0 && place.phase == Phase::kForward) {
    AssumeFromModel(*place.layer, sources);
  }
}

// Of a parameter or buffer that ops have made bad long ago these say more than its name.
bool SourceFinder::AddMade(const PlainTensor& plain, uint8_t kinds, Sources* sources) noexcept {
  BadEntry entry;
  return uses_.known_bad.Find(plain, &entry) && AddUnread(entry, kinds, 0, sources);
}

bool SourceFinder::IsMadeByOps(const BadEntry& entry) noexcept {
  RecentValues::Kept made;
  return entry.site != 0 && uses_.recent.Look(entry.value, &made) &&
         !uses_.recent.WasGiven(entry.value, /*external_counts=*/true);
}

bool SourceFinder::AddUnread(const BadEntry& entry, uint8_t kinds, uint8_t argument,
                             Sources* sources) noexcept {
  if (!IsMadeByOps(entry)) return false;
  Source source = SourceFrom(entry);
  source.kinds = kinds;
  source.input = argument;
  sources->Add(source, entry.value.index);
  sources->unread = true;
  return true;
}

bool SourceFinder::IsOfModule(const PlainTensor& tensor) const noexcept {
  return uses_.names.FindByStorage(tensor.storage) != nullptr ||
         uses_.names.IsParameterObject(tensor.impl);
}

bool SourceFinder::AddLeftByPoison(uint8_t kinds, uint8_t argument, Sources* sources) noexcept {
  return AddLeft(uses_.ruined.Newest(), kinds, argument, sources);
}

bool SourceFinder::AddRuinedAlike(const PlainTensor& made, uint8_t kinds,
                                  Sources* sources) noexcept {
  return AddLeft(uses_.ruined.FindAlike(made), kinds, 255, sources);
}

bool SourceFinder::AddForgotten(const Location& place, uint8_t kinds, uint8_t argument,
                                Sources* sources) noexcept {
  if (place.phase != Phase::kOptimizer || uses_.level.watched() != wire::Level::kCanary) {
    return false;
  }
  const ValueRef value = uses_.level.forgotten_value();
  RecentValues::Kept kept;
  if (value.ticket == 0 || !uses_.recent.Look(value, &kept)) return false;
  AddValue(value, kept.record.site, kinds, argument, sources);
  sources->assumed = true;
  return true;
}

}  // namespace nanwatch
