// SPDX-License-Identifier: Apache-2.0
// The run of the README: a fully masked row of attention, with what came of it.
#pragma once

#include <string>

#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {

// `layer`: where the attention is.
inline void TellMaskedRow(RunBuilder& run, const std::string& layer) {
  run.Step(117);
  RecordTensor scores = Tensor({8, 4, 32, 32});
  scores.set_neg_inf(11264);
  scores.set_finite_min(-3.125);
  scores.set_finite_max(2.9);
  RecordTensor weights = Tensor({8, 4, 32, 32});
  weights.set_nan(1024);
  weights.set_first_bad(12288);
  weights.set_finite_max(1);
  run.Value(1).Scalar("aten::masked_fill").At(layer, "MultiheadAttention").NegInf();
  run.Value(2)
      .InfToNan("aten::_softmax")
      .At(layer, "MultiheadAttention")
      .Line("model.py:88 in forward")
      .From(1)
      .Input(scores)
      .Output(weights);
  run.Value(3).Propagate("aten::bmm").At(layer).From(2).Nan();
  run.Value(4).Propagate("aten::addmm").At("head").From(3).Nan();
  run.Value(5).Propagate("aten::nll_loss_forward").From(4).Nan();
  run.Value(6).Propagate("aten::mm").Backward("AddmmBackward0").At("head").From(5).Nan();
  auto pass = run.Pass(7).Root(5);
  for (int i = 0; i < 36; ++i) pass.Leaf("p" + std::to_string(i), 6);
  run.Value(8).Propagate("aten::addcdiv_").Optimizer("head.weight").From(6).Nan();
  auto update = run.Update(9);
  for (int i = 0; i < 36; ++i) update.Parameter("p" + std::to_string(i), 8);
}

}  // namespace nanwatch
