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
  const RegionSeen region = thread->region.is_backward ? RegionSeen{} : thread->region;
  UnobservedWriter writer = compiled_regions::WriterOf(region.name, nullptr, /*is_backward=*/false);
  if (region.source.kinds != 0) writer.Add(region.source, region.value);
  writer.finding_class = ClassOf(writer, root);
  return writes_.Record(thread, root, writer);
}

}  // namespace nanwatch
