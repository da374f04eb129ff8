// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/unchanged_values.h"

#include <algorithm>

#include "shim/classify/recent_values.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/op_families.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

// How many elements of a tensor are bad now, and how many are known to have been; `known` is 0
// where they were not counted.
struct Counted {
  uint64_t known = 0;
  uint8_t known_kinds = 0;
  uint64_t now = 0;
  uint8_t now_kinds = 0;
};

// Reads the tensor only where something is known of it.
Counted Count(const PlainTensor& tensor, KnownBad& known_bad) {
  Counted counted;
  counted.known = known_bad.CountWithin(tensor, &counted.known_kinds);
  if (counted.known == 0) return counted;
  BadEntry now;
  CountBad(tensor.view, &now);
  counted.now = now.elements;
  counted.now_kinds = now.kinds;
  return counted;
}

// What the model itself held when it was first called, or what came in from outside: a checkpoint.
bool IsFromModelOrOutside(const wire::Source& source, uint64_t index, RecentValues& recent) {
  return source.kind == static_cast<uint8_t>(wire::SourceKind::kExternal) ||
         (source.kind == static_cast<uint8_t>(wire::SourceKind::kValue) &&
          recent.CameIn({source.value, index}));
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

// Good values were put beside the bad ones that it held.
bool IsRestOfPut(const Finding& finding) {
  const Sources& sources = finding.sources;
  return finding.finding_class == wire::FindingClass::kPropagate && !sources.assumed &&
         std::all_of(sources.list, sources.list + sources.count,
                     [](const wire::Source& source) { return source.input == 0; });
}

}  // namespace

bool IsUnchanged(const ThreadState* thread, const Frame& frame, const BadOutput& output,
                 KnownBad& known_bad) noexcept {
  if (!frame.op->in_place || PutsBad(thread, frame)) return false;
  // Each of two gradients may have become bad by itself, and the earlier one is to blame.
  if (AddsBad(thread, frame) && LocationOf(thread).phase == wire::Phase::kBackward) return false;
  const Counted counted = Count(output.tensor, known_bad);
  return counted.known != 0 && counted.now == counted.known &&
         counted.now_kinds == counted.known_kinds;
}

bool FollowRest(const Finding& finding, KnownBad& known_bad, RecentValues& recent) noexcept {
  const Frame& frame = finding.frame;
  if (!frame.op->in_place || (frame.op->families & kMoves) == 0 || finding.count != 1) return false;
  const PlainTensor& tensor = finding.outputs[0].tensor;
  BadEntry known;
  if (!known_bad.Find(tensor, &known)) return false;
  const Counted counted = Count(tensor, known_bad);
  if (counted.known == 0 || counted.now > counted.known ||
      (counted.now_kinds & ~counted.known_kinds) != 0) {
    return false;
  }
  bool is_rest = false;
  if (!frame.inputs_seen) {
    is_rest = finding.finding_class == wire::FindingClass::kExternal &&
              finding.sources.count == 0 && known.resident && known.IsExternal();
  } else if ((frame.op->families & kOverwrites) != 0) {
    is_rest = IsRestored(finding, known, recent);
  } else {
    is_rest = counted.now < counted.known && IsRestOfPut(finding);
  }
  if (is_rest) known_bad.RememberRest(tensor, known, /*writer_unseen=*/!frame.inputs_seen);
  return is_rest;
}

}  // namespace nanwatch
