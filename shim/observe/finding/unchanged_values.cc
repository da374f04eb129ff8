// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/unchanged_values.h"

#include <algorithm>

#include "shim/classify/recent_values.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/op_families.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {

bool IsUnchanged(const ThreadState* thread, const Frame& frame, const BadOutput& output,
                 KnownBad& known_bad) noexcept {
  if (!frame.op->in_place || PutsBad(thread, frame)) return false;
  uint8_t kinds = 0;
  const uint64_t elements = known_bad.CountWithin(output.tensor, &kinds);
  if (elements == 0) return false;
  BadEntry now;
  CountBad(output.tensor.view, &now);
  return now.elements == elements && now.kinds == kinds;
}

namespace {

// What the model itself held when it was first called, or what came in from outside: a checkpoint.
bool IsFromModelOrOutside(const wire::Source& source, uint64_t index, RecentValues& recent) {
  if (source.kind == static_cast<uint8_t>(wire::SourceKind::kExternal)) return true;
  RecentValues::Kept made;
  return source.kind == static_cast<uint8_t>(wire::SourceKind::kValue) &&
         recent.Look({source.value, index}, &made) &&
         made.finding_class == wire::FindingClass::kExternal;
}

// A buffer of NaN that is filled as the training goes is copied from itself, or from a checkpoint.
bool IsRestored(const Finding& finding, const BadEntry& known, RecentValues& recent) {
  const bool is_held =
      known.target == wire::Target::kParameter || known.target == wire::Target::kBuffer;
  if (!is_held || !known.IsExternal()) return false;
  const Sources& sources = finding.sources;
  for (int i = 0; i < sources.count; ++i) {
    if (!IsFromModelOrOutside(sources.list[i], sources.index[i], recent)) return false;
  }
  return sources.count != 0 && !sources.assumed;
}

// Good values were put over some of the bad ones; `all` still are bad.
bool IsRestOfPut(const Finding& finding, bool all) {
  const Sources& sources = finding.sources;
  return !all && finding.finding_class == wire::FindingClass::kPropagate && !sources.assumed &&
         std::all_of(sources.list, sources.list + sources.count,
                     [](const wire::Source& source) { return source.input == 0; });
}

}  // namespace

bool FollowRest(const Finding& finding, KnownBad& known_bad, RecentValues& recent) noexcept {
  const Frame& frame = finding.frame;
  if (!frame.op->in_place || (frame.op->families & kMoves) == 0 || finding.count != 1) return false;
  const PlainTensor& tensor = finding.outputs[0].tensor;
  uint8_t kinds = 0;
  const uint64_t elements = known_bad.CountWithin(tensor, &kinds);
  BadEntry known;
  if (elements == 0 || !known_bad.Find(tensor, &known)) return false;
  BadEntry now;
  CountBad(tensor.view, &now);
  if (now.elements > elements || (now.kinds & ~kinds) != 0) return false;
  const bool all = now.elements == elements;
  bool is_rest = false;
  if (!frame.inputs_seen) {
    is_rest = finding.finding_class == wire::FindingClass::kExternal &&
              finding.sources.count == 0 && known.resident && known.IsExternal();
  } else if ((frame.op->families & kOverwrites) != 0) {
    is_rest = IsRestored(finding, known, recent);
  } else {
    is_rest = IsRestOfPut(finding, all);
  }
  if (is_rest) known_bad.RememberRest(tensor, known, /*writer_unseen=*/!frame.inputs_seen);
  return is_rest;
}

}  // namespace nanwatch
