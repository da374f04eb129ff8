// SPDX-License-Identifier: Apache-2.0
#include "shim/classify/finding_class.h"

namespace nanwatch {
namespace {

using wire::FindingClass;

FindingClass FromSeenInputs(const OpEvidence& evidence) {
  if ((evidence.input_kinds & wire::kHasNan) != 0) return FindingClass::kPropagate;
  if (evidence.input_kinds != 0) {
    return (evidence.output_kinds & wire::kHasNan) != 0 ? FindingClass::kInfToNan
                                                        : FindingClass::kPropagate;
  }
  if (evidence.scalar_bad) return FindingClass::kScalar;
  if (evidence.enters) return FindingClass::kExternal;
  return FindingClass::kProduce;
}

FindingClass FromCleanState(const OpEvidence& evidence) {
  const bool has_nan = (evidence.output_kinds & wire::kHasNan) != 0 && !evidence.lacks_inf;
  // A bound may be infinite, and is not NaN.
  const bool bounds = evidence.writes_constants && evidence.nan_proof;
  if (evidence.writes_constants && !(bounds && has_nan)) return FindingClass::kScalar;
  if (evidence.enters) return FindingClass::kExternal;
  if (evidence.moves && (has_nan || !evidence.narrows)) return FindingClass::kExternal;
  if (evidence.nan_proof && has_nan) {
    return evidence.bad_number ? FindingClass::kScalar : FindingClass::kExternal;
  }
  if (evidence.shrinks && !has_nan) return FindingClass::kExternal;
  return FindingClass::kProduce;
}

}  // namespace

FindingClass Classify(const OpEvidence& evidence) noexcept {
  return evidence.inputs_seen ? FromSeenInputs(evidence) : FromCleanState(evidence);
}

}  // namespace nanwatch
