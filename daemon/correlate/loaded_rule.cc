// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/loaded_rule.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string_view>

#include "daemon/correlate/replaced_origins.h"
#include "daemon/correlate/wire_facts.h"

namespace nanwatch {
namespace {

bool IsOfFirstIteration(const StepClock& clock, const Origin& origin) {
  return origin.clocks != nullptr && clock.Read(*origin.clocks).iteration_of_run <= 0;
}

bool IsLoaded(const StepClock& clock, const Origin& origin) {
  const bool lasting =
      Is(origin.target, wire::Target::kParameter) || Is(origin.target, wire::Target::kBuffer);
  return origin.IsExternal() && lasting && IsOfFirstIteration(clock, origin);
}

bool IsOpOutsideModules(const Site* site, std::string_view op) {
  return site != nullptr && site->op() == op && IsOutsideModules(*site);
}

bool IsWithoutGradients(const Record* record) {
  return record != nullptr && record->has_value() &&
         Has(record->value().flags(), wire::ValueRecord::kWithoutGradients);
}

// How load_state_dict and broadcasts handle tensors; batches are rather stacked, or cast. What
// torch.load has made (set_), or came from numpy (lift_fresh), may be either: it counts where it
// was copied into what was there, and numpy's only where gradients were off.
bool IsCarriedNameless(const StepClock& clock, const std::vector<ValueNode>& nodes, int index,
                       const Origin& origin) {
  if (!origin.CameInNameless() || origin.site == nullptr) return false;
  if (!IsOfFirstIteration(clock, origin)) return false;
  const bool is_of_numpy = IsOpOutsideModules(origin.site, "aten::lift_fresh");
  if (is_of_numpy || IsOpOutsideModules(origin.site, "aten::set_")) {
    return std::any_of(nodes.begin(), nodes.end(), [&](const ValueNode& node) {
      return node.origin == index && IsOpOutsideModules(node.site, "aten::copy_") &&
             (!is_of_numpy || IsWithoutGradients(node.record));
    });
  }
  return IsOpOutsideModules(origin.site, "aten::copy_") ||
         IsOpOutsideModules(origin.site, "aten::cat") ||
         IsOpOutsideModules(origin.site, "aten::clone");
}

// In tensors of as many elements, some of them finite.
bool CountTheSame(const RecordTensor& a, const RecordTensor& b) {
  const uint64_t bad = a.nan() + a.pos_inf() + a.neg_inf();
  return a.element_type() == b.element_type() && a.numel() == b.numel() &&
         bad < static_cast<uint64_t>(a.numel()) && a.nan() == b.nan() &&
         a.pos_inf() == b.pos_inf() && a.neg_inf() == b.neg_inf();
}

bool HasSameRange(const RecordTensor& a, const RecordTensor& b) {
  return a.finite_min() == b.finite_min() && a.finite_max() == b.finite_max();
}

// Given to the parameter with its memory, by no op: `p.data = tensor`, `nn.Parameter(tensor)`, a
// module that was read from a file whole. What was counted in it when it came in is what was counted
// when the parameter was first read. A buffer may have been read by the op that wrote it anew, as
// running statistics are: the same elements are bad.
bool IsGivenNameless(const StepClock& clock, const Origin& origin, const Origin& loaded) {
  const bool is_of_numpy = IsOpOutsideModules(origin.site, "aten::lift_fresh");
  const bool is_of_file = IsOpOutsideModules(origin.site, "aten::set_");
  if (!origin.CameInNameless() || (!is_of_numpy && !is_of_file)) return false;
  if (origin.record == nullptr || origin.record->value().outputs().empty()) return false;
  if (loaded.record == nullptr || loaded.source == nullptr) return false;
  if (origin.ticket > loaded.ticket || !IsLoaded(clock, loaded)) return false;
  const RecordTensor& came_in = origin.record->value().outputs(0);
  const ValueFact& reader = loaded.record->value();
  const auto is_of_it = [&](const RecordTensor& tensor) {
    return tensor.index() == loaded.source->input() && CountTheSame(tensor, came_in);
  };
  return std::any_of(reader.inputs().begin(), reader.inputs().end(),
                     [&](const RecordTensor& input) {
                       return is_of_it(input) && HasSameRange(input, came_in);
                     }) ||
         (Is(reader.target(), wire::Target::kBuffer) &&
          std::any_of(reader.outputs().begin(), reader.outputs().end(),
                      [&](const RecordTensor& output) {
                        return is_of_it(output) && output.first_bad() == came_in.first_bad();
                      }));
}

// Copied into a parameter of a model that has not been called: it has no name yet.
bool IsCopiedIntoNameless(const ValueNode& node) {
  return IsOpOutsideModules(node.site, "aten::copy_") && WroteParameter(node.record) &&
         node.record->value().param().empty();
}

// Under which it reads a parameter; null: it reads none.
const RecordSource* ParameterOf(const ValueNode& reader) {
  if (reader.site == nullptr || reader.record == nullptr) return nullptr;
  const auto& sources = reader.record->value().sources();
  const auto found = std::find_if(sources.begin(), sources.end(), [](const RecordSource& source) {
    return Is(source.target(), wire::Target::kParameter);
  });
  return found == sources.end() ? nullptr : &*found;
}

void MoveTo(int reader, const RecordSource& source, std::vector<ValueNode>& nodes, Origin& origin) {
  ValueNode& node = nodes[static_cast<size_t>(reader)];
  node.via = -1;
  node.because = Because::kCameIn;
  origin.node = reader;
  origin.ticket = node.ticket;
  origin.site = node.site;
  origin.record = node.record;
  origin.clocks = node.clocks;
  origin.source = &source;
  origin.target = source.target();
}

}  // namespace

void TakeForLoaded(const StepClock& clock, const std::vector<Origin>& origins,
                   std::vector<ValueNode>& nodes, std::vector<ReachEvent>& events,
                   std::vector<Sending>& sendings) {
  const auto loaded = std::find_if(origins.begin(), origins.end(),
                                   [&](const Origin& origin) { return IsLoaded(clock, origin); });
  if (loaded == origins.end()) return;
  std::vector<int> instead(origins.size());
  std::iota(instead.begin(), instead.end(), 0);
  for (size_t i = 0; i < origins.size(); ++i) {
    auto same = std::find_if(loaded, origins.end(), [&](const Origin& origin) {
      return IsGivenNameless(clock, origins[i], origin);
    });
    if (same == origins.end() && origins[i].ticket <= loaded->ticket &&
        IsCarriedNameless(clock, nodes, static_cast<int>(i), origins[i])) {
      same = loaded;
    }
    if (same != origins.end()) instead[i] = static_cast<int>(same - origins.begin());
  }
  ReplaceOrigins(instead, nodes, events, sendings);
}

void TakeForWritten(std::vector<Origin>& origins, std::vector<ValueNode>& nodes,
                    std::vector<ReachEvent>& events) {
  for (size_t copied = 0; copied < nodes.size(); ++copied) {
    const int index = nodes[copied].origin;
    if (index < 0 || !IsCopiedIntoNameless(nodes[copied])) continue;
    Origin& origin = origins[static_cast<size_t>(index)];
    if (!origin.CameInNameless()) continue;
    for (size_t reader = copied + 1; reader < nodes.size(); ++reader) {
      if (nodes[reader].origin != index) continue;
      const RecordSource* parameter = ParameterOf(nodes[reader]);
      if (parameter == nullptr) continue;
      MoveTo(static_cast<int>(reader), *parameter, nodes, origin);
      for (ReachEvent& event : events) {
        if (event.origin != index || event.ticket >= origin.ticket) continue;
        event.node = origin.node;
        event.clocks = origin.clocks;
      }
      break;
    }
  }
}

}  // namespace nanwatch
