// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/stop.h"

#include <cstdio>

#include "shim/observe/events/process_segment.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/python/python_bridge.h"

namespace nanwatch {
namespace {

using wire::FindingClass;

constexpr int kWayMax = 64;

// Which source to follow: one that was bad, and -Inf alone, which masks are made of, only where
// there is nothing else. -1: none is a value.
int SourceToFollow(const wire::ValueRecord& record) {
  int follow = -1;
  for (int s = 0; s < record.n_sources; ++s) {
    if (record.sources[s].kind != static_cast<uint8_t>(wire::SourceKind::kValue)) continue;
    if (record.sources[s].kinds != wire::kHasNegInf) return s;
    if (follow < 0) follow = s;
  }
  return follow;
}

}  // namespace

// The value that `value` came from, as far back as recent values tell. A mask is no fault: what
// made NaN of one is.
RecentValues::Kept JobStop::FirstOf(ValueRef value) noexcept {
  RecentValues::Kept kept{};
  RecentValues::Kept next{};
  RecentValues::Kept inf_to_nan{};
  uint8_t kinds = 0;
  for (int i = 0; i < kWayMax && recent_.Look(value, &next); ++i) {
    kept = next;
    if (kept.finding_class == FindingClass::kInfToNan) inf_to_nan = kept;
    const int source = SourceToFollow(next.record);
    if (source < 0) break;
    kinds = next.record.sources[source].kinds;
    value = ValueRef{next.record.sources[source].value, next.source_index[source]};
  }
  const bool is_mask = kept.finding_class == FindingClass::kScalar ||
                       (kept.finding_class == FindingClass::kExternal && kinds == wire::kHasNegInf);
  return is_mask && inf_to_nan.op != 0 ? inf_to_nan : kept;
}

bool JobStop::StopBeforeUpdate(const Gradients& gradients, uint32_t step,
                               ValueRef bad_root) noexcept {
  const NamedTensor* named = gradients.first_bad;
  Emitter* emitter = segment_.Ensure();
  char text[768];
  const int length =
      std::snprintf(text, sizeof text,
                    "NaN or Inf in %u of %u gradients at step %u%s%s: this update was not applied "
                    "(--on-anomaly stop)",
                    gradients.bad, gradients.count, step, named != nullptr ? ", first in " : "",
                    named != nullptr ? named->name : "");
  const RecentValues::Kept first =
      FirstOf(bad_root.ticket != 0 ? bad_root : gradients.first_bad_value);
  if (emitter != nullptr && first.op != 0 && length > 0 &&
      static_cast<size_t>(length) < sizeof text) {
    char op[256];
    char layer[256];
    emitter->TextOf(first.op, op, sizeof op);
    emitter->TextOf(first.layer, layer, sizeof layer);
    std::snprintf(text + length, sizeof text - static_cast<size_t>(length),
                  ". It began with %s%s%s", op, *layer == '\0' ? "" : " in layer ", layer);
  }
  if (python_.RaiseSoon(text)) return true;
  entry_.say("the job could not be stopped: this thread runs no Python code");
  return false;
}

}  // namespace nanwatch
