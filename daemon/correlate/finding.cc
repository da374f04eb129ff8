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

Finding Describe(const Lineage& lineage, const Site* site, const Record* record,
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

// The words of Finding.unseen (proto/verdict.proto).
void AddUnseen(uint32_t flags, Finding& finding) {
  constexpr std::pair<uint32_t, const char*> kWords[] = {
      {wire::ValueRecord::kUnseenSampled, "sampled"},
      {wire::ValueRecord::kInexact, "ops"},
      {wire::ValueRecord::kUnseenInputs, "inputs"},
      {wire::ValueRecord::kUnseenLevel, "level"},
      {wire::ValueRecord::kUnseenParent, "parent"},
      {wire::ValueRecord::kUnseenTable, "table"},
      {wire::ValueRecord::kUnseenMeasuring, "measuring"},
      {wire::ValueRecord::kUnseenWriter, "writer"},
      {Origin::kUnseenBeside, "beside"}};
  // Where ops went unchecked it needs no code that nobody observes.
  constexpr uint32_t kUnchecked = wire::ValueRecord::kUnseenSampled |
                                  wire::ValueRecord::kUnseenLevel |
                                  wire::ValueRecord::kUnseenMeasuring;
  if ((flags & kUnchecked) != 0) flags &= ~wire::ValueRecord::kUnseenWriter;
  for (const auto& [flag, word] : kWords) {
    if ((flags & flag) != 0) finding.add_unseen(word);
  }
}

// What torch.load has made (set_), and load_state_dict copies into a buffer, is no batch. A program
// may copy its batches into a buffer, too: these are made otherwise.
bool IsOfBuffer(const Origin& origin, const ValueNode& consumer) {
  if (consumer.site == nullptr || consumer.record == nullptr || origin.site == nullptr ||
      !consumer.record->has_value()) {
    return false;
  }
  const ValueFact& value = consumer.record->value();
  constexpr uint32_t kLoads =
      wire::ValueRecord::kWroteBuffer | wire::ValueRecord::kWithoutGradients;
  return origin.site->op() == "aten::set_" && consumer.site->op() == "aten::copy_" &&
         consumer.site->layer().empty() && (value.flags() & kLoads) == kLoads &&
         !value.param().empty();
}

// Stacking, copying and slicing a batch is not yet using it: the op a person looks for is the first
// that computes with it, and the step is that op's. A data set in memory holds its NaN from the
// beginning, and a loader may fetch a batch long before its turn.
const ValueNode* FirstConsumer(const Lineage& lineage, const Origin& origin) {
  const std::vector<ValueNode>& nodes = lineage.nodes();
  if (origin.node < 0) return nullptr;
  size_t at = static_cast<size_t>(origin.node);
  while (nodes[at].site != nullptr && MovesValues(nodes[at].site->op()) &&
         !WroteParameter(nodes[at].record) && !IsOfBuffer(origin, nodes[at])) {
    size_t next = at + 1;
    while (next < nodes.size() &&
           (nodes[next].via != static_cast<int>(at) || nodes[next].site == nullptr)) {
      ++next;
    }
    if (next == nodes.size()) break;
    at = next;
  }
  return &nodes[at];
}

// What an update first reads of a batch's memory and writes back is no batch: it is the parameter
// itself, which was bad before anybody knew its name. Nor is what is copied into a parameter as it
// came in, or given to it (`p.data = tensor`): a checkpoint or a pre-trained weight.
bool IsOfParameter(const ValueNode& consumer) {
  if (consumer.site == nullptr || !WroteParameter(consumer.record)) return false;
  const bool gives = consumer.site->op() == "torch.Tensor.data" ||
                     consumer.site->op() == "torch.nn.Module.__setattr__";
  return IsIn(consumer.site, Phase::kOptimizer) ||
         ((MovesValues(consumer.site->op()) || gives) && !consumer.record->value().param().empty());
}

// The name of the first parameter that a value of an update's own has made bad: a square root or a
// norm is written nowhere, but what comes of it is.
std::string FirstSpoiled(const Lineage& lineage, const Origin& origin) {
  if (origin.node < 0) return "";
  const std::vector<ValueNode>& nodes = lineage.nodes();
  for (size_t i = static_cast<size_t>(origin.node) + 1; i < nodes.size(); ++i) {
    if (nodes[i].origin < 0 || !WroteParameter(nodes[i].record)) continue;
    const Origin& of_write = lineage.origins()[static_cast<size_t>(nodes[i].origin)];
    const std::string& name = nodes[i].record->value().param();
    if (of_write.node == origin.node && !name.empty()) return name;
  }
  // What it leaves finite, its state is kept for.
  for (const ReachEvent& event : lineage.events()) {
    if (event.reach == wire::Reach::kOptimizerState && event.origin >= 0 && !event.name.empty() &&
        lineage.origins()[static_cast<size_t>(event.origin)].node == origin.node) {
      return event.name;
    }
  }
  return "";
}

StepReading ReadingOf(const Lineage& lineage, const Origin& origin, const Clocks* clocks) {
  const uint64_t time_ns = origin.record != nullptr ? origin.record->time_ns() : 0;
  return clocks == nullptr ? StepReading() : lineage.clock().Read(*clocks, time_ns);
}

}  // namespace

bool UpdatesWereUnseen(const Lineage& lineage, const Origin& origin, const Clocks* clocks) {
  if (!Is(origin.target, wire::Target::kParameter) ||
      !Has(origin.unseen, wire::ValueRecord::kUnseenWriter)) {
    return false;
  }
  const StepReading reading = ReadingOf(lineage, origin, clocks);
  return reading.ambiguous && reading.source == "backward";
}

bool WasReadLater(const Finding& origin) {
  const bool was_read = origin.op() == "torch.nn.Module.__call__" && origin.class_() == "external";
  return was_read &&
         std::any_of(origin.unseen().begin(), origin.unseen().end(), [](const std::string& what) {
           return what == "level" || what == "measuring";
         });
}

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

// Of an update that reads what came in: whether that is its own state, a momentum or a second
// moment. Gradients may come in as well (from numpy, from another process).
enum class StateRead : uint8_t { kNo, kPerhaps, kSurely };

StateRead ReadsState(const Site& site, const RecordSource* source, bool writes_parameter) {
  constexpr uint32_t kInputUnknown = 255;
  constexpr std::array<std::string_view, 4> kWriteState = {"aten::mul_", "aten::lerp_",
                                                           "aten::addcmul_", "aten::_foreach_"};
  if (source == nullptr || source->input() == kInputUnknown) {
    return writes_parameter ? StateRead::kNo : StateRead::kPerhaps;
  }
  const std::string_view op = site.op();
  const uint32_t input = source->input();
  // Parameters, gradients, states.
  if (op.starts_with("aten::_fused_")) return input >= 2 ? StateRead::kSurely : StateRead::kNo;
  if (writes_parameter) {
    if (input == 0) return StateRead::kNo;
    const bool moments = op.find("addcdiv") != std::string_view::npos;
    return moments ? StateRead::kSurely : StateRead::kPerhaps;
  }
  const bool writes_state = op.ends_with('_') && std::any_of(kWriteState.begin(), kWriteState.end(),
                                                             [op](std::string_view begin) {
                                                               return op.starts_with(begin);
                                                             });
  if (writes_state) return input == 0 ? StateRead::kSurely : StateRead::kNo;
  return StateRead::kPerhaps;
}

// What came in, first read by this op of an update.
StateRead StateReadBy(const Site* site, const Record* record, const RecordSource* source) {
  if (!IsIn(site, Phase::kOptimizer)) return StateRead::kNo;
  return ReadsState(*site, source, WroteParameter(record));
}

std::string_view OriginKind(const Origin& origin) {
  if (origin.strength == Origin::Strength::kUnseen && origin.site == nullptr) return "unknown";
  if (origin.IsReceived()) return "unknown";
  if (origin.IsExternal()) {
    switch (static_cast<Target>(origin.target)) {
      case Target::kParameter:
        return "parameter";
      case Target::kBuffer:
        return "buffer";
      case Target::kNone:
      case Target::kInputData:
        return StateReadBy(origin.site, origin.record, origin.source) != StateRead::kNo
                   ? "optimizer_state"
                   : "input_data";
      default:
        return "unknown";
    }
  }
  if (IsIn(origin.site, Phase::kOptimizer)) return "optimizer";
  return "op";
}

std::string OriginParameter(const Origin& origin) {
  if (origin.source != nullptr && !origin.IsReceived()) {
    const auto target = static_cast<Target>(origin.source->target());
    const bool is_input =
        origin.IsExternal() && target != Target::kParameter && target != Target::kBuffer;
    const bool is_gradient = Is(origin.target, Target::kGradient);
    if (!is_input || is_gradient) return origin.source->name();
  }
  if (origin.record != nullptr && origin.record->has_value() &&
      !origin.record->value().param().empty()) {
    return origin.record->value().param();
  }
  return origin.site == nullptr ? "" : origin.site->param();
}

Finding DescribeNode(const Lineage& lineage, const ValueNode& node) {
  Finding finding = Describe(lineage, node.site, node.record, node.clocks);
  finding.set_ticket(node.ticket);
  if (finding.phase() == "optimizer" && !finding.param().empty()) finding.set_kind("optimizer");
  return finding;
}

bool MayBeAnotherOp(const Finding& origin) {
  const auto& unseen = origin.unseen();
  return !origin.exact() &&
         (unseen.empty() || std::find(unseen.begin(), unseen.end(), "ops") != unseen.end());
}

// An infinity that torch made a tensor of, and an op put among other numbers: a constant of the
// program's. (A NaN may be a missing value of a data set.)
bool IsConstant(const Origin& origin, const ValueNode* consumer) {
  if (consumer == nullptr || consumer->site == nullptr || origin.site == nullptr ||
      origin.record == nullptr || origin.record->value().outputs().empty()) {
    return false;
  }
  const RecordTensor& number = origin.record->value().outputs(0);
  return origin.site->op() == "aten::lift_fresh" && number.ndim() == 0 && number.nan() == 0 &&
         PutsNumber(consumer->site->op());
}

Finding DescribeOrigin(const Lineage& lineage, const Origin& origin) {
  std::string_view kind = OriginKind(origin);
  const ValueNode* consumer = kind == "input_data" ? FirstConsumer(lineage, origin) : nullptr;
  const Site* site = consumer != nullptr ? consumer->site : origin.site;
  std::string parameter = OriginParameter(origin);
  StateRead state = kind == "optimizer_state"
                        ? StateReadBy(origin.site, origin.record, origin.source)
                        : StateRead::kNo;
  if (consumer != nullptr && !IsIn(origin.site, Phase::kBackward)) {
    const RecordSource* source = nullptr;
    if (consumer->record != nullptr && !consumer->record->value().sources().empty()) {
      source = &consumer->record->value().sources(0);
    }
    state = StateReadBy(consumer->site, consumer->record, source);
  }
  if (consumer != nullptr && IsOfParameter(*consumer)) {
    kind = "parameter";
    parameter = consumer->record->value().param();
  } else if (consumer != nullptr && kind == "input_data" && IsOfBuffer(origin, *consumer)) {
    kind = "buffer";
    parameter = consumer->record->value().param();
  }
  if (state != StateRead::kNo) kind = "optimizer_state";
  const Clocks* clocks = consumer != nullptr ? consumer->clocks : origin.clocks;
  Finding finding = Describe(lineage, site, origin.record, clocks);
  finding.set_kind(std::string(kind));
  finding.set_ticket(origin.ticket);
  finding.set_exact(origin.exact);
  AddUnseen(origin.unseen, finding);
  if (state == StateRead::kPerhaps && finding.exact()) {
    finding.set_exact(false);
    finding.add_unseen("inputs");
  }
  // The ranks' records do not lead to the rank that gave it.
  if (origin.IsReceived()) {
    finding.set_exact(false);
    finding.add_unseen("sender");
  }
  // Nobody saw the op that made it.
  if (!finding.exact() && finding.unseen().empty()) finding.add_unseen("ops");
  if (UpdatesWereUnseen(lineage, origin, clocks)) {
    finding.set_step(-1);
    finding.set_iteration(-1);
    finding.set_step_source("none");
  } else if (ReadingOf(lineage, origin, clocks).ambiguous) {
    finding.set_exact(false);
    finding.add_unseen("turns");
  }
  if (kind.starts_with("optimizer") && parameter.empty()) parameter = FirstSpoiled(lineage, origin);
  finding.set_param(parameter);
  if (origin.finding_class != FindingClass::kUnknown) {
    finding.set_class_(FindingClassName(static_cast<uint32_t>(origin.finding_class)));
  }
  if (origin.IsExternal()) finding.set_inputs_seen(true);
  if (kind == "input_data" && IsConstant(origin, consumer)) {
    finding.set_kind("op");
    finding.set_class_("scalar");
  }
  if (origin.record != nullptr && origin.record->value().has_samples()) {
    *finding.mutable_samples() = origin.record->value().samples();
  }
  const bool held_by_module = kind == "parameter" || kind == "buffer";
  if (held_by_module || (finding.layer().empty() && !finding.param().empty())) {
    const std::string module(ModuleOfParameter(finding.param()));
    if (module != finding.layer() && !module.empty()) {
      finding.set_layer(module);
      finding.clear_layer_type();
    }
  }
  return finding;
}

}  // namespace nanwatch
