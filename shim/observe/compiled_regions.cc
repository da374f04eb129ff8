#include "shim/observe/compiled_regions.h"

#include "shim/check/scan.h"
#include "shim/classify/finding_class.h"
#include "shim/observe/findings.h"
#include "shim/observe/named_reading.h"
#include "shim/observe/observer.h"

namespace nanwatch::compiled_regions {
namespace {

constexpr char kRegion[] = "Torch-Compiled Region";
constexpr char kBackwardNode[] = "CompiledFunctionBackward";

bool IsBad(const at::TensorBase& tensor, PlainTensor* plain) {
  wire::Unchecked reason;
  return ReadTensor(tensor, plain, &reason) == Readable::kYes && HasNonFinite(plain->view);
}

bool IsWithin(const Layer* layer, const Layer* outer) {
  while (layer != nullptr && layer != outer) layer = layer->parent;
  return layer == outer;
}

// What bad went into the region: arguments, and the parameters and buffers of the module and of
// those in it.
void AddInputs(Observer& observer, const at::TensorBase* const* inputs, const char* const* names,
               size_t count, UnseenWriter* writer) {
  for (size_t i = 0; i < count; ++i) {
    PlainTensor plain;
    if (!IsBad(*inputs[i], &plain)) continue;
    wire::Source source{};
    ValueRef value;
    if (!SourceOf(observer, plain, &source, &value)) {
      NoteExternal(observer, plain, wire::Target::kInputData, names[i]);
      if (!SourceOf(observer, plain, &source, &value)) continue;
    }
    source.kinds = NonFiniteKinds(plain.view);
    writer->Add(source, value);
  }
  const Layer* layer = writer->layer;
  if (layer == nullptr) return;
  observer.python->names().ForEachInRoot(
      layer->root_layer, [&observer, layer, writer](const NamedTensor& named) {
        if (!IsWithin(named.layer, layer)) return;
        const NamedReading reading(observer.python->names(), named);
        if (reading.IsBad()) writer->Add(NamedSource(observer, named, reading), {});
      });
}

wire::FindingClass ClassOf(const UnseenWriter& writer, const PlainTensor& output) {
  OpEvidence evidence;
  evidence.inputs_seen = true;
  for (int i = 0; i < writer.source_count; ++i) evidence.input_kinds |= writer.sources[i].kinds;
  evidence.output_kinds = NonFiniteKinds(output.view);
  return Classify(evidence);
}

void SetName(ThreadState* thread, const char* name) {
  RegionSeen& region = thread->region;
  region = RegionSeen{};
  std::strncpy(region.name, name, sizeof region.name - 1);
}

}  // namespace

void Begin(Observer& observer, ThreadState* thread, const char* name) noexcept {
  SetName(thread, name);
  thread->region_holds_inputs = !observer.Poisoned();
  if (thread->region_holds_inputs) observer.arming.Hold();
}

void End(Observer& observer, ThreadState* thread) noexcept {
  if (!thread->region_holds_inputs) return;
  thread->region_holds_inputs = false;
  observer.arming.Release();
  if (observer.bad_values.transient() == 0) observer.arming.Disarm();
}

void BeginBackward(Observer& observer, ThreadState* thread, const at::RecordFunction& node) noexcept
    try {
  SetName(thread, kRegion);
  RegionSeen& region = thread->region;
  region.is_backward = true;
  region.layer = thread->node_layer;
  observer.passes.HoldInputs(observer);
  // Without inputs nothing bad was alive.
  for (const c10::IValue& input : node.inputs()) {
    PlainTensor plain;
    if (!input.isTensor() || !IsBad(input.toTensor(), &plain)) continue;
    if (!SourceOf(observer, plain, &region.source, &region.value)) {
      region.source.kind = static_cast<uint8_t>(wire::SourceKind::kUnknown);
    }
    region.source.kinds = NonFiniteKinds(plain.view);
    return;
  }
} catch (...) {
}

void LookAtGradients(Observer& observer, ThreadState* thread,
                     const at::RecordFunction& node) noexcept try {
  if (observer.Poisoned() || thread->regions_open != 0) return;
  for (const c10::IValue& input : node.inputs()) {
    PlainTensor plain;
    if (!input.isTensor() || !IsBad(input.toTensor(), &plain)) continue;
    wire::Source known{};
    ValueRef value;
    if (SourceOf(observer, plain, &known, &value)) continue;
    UnseenWriter writer{};
    writer.op = kRegion;
    writer.node = kBackwardNode;
    writer.layer = thread->region.layer;
    writer.phase = wire::Phase::kBackward;
    writer.flags = wire::ValueRecord::kIsCompiledRegion;
    if (thread->region.source.kinds != 0) writer.Add(thread->region.source, thread->region.value);
    writer.finding_class = ClassOf(writer, plain);
    OnUnseenWrite(observer, thread, plain, writer);
  }
} catch (...) {
}

void OnOutputs(const at::TensorBase* const* outputs, size_t output_count,
               const at::TensorBase* const* inputs, const char* const* input_names,
               size_t input_count) noexcept try {
  Here here;
  if (!FindHereInModule(&here)) return;
  Observer* observer = here.observer;
  ThreadState* thread = here.thread;
  if (observer->Poisoned()) return;
  BusyScope busy(thread);
  // The module may have been called without running what was compiled of it.
  const RegionSeen region = thread->region.is_backward ? RegionSeen{} : thread->region;
  thread->region = RegionSeen{};
  UnseenWriter writer{};
  writer.op = region.name[0] != '\0' ? region.name : kRegion;
  writer.layer = CurrentLayer();
  writer.phase = wire::Phase::kForward;
  writer.flags = wire::ValueRecord::kIsCompiledRegion;
  bool inputs_added = false;
  for (size_t i = 0; i < output_count; ++i) {
    PlainTensor plain;
    if (!IsBad(*outputs[i], &plain)) continue;
    wire::Source known{};
    ValueRef value;
    if (SourceOf(*observer, plain, &known, &value)) continue;
    if (!inputs_added) {
      inputs_added = true;
      if (region.source.kinds != 0) {
        writer.Add(region.source, region.value);
      } else {
        AddInputs(*observer, inputs, input_names, input_count, &writer);
      }
    }
    writer.finding_class = ClassOf(writer, plain);
    OnUnseenWrite(*observer, thread, plain, writer);
  }
} catch (...) {
}

}  // namespace nanwatch::compiled_regions
