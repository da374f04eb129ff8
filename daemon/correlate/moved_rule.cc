// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/moved_rule.h"

#include <algorithm>

#include "daemon/correlate/op_traits.h"
#include "daemon/correlate/wire_facts.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

// Nothing bad that is not the buffer's own went into the value.
bool ComesOf(ValueGraph& values, const ValueNode& node, const std::string& buffer) {
  if (node.record == nullptr || !node.record->has_value()) return true;
  const auto& sources = node.record->value().sources();
  return std::all_of(sources.begin(), sources.end(), [&](const RecordSource& source) {
    const int index = values.Find(source.value());
    if (index < 0 || values.node(index).origin < 0) return source.name() == buffer;
    const Origin& origin = values.origins()[values.node(index).origin];
    return origin.source != nullptr && origin.source->name() == buffer;
  });
}

}  // namespace

bool IsMovedWithin(ValueGraph& values, const std::string& buffer, int node) {
  const Origin& origin = values.origins()[values.node(node).origin];
  if (!origin.IsExternal() || !Is(origin.target, wire::Target::kBuffer) ||
      origin.source == nullptr || origin.source->name() != buffer) {
    return false;
  }
  // A copy of it is another one of that name (load_state_dict of itself is none to the job).
  if (node == origin.node) return false;
  // Edges lead to smaller tickets.
  for (int at = node; at >= 0; at = values.node(at).via) {
    const Site* site = values.node(at).site;
    if (site == nullptr || !ComesOf(values, values.node(at), buffer)) return false;
    if (!MovesValues(site->op()) && site->op() != "torch.nn.Module.__setattr__") return false;
  }
  return true;
}

}  // namespace nanwatch
