// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/compiled_regions.h"

#include <cstring>
#include <utility>

#include "shim/check/scan.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/step/canary_reads.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/compiled_writer.h"
#include "shim/observe/unseen/external_values.h"

namespace nanwatch {
namespace {

using compiled_regions::kRegion;
using compiled_regions::WriterOf;

bool IsBad(const at::TensorBase& tensor, PlainTensor* plain) {
  wire::Unchecked reason;
  return ReadTensor(tensor, plain, &reason) == Readable::kYes && HasNonFinite(plain->view);
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

// What bad went into the region: arguments, and the parameters and buffers of the module and of
// those in it.
void CompiledRegions::AddInputs(const Tensors& inputs, UnobservedWriter* writer) {
  AddArguments(inputs, writer);
  if (writer->layer == nullptr) return;
  AddNamed(writer->layer, NamedTensorKind::kParameter, writer);
  AddNamed(writer->layer, NamedTensorKind::kBuffer, writer);
}

void CompiledRegions::AddArguments(const Tensors& inputs, UnobservedWriter* writer) {
  for (size_t i = 0; i < inputs.count; ++i) {
    PlainTensor plain;
    if (!IsBad(*inputs.tensors[i], &plain)) continue;
    wire::Source source{};
    ValueRef value;
    if (!parts_.known_bad.SourceOf(plain, &source, &value)) {
      parts_.external_values.Remember(plain, wire::Target::kInputData, inputs.names[i]);
      if (!parts_.known_bad.SourceOf(plain, &source, &value)) continue;
    }
    source.kinds = NonFiniteKinds(plain.view);
    writer->Add(source, value);
  }
}

void CompiledRegions::AddNamed(const Layer* layer, NamedTensorKind kind, UnobservedWriter* writer) {
  parts_.names.ForEachInRoot(layer->root_layer, [&](const NamedTensor& named) {
    if (named.kind != kind || !IsWithin(named.layer, layer)) return;
    const NamedReading reading(parts_.names, named);
    if (!reading.IsBad()) return;
    wire::Source source{};
    ValueRef value;
    if (!parts_.known_bad.SourceOf(reading.tensor(), &source, &value)) {
      source = parts_.external_values.SourceOf(named, reading);
    }
    source.kinds = NonFiniteKinds(reading.tensor().view);
    writer->Add(source, value);
  });
}

void CompiledRegions::SetName(ThreadState* thread, const char* name) const noexcept {
  RegionSeen& region = thread->region;
  region = RegionSeen{};
  region.first_event = parts_.gpu.next_event();
  std::strncpy(region.name, name, sizeof region.name - 1);
}

void CompiledRegions::Begin(ThreadState* thread, const char* name) noexcept {
  SetName(thread, name);
  thread->regions_unread |= CurrentLayer() == nullptr && thread->optimizer_depth == 0;
  thread->region_holds_inputs = !parts_.poison.Ignores();
  if (thread->region_holds_inputs) parts_.input_tracking.Hold();
}

void CompiledRegions::End(ThreadState* thread) noexcept {
  thread->region_ended_after_ops = thread->counters.ops_seen;
  if (!thread->region_holds_inputs) return;
  thread->region_holds_inputs = false;
  parts_.input_tracking.Release();
  if (parts_.bad_values.transient() == 0) parts_.input_tracking.Disarm();
}

void CompiledRegions::BeginBackward(ThreadState* thread, const at::RecordFunction& node) noexcept
    try {
  SetName(thread, kRegion);
  RegionSeen& region = thread->region;
  region.is_backward = true;
  region.layer = thread->node_layer;
  parts_.passes.HoldInputs();
  // Without inputs nothing bad was alive.
  for (const c10::IValue& input : node.inputs()) {
    PlainTensor plain;
    if (!input.isTensor() || !IsBad(input.toTensor(), &plain)) continue;
    if (!parts_.known_bad.SourceOf(plain, &region.source, &region.value)) {
      region.source.kind = static_cast<uint8_t>(wire::SourceKind::kUnknown);
    }
    region.source.kinds = NonFiniteKinds(plain.view);
    return;
  }
} catch (...) {
}

void CompiledRegions::CheckGradients(ThreadState* thread, const at::RecordFunction& node) noexcept
    try {
  if (parts_.poison.Ignores() || thread->regions_open != 0) return;
  GpuTensors on_gpu(parts_.gpu, thread);
  for (const c10::IValue& input : node.inputs()) {
    PlainTensor plain;
    if (input.isTensor() && AddOnGpu(input.toTensor(), &on_gpu)) continue;
    if (!input.isTensor() || !IsBad(input.toTensor(), &plain)) continue;
    wire::Source known{};
    ValueRef value;
    if (parts_.known_bad.SourceOf(plain, &known, &value)) continue;
    UnobservedWriter writer = WriterOf("", thread->region.layer, true);
    if (thread->region.source.kinds != 0) writer.Add(thread->region.source, thread->region.value);
    parts_.compiled_writes.Report(thread, &writer, plain);
  }
  parts_.gpu.EnqueueTensors(thread, CheckedAs::kOfRegion, on_gpu.list(), thread->region);
} catch (...) {
}

// One that is bad, of which nobody knows more, and which lies on no GPU.
void CompiledRegions::CheckOutput(ThreadState* thread, const RegionSeen& region,
                                  const at::TensorBase& output, const Tensors& inputs,
                                  UnobservedWriter* writer, bool* inputs_added) {
  PlainTensor plain;
  if (!IsBad(output, &plain)) return;
  wire::Source known{};
  ValueRef value;
  if (parts_.known_bad.SourceOf(plain, &known, &value)) return;
  if (!std::exchange(*inputs_added, true)) {
    if (region.source.kinds != 0) {
      writer->Add(region.source, region.value);
    } else {
      AddInputs(inputs, writer);
    }
  }
  parts_.compiled_writes.Report(thread, writer, plain);
}

// Those in the module that it has turned bad.
void CompiledRegions::CheckBuffers(ThreadState* thread, const RegionSeen& region,
                                   const Tensors& inputs) {
  if (region.layer == nullptr || region.name[0] == '\0') return;
  for (const NamedTensor* named : parts_.buffers.TurnedBad(thread, region.layer)) {
    const NamedReading reading(parts_.names, *named);
    if (!reading.IsBad()) continue;
    const PlainTensor& plain = reading.tensor();
    const uint8_t kinds = NonFiniteKinds(plain.view);
    wire::Source known{};
    ValueRef value;
    const bool is_mask = kinds == wire::kHasNegInf;
    if (is_mask || parts_.known_bad.SourceOf(plain, &known, &value)) continue;
    UnobservedWriter writer = WriterOf(region.name, named->layer, false);
    // Between two calls others may have written it.
    writer.flags |= wire::ValueRecord::kUnseenInputs;
    if (canary::Buffers::IsRuined(*named, kinds)) {
      writer.named = named;
      writer.target = wire::Target::kBuffer;
    }
    if (region.source.kinds != 0) writer.Add(region.source, region.value);
    AddArguments(inputs, &writer);
    AddNamed(region.layer, NamedTensorKind::kParameter, &writer);
    parts_.compiled_writes.Report(thread, &writer, plain);
  }
}

void CompiledRegions::OnOutputs(ThreadState* thread, const Tensors& outputs,
                                const Tensors& inputs) noexcept try {
  if (parts_.poison.Ignores()) return;
  // The module may have been called without running what was compiled of it.
  RegionSeen region = compiled_regions::LastForward(*thread);
  thread->region = RegionSeen{};
  region.layer = CurrentLayer();
  CheckBuffers(thread, region, inputs);
  UnobservedWriter writer = WriterOf(region.name, region.layer, false);
  bool inputs_added = false;
  GpuTensors on_gpu(parts_.gpu, thread);
  for (size_t i = 0; i < outputs.count; ++i) {
    if (AddOnGpu(*outputs.tensors[i], &on_gpu)) continue;
    CheckOutput(thread, region, *outputs.tensors[i], inputs, &writer, &inputs_added);
  }
  if (on_gpu.list().empty()) return;
  GpuTensors given(parts_.gpu, thread);
  Emitter* emitter = parts_.segment.Ensure();
  for (size_t i = 0; i < inputs.count && emitter != nullptr; ++i) {
    AddOnGpu(*inputs.tensors[i], &given, InternText(*emitter, inputs.names[i]));
  }
  parts_.gpu.EnqueueTensors(thread, CheckedAs::kOfRegion, on_gpu.list(), region, given.list());
} catch (...) {
}

}  // namespace nanwatch
