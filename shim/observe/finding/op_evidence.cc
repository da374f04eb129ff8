// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/op_evidence.h"

#include <cstring>

#include "proto/wire/element_types.h"
#include "shim/check/scan.h"
#include "shim/observe/torch/saved_tensors.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

using wire::Phase;

// A cast to a wide type may overflow too (float64 to float32). Of a batch it rather passes on an
// Inf that was there (tables are read as float64); but what has a gradient was computed, by an op
// that left it finite.
bool IsCastOfComputed(const Frame& frame, const BadOutput& output) {
  return output.requires_grad && std::strcmp(frame.op->name, "aten::_to_copy") == 0;
}

}  // namespace

bool PassesOn(const Frame& frame) noexcept {
  return frame.op->transparent && !frame.op->writes_unseen && !frame.child_bad &&
         frame.op->schema != nullptr && IsOfAten(*frame.op);
}

OpEvidence EvidenceOf(const Frame& frame, const Location& place, const BadOutput* outputs,
                      int count, const Sources& sources, const UpdateEvidence& update) noexcept {
  OpEvidence evidence;
  for (int i = 0; i < count; ++i) evidence.output_kinds |= NonFiniteKinds(outputs[i].tensor.view);
  const uint32_t families = frame.op->families;
  evidence.inputs_seen = frame.inputs_seen;
  evidence.input_kinds = frame.inputs_seen ? sources.kinds : 0;
  // The numbers that a backward formula works with are its own results (2 / (n - 1) of a variance):
  // nobody asked.
  evidence.scalar_bad = frame.scalar_bad && place.phase != Phase::kBackward;
  // What the backward of where() puts among gradients is 0.
  evidence.writes_constants =
      (families & kFills) != 0 ||
      ((families & kMasks) != 0 && (place.phase != Phase::kBackward || RunsPythonNode()));
  evidence.enters = (families & kEnters) != 0 || outputs[0].came_in;
  evidence.moves = (families & kMoves) != 0 || PassesOn(frame);
  evidence.nan_proof = (families & kNanProof) != 0;
  evidence.nan_proof |= outputs[0].of_number;
  evidence.bad_number = outputs[0].of_number;
  const wire::ElementType type = outputs[0].tensor.view.type;
  // Complex arithmetic makes NaN of Inf - Inf between its parts.
  if (wire::IsComplex(type)) evidence.nan_proof = false;
  if (!frame.inputs_seen && (place.phase == Phase::kOptimizer || update.by_hand)) {
    if (update.given_finite && (families & kMixesIntoState) != 0) evidence.nan_proof = true;
    const TensorView& view = outputs[0].tensor.view;
    evidence.bad_number =
        evidence.nan_proof && !update.given_finite && view.numel > 1 && IsAllBad(view);
  }
  // A parameter may be multiplied by anything (1 - rate * decay), and requires a gradient.
  evidence.shrinks = !frame.inputs_seen && place.phase == Phase::kOptimizer &&
                     !evidence.bad_number && (families & kDecaysState) != 0 &&
                     !outputs[0].requires_grad;
  // What came into a module was looked at there, so that a cast inside one is of something finite.
  evidence.lacks_inf = ElementBytes(type) == 1 && type != wire::ElementType::kFloat8E5M2 &&
                       (place.layer != nullptr || outputs[0].requires_grad);
  evidence.narrows = type == wire::ElementType::kFloat16 || type == wire::ElementType::kBFloat16 ||
                     ElementBytes(type) == 1 || IsCastOfComputed(frame, outputs[0]);
  return evidence;
}

}  // namespace nanwatch
