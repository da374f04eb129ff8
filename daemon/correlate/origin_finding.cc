// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/origin_finding.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "daemon/correlate/finding.h"
#include "daemon/correlate/op_traits.h"
#include "daemon/correlate/wire_facts.h"
#include "daemon/correlate/wire_names.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::Phase;
using wire::Target;

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
         IsOutsideModules(*consumer.site) && (value.flags() & kLoads) == kLoads &&
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
// norm is written nowhere, but what comes of it is. One that no module holds has no name, and not
// that of another.
std::string FirstSpoiled(const Lineage& lineage, const Origin& origin) {
  if (origin.node < 0 || WroteParameter(origin.record)) return "";
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

// What held the bad value that an origin is about, as far as its first reader shows it.
struct Holder {
  std::string_view kind;
  const ValueNode* consumer;  // the first to compute with it, of what came in
  std::string parameter;
  StateRead state;
};

Holder HolderOf(const Lineage& lineage, const Origin& origin) {
  Holder holder = {.kind = OriginKind(origin),
                   .consumer = nullptr,
                   .parameter = OriginParameter(origin),
                   .state = StateRead::kNo};
  if (holder.kind == "optimizer_state") {
    holder.state = StateReadBy(origin.site, origin.record, origin.source);
  }
  const ValueNode* consumer =
      holder.kind == "input_data" ? FirstConsumer(lineage, origin) : nullptr;
  if (consumer == nullptr) return holder;
  holder.consumer = consumer;
  if (!IsIn(origin.site, Phase::kBackward)) {
    const RecordSource* source = nullptr;
    if (consumer->record != nullptr && !consumer->record->value().sources().empty()) {
      source = &consumer->record->value().sources(0);
    }
    holder.state = StateReadBy(consumer->site, consumer->record, source);
  }
  const bool of_parameter = IsOfParameter(*consumer);
  if (of_parameter || IsOfBuffer(origin, *consumer)) {
    holder.kind = of_parameter ? "parameter" : "buffer";
    holder.parameter = consumer->record->value().param();
  }
  if (holder.state != StateRead::kNo) holder.kind = "optimizer_state";
  return holder;
}

// What is not known of it, beside what the origin says itself.
void AddDoubts(const Lineage& lineage, const Origin& origin, StateRead state, const Clocks* clocks,
               Finding& finding) {
  const auto doubt = [&finding](const char* unseen) {
    finding.set_exact(false);
    finding.add_unseen(unseen);
  };
  if (state == StateRead::kPerhaps && finding.exact()) doubt("inputs");
  // The ranks' records do not lead to the rank that gave it.
  if (origin.IsReceived()) doubt("sender");
  // Nobody saw the op that made it.
  if (!finding.exact() && finding.unseen().empty()) finding.add_unseen("ops");
  if (UpdatesWereUnseen(lineage, origin, clocks)) {
    finding.set_step(-1);
    finding.set_iteration(-1);
    finding.set_step_source("none");
  } else if (ReadingOf(lineage, origin, clocks).ambiguous) {
    doubt("turns");
  }
}

// The layer of a parameter or buffer is the module that holds it, whoever read it first. So is that
// of an op outside any module that writes to one.
void NameLayerOfHeld(std::string_view kind, Finding& finding) {
  const bool held_by_module = kind == "parameter" || kind == "buffer";
  if (!held_by_module && (!IsOutsideModules(finding) || finding.param().empty())) return;
  const std::string module(ModuleOfParameter(finding.param()));
  if (module == finding.layer() || module.empty()) return;
  finding.set_layer(module);
  finding.clear_layer_type();
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

bool MayBeAnotherOp(const Finding& origin) {
  const auto& unseen = origin.unseen();
  return !origin.exact() &&
         (unseen.empty() || std::find(unseen.begin(), unseen.end(), "ops") != unseen.end());
}

Finding DescribeOrigin(const Lineage& lineage, const Origin& origin) {
  Holder holder = HolderOf(lineage, origin);
  const ValueNode* const consumer = holder.consumer;
  const Site* site = consumer != nullptr ? consumer->site : origin.site;
  const Clocks* clocks = consumer != nullptr ? consumer->clocks : origin.clocks;
  Finding finding = DescribeRecord(lineage, site, origin.record, clocks);
  finding.set_kind(std::string(holder.kind));
  finding.set_ticket(origin.ticket);
  finding.set_exact(origin.exact);
  AddUnseen(origin.unseen, finding);
  AddDoubts(lineage, origin, holder.state, clocks, finding);
  if (holder.kind.starts_with("optimizer") && holder.parameter.empty()) {
    holder.parameter = FirstSpoiled(lineage, origin);
  }
  finding.set_param(holder.parameter);
  if (origin.finding_class != FindingClass::kUnknown) {
    finding.set_class_(FindingClassName(static_cast<uint32_t>(origin.finding_class)));
  }
  if (origin.IsExternal()) finding.set_inputs_seen(true);
  if (holder.kind == "input_data" && IsConstant(origin, consumer)) {
    finding.set_kind("op");
    finding.set_class_("scalar");
  }
  if (origin.record != nullptr && origin.record->value().has_samples()) {
    *finding.mutable_samples() = origin.record->value().samples();
  }
  NameLayerOfHeld(holder.kind, finding);
  return finding;
}

}  // namespace nanwatch
