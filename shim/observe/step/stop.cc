#include "shim/observe/step/stop.h"

#include <cstdio>

#include "shim/observe/observer.h"
#include "shim/observe/python/python_names.h"

namespace nanwatch {
namespace {

constexpr int kWayMax = 64;

// The value that `value` came from, as far back as recent values tell.
RecentValues::Kept FirstOf(Observer& observer, ValueRef value) {
  RecentValues::Kept kept{};
  RecentValues::Kept next{};
  for (int i = 0; i < kWayMax && observer.recent_values.Look(value, &next); ++i) {
    kept = next;
    const auto is_value = [&next](int s) {
      return next.record.sources[s].kind == static_cast<uint8_t>(wire::SourceKind::kValue);
    };
    int source = 0;
    while (source < next.record.n_sources && !is_value(source)) ++source;
    if (source == next.record.n_sources) break;
    value = ValueRef{next.record.sources[source].value, next.source_index[source]};
  }
  return kept;
}

}  // namespace

bool StopBeforeUpdate(Observer& observer, uint32_t bad, uint32_t count, const NamedTensor* named,
                      ValueRef value) noexcept {
  Emitter* emitter = observer.EnsureEmitter();
  char text[768];
  const int length =
      std::snprintf(text, sizeof text,
                    "NaN or Inf in %u of %u gradients at step %u%s%s: this update was not applied "
                    "(--on-anomaly stop)",
                    bad, count, observer.steps.StepsOfNewest(),
                    named != nullptr ? ", first in " : "", named != nullptr ? named->name : "");
  const RecentValues::Kept first = FirstOf(observer, value);
  if (emitter != nullptr && first.op != 0 && length > 0 &&
      static_cast<size_t>(length) < sizeof text) {
    char op[256];
    char layer[256];
    emitter->TextOf(first.op, op, sizeof op);
    emitter->TextOf(first.layer, layer, sizeof layer);
    std::snprintf(text + length, sizeof text - static_cast<size_t>(length),
                  ". It began with %s%s%s", op, *layer == '\0' ? "" : " in layer ", layer);
  }
  if (observer.python->RaiseSoon(text)) return true;
  observer.entry()->say("the job could not be stopped: this thread runs no Python code");
  return false;
}

}  // namespace nanwatch
