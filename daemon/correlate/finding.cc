// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/finding.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "daemon/correlate/op_traits.h"
#include "daemon/correlate/wire_facts.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/ingest/run_batch.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::Phase;
using wire::Target;

void SetIndex(int64_t position, const google::protobuf::RepeatedField<int64_t>& shape,
              TensorStats& stats) {
  int64_t covered = 1;
  for (const int64_t size : shape) {
    if (size <= 0 || __builtin_mul_overflow(covered, size, &covered)) return;
  }
  if (position < 0 || position >= covered) return;
  std::vector<int64_t> index(static_cast<size_t>(shape.size()));
  for (int dim = shape.size() - 1; dim >= 0; --dim) {
    index[static_cast<size_t>(dim)] = position % shape.Get(dim);
    position /= shape.Get(dim);
  }
  for (const int64_t at : index) stats.add_first_bad_index(at);
}

void SetClocks(const StepReading& reading, Finding& finding) {
  finding.set_step(reading.step);
  finding.set_step_source(std::string(reading.source));
  finding.set_iteration(reading.iteration);
  finding.set_micro_step(reading.micro_step);
  finding.set_updates(reading.updates);
  finding.set_training(reading.training);
}

void SetSite(const Site& site, Finding& finding) {
  finding.set_class_(FindingClassName(site.finding_class()));
  finding.set_op(site.op());
  finding.set_phase(PhaseName(site.phase()));
  finding.set_autograd_node(site.node());
  finding.set_layer(site.layer());
  finding.set_layer_type(site.layer_type());
  finding.set_root(site.root());
  finding.set_param(site.param());
  finding.set_source(site.source());
  *finding.mutable_callers() = site.callers();
  finding.set_recompute((site.flags() & wire::ValueRecord::kRecompute) != 0);
}

void SetValue(const ValueFact& fact, Finding& finding) {
  const uint32_t gpu = fact.flags() >> wire::ValueRecord::kGpuShift;
  if (gpu != 0) finding.set_device("cuda:" + std::to_string(gpu - 1));
  finding.set_inputs_seen((fact.flags() & wire::ValueRecord::kInputsSeen) != 0);
  if ((fact.flags() & wire::ValueRecord::kRecompute) != 0) finding.set_recompute(true);
  if (!fact.param().empty()) finding.set_param(fact.param());
  for (const RecordTensor& tensor : fact.outputs()) *finding.add_outputs() = DescribeTensor(tensor);
  for (const RecordTensor& tensor : fact.inputs()) *finding.add_inputs() = DescribeTensor(tensor);
}

void SetRun(const Lineage& lineage, Finding& finding) {
  finding.set_run(RunId(lineage.facts().run()));
  finding.set_rank(lineage.facts().run().rank());
  finding.set_device("cpu");
}

}  // namespace

TensorStats DescribeTensor(const RecordTensor& tensor) {
  TensorStats stats;
  stats.set_index(tensor.index());
  stats.set_dtype(ElementTypeName(tensor.element_type()));
  *stats.mutable_shape() = tensor.shape();
  stats.set_numel(tensor.numel());
  stats.set_nan(tensor.nan());
  stats.set_pos_inf(tensor.pos_inf());
  stats.set_neg_inf(tensor.neg_inf());
  stats.set_finite_min(tensor.finite_min());
  stats.set_finite_max(tensor.finite_max());
  stats.set_finite_mean(tensor.finite_mean());
  stats.set_role(tensor.name());
  // With more dimensions than the record holds, a position says nothing about an index.
  if (static_cast<int>(tensor.ndim()) == tensor.shape_size()) {
    SetIndex(tensor.first_bad(), tensor.shape(), stats);
  }
  return stats;
}

Finding DescribeRecord(const Lineage& lineage, const Site* site, const Record* record,
                       const Clocks* clocks) {
  Finding finding;
  finding.set_kind("op");
  finding.set_class_("propagate");
  finding.set_phase("other");
  finding.set_exact(true);
  SetRun(lineage, finding);
  if (site != nullptr) SetSite(*site, finding);
  if (record != nullptr && record->has_value()) SetValue(record->value(), finding);
  const uint64_t time_ns = record != nullptr ? record->time_ns() : 0;
  SetClocks(clocks != nullptr ? lineage.clock().Read(*clocks, time_ns) : StepReading(), finding);
  return finding;
}

Finding DescribeNode(const Lineage& lineage, const ValueNode& node) {
  Finding finding = DescribeRecord(lineage, node.site, node.record, node.clocks);
  finding.set_ticket(node.ticket);
  if (finding.phase() == "optimizer" && !finding.param().empty()) finding.set_kind("optimizer");
  return finding;
}

}  // namespace nanwatch
