// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/unchanged_values.h"

#include <algorithm>

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

// A buffer of NaN that is filled as the training goes, copied from itself or from a checkpoint: it
// holds no more than it did when its model was first called.
bool IsHeldByModel(const BadEntry& known) {
  return known.IsExternal() &&
         (known.target == wire::Target::kParameter || known.target == wire::Target::kBuffer);
}

}  // namespace

bool FollowRest(const Finding& finding, KnownBad& known_bad) noexcept {
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
  if ((frame.op->families & kOverwrites) != 0) {
    const bool is_held = IsHeldByModel(known);
    if (is_held) known_bad.RememberRest(tensor, known, /*writer_unseen=*/false);
    return is_held;
  }
  if (now.elements == elements) return false;
  const Sources& sources = finding.sources;
  if (frame.inputs_seen) {
    const bool put_good = finding.finding_class == wire::FindingClass::kPropagate &&
                          !sources.assumed &&
                          std::all_of(sources.list, sources.list + sources.count,
                                      [](const wire::Source& source) { return source.input == 0; });
    if (put_good) known_bad.RememberRest(tensor, known, /*writer_unseen=*/false);
    return put_good;
  }
  const bool may_be_rest = finding.finding_class == wire::FindingClass::kExternal &&
                           sources.count == 0 && known.resident && known.IsExternal();
  if (may_be_rest) known_bad.RememberRest(tensor, known, /*writer_unseen=*/true);
  return may_be_rest;
}

}  // namespace nanwatch
