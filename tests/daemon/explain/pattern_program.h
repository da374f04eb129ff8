// SPDX-License-Identifier: Apache-2.0
// What the tests of the known causes share: tensors with bad values, and the pattern of a run of
// one value.
#pragma once

#include <functional>
#include <utility>

#include "daemon/explain/explain.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {

inline RecordTensor Of(wire::ElementType type, RecordTensor tensor) {
  tensor.set_element_type(static_cast<uint32_t>(type));
  return tensor;
}
inline RecordTensor Half(RecordTensor tensor) {
  return Of(wire::ElementType::kFloat16, std::move(tensor));
}
inline RecordTensor Range(RecordTensor tensor, double min, double max) {
  tensor.set_finite_min(min);
  tensor.set_finite_max(max);
  return tensor;
}
inline RecordTensor WithNan(RecordTensor tensor, uint64_t bad = 1, int64_t first = 0) {
  tensor.set_nan(bad);
  tensor.set_first_bad(first);
  return tensor;
}
inline RecordTensor WithPosInf(RecordTensor tensor, uint64_t bad = 1, int64_t first = 0) {
  tensor.set_pos_inf(bad);
  tensor.set_first_bad(first);
  return tensor;
}
inline RecordTensor WithNegInf(RecordTensor tensor, uint64_t bad = 1, int64_t first = 0) {
  tensor.set_neg_inf(bad);
  tensor.set_first_bad(first);
  return tensor;
}

// The pattern of a run in which value 1 is told by `tell` and becomes the loss at step 4.
inline Pattern PatternOfLoss(const std::function<void(ValueBuilder&)>& tell) {
  RunBuilder run;
  run.Step(4);
  tell(run.Value(1));
  run.Pass(2).Root(1);
  return Diagnose({run.Build()}).incidents(0).pattern();
}

// The same for a value that reaches a gradient under a finite loss.
inline Pattern PatternOfGradient(const std::function<void(ValueBuilder&)>& tell) {
  RunBuilder run;
  run.Step(4);
  tell(run.Value(1));
  run.Value(2).Propagate("aten::mul").Backward("MulBackward0").From(1).Nan();
  run.Pass(3).Leaf("fc.weight", 2);
  return Diagnose({run.Build()}).incidents(0).pattern();
}

// The same for what an update writes into the parameter gate.weight.
inline Pattern PatternOfUpdate(const std::function<void(ValueBuilder&)>& tell) {
  RunBuilder run;
  tell(run.Value(1));
  run.Update(2).Parameter("gate.weight", 1);
  return Diagnose({run.Build()}).incidents(0).pattern();
}

}  // namespace nanwatch
