// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/compiled_regions.h"

#include <cstring>

#include "shim/check/scan.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/observer.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/compiled_writer.h"

namespace nanwatch::compiled_regions {
namespace {

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
               size_t count, UnobservedWriter* writer) {
  for (size_t i = 0; i < count; ++i) {
    PlainTensor plain;
    if (!IsBad(*inputs[i], &plain)) continue;
    wire::Source source{};
    ValueRef value;
    if (!SourceOf(observer, plain, &source, &value)) {
      RecordExternal(observer, plain, wire::Target::kInputData, names[i]);
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

void SetName(const Observer& observer, ThreadState* thread, const char* name) {
  RegionSeen& region = thread->region;
  region = RegionSeen{};
  region.first_event = observer.gpu_events.next_event();
  std::strncpy(region.name, name, sizeof region.name - 1);
}

// True for a GPU's, which is looked at when all are together.
bool AddOnGpu(const at::TensorBase& tensor, GpuTensors* on_gpu, uint32_t name = 0) {
  PlainTensor plain;
  wire::Unchecked reason;
  if (DescribeTensor(tensor, &plain, &reason) != Readable::kYes || plain.gpu < 0) return false;
  on_gpu->Add(plain, wire::Target::kInputData, nullptr, name);
  return true;
}

}  // namespace

void Begin(Observer& observer, ThreadState* thread, const char* name) noexcept {
  SetName(observer, thread, name);
  thread->region_holds_inputs = !observer.Ignores();
  if (thread->region_holds_inputs) observer.input_tracking.Hold();
}

void End(Observer& observer, ThreadState* thread) noexcept {
  if (!thread->region_holds_inputs) return;
  thread->region_holds_inputs = false;
  observer.input_tracking.Release();
  if (observer.bad_values.transient() == 0) observer.input_tracking.Disarm();
}

void BeginBackward(Observer& observer, ThreadState* thread, const at::RecordFunction& node) noexcept
    try {
  SetName(observer, thread, kRegion);
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
  if (observer.Ignores() || thread->regions_open != 0) return;
  GpuTensors on_gpu(observer, thread);
  for (const c10::IValue& input : node.inputs()) {
    PlainTensor plain;
    if (input.isTensor() && AddOnGpu(input.toTensor(), &on_gpu)) continue;
    if (!input.isTensor() || !IsBad(input.toTensor(), &plain)) continue;
    wire::Source known{};
    ValueRef value;
    if (SourceOf(observer, plain, &known, &value)) continue;
    UnobservedWriter writer = WriterOf("", thread->region.layer, true);
    if (thread->region.source.kinds != 0) writer.Add(thread->region.source, thread->region.value);
    Report(observer, thread, &writer, plain);
  }
  observer.gpu_events.EnqueueTensors(observer, thread, GpuEventQueue::CheckedAs::kOfRegion,
                                     on_gpu.list(), thread->region);
} catch (...) {
}

void OnOutputs(const at::TensorBase* const* outputs, size_t output_count,
               const at::TensorBase* const* inputs, const char* const* input_names,
               size_t input_count) noexcept try {
  Here here;
  if (!FindHereInModule(&here)) return;
  Observer* observer = here.observer;
  ThreadState* thread = here.thread;
  if (observer->Ignores()) return;
  BusyScope busy(thread);
  // The module may have been called without running what was compiled of it.
  RegionSeen region = thread->region.is_backward ? RegionSeen{} : thread->region;
  thread->region = RegionSeen{};
  region.layer = CurrentLayer();
  UnobservedWriter writer = WriterOf(region.name, region.layer, false);
  bool inputs_added = false;
  GpuTensors on_gpu(*observer, thread);
  for (size_t i = 0; i < output_count; ++i) {
    PlainTensor plain;
    if (AddOnGpu(*outputs[i], &on_gpu) || !IsBad(*outputs[i], &plain)) continue;
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
    Report(*observer, thread, &writer, plain);
  }
  if (on_gpu.list().empty()) return;
  GpuTensors given(*observer, thread);
  Emitter* emitter = observer->segment.Ensure();
  for (size_t i = 0; i < input_count && emitter != nullptr; ++i) {
    AddOnGpu(*inputs[i], &given, InternText(*emitter, input_names[i]));
  }
  observer->gpu_events.EnqueueTensors(*observer, thread, GpuEventQueue::CheckedAs::kOfRegion,
                                      on_gpu.list(), region, given.list());
} catch (...) {
}

}  // namespace nanwatch::compiled_regions
