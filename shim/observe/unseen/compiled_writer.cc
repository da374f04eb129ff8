// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/compiled_writer.h"

#include "shim/check/scan.h"
#include "shim/classify/finding_class.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch::compiled_regions {
namespace {

constexpr char kBackwardNode[] = "CompiledFunctionBackward";

wire::FindingClass ClassOf(const UnobservedWriter& writer, const PlainTensor& output) {
  OpEvidence evidence;
  evidence.inputs_seen = true;
  for (int i = 0; i < writer.source_count; ++i) evidence.input_kinds |= writer.sources[i].kinds;
  evidence.output_kinds = NonFiniteKinds(output.view);
  return Classify(evidence);
}

}  // namespace

UnobservedWriter WriterOf(const char* name, const Layer* layer, bool is_backward) noexcept {
  UnobservedWriter writer{};
  writer.op = name[0] != '\0' ? name : kRegion;
  writer.node = is_backward ? kBackwardNode : nullptr;
  writer.layer = layer;
  writer.phase = is_backward ? wire::Phase::kBackward : wire::Phase::kForward;
  writer.flags = wire::ValueRecord::kIsCompiledRegion;
  return writer;
}

RegionSeen LastForward(const ThreadState& thread) noexcept {
  return thread.region.is_backward ? RegionSeen{} : thread.region;
}

bool HasUnread(const ThreadState& thread) noexcept {
  const bool awaits_return = LastForward(thread).name[0] != '\0' && thread.regions_open == 0;
  return thread.regions_unread || awaits_return;
}

}  // namespace nanwatch::compiled_regions

namespace nanwatch {

using compiled_regions::ClassOf;

void CompiledWrites::Report(ThreadState* thread, UnobservedWriter* writer,
                            const PlainTensor& output) noexcept {
  writer->finding_class = ClassOf(*writer, output);
  writes_.Record(thread, output, *writer);
}

ValueRef CompiledWrites::OnBadRoot(ThreadState* thread, const PlainTensor& root) noexcept {
  wire::Source known{};
  ValueRef value;
  if (known_bad_.SourceOf(root, &known, &value)) return value;
  const RegionSeen region = compiled_regions::LastForward(*thread);
  UnobservedWriter writer = compiled_regions::WriterOf(region.name, nullptr, /*is_backward=*/false);
  if (region.source.kinds != 0) {
    writer.Add(region.source, region.value);
  } else {  // nothing is known of a function's arguments
    writer.flags |= wire::ValueRecord::kUnseenInputs;
  }
  writer.finding_class = ClassOf(writer, root);
  return writes_.Record(thread, root, writer);
}

ValueRef CompiledWrites::OnNumber(ThreadState* thread, double number) noexcept {
  // What it returned, and item() of that.
  constexpr uint64_t kOpsMax = 3;
  const uint64_t since = thread->counters.ops_seen - thread->region_ended_after_ops;
  if (!compiled_regions::HasUnread(*thread) || since > kOpsMax) return {};
  const RegionSeen region = compiled_regions::LastForward(*thread);
  UnobservedWriter writer = compiled_regions::WriterOf(region.name, nullptr, /*is_backward=*/false);
  writer.flags |= wire::ValueRecord::kInexact;
  writer.has_memory = false;
  PlainTensor plain{};
  plain.view = TensorView{&number, wire::ElementType::kFloat64, 0, nullptr, nullptr, 1};
  writer.finding_class = ClassOf(writer, plain);
  return writes_.Record(thread, plain, writer);
}

}  // namespace nanwatch
