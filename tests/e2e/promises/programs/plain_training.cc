// SPDX-License-Identifier: Apache-2.0
// A C++ LibTorch program without anything of Python or of ours: three training steps by hand, the
// second of which takes the square root of a negative number.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sqrt.h>
#include <c10/core/GradMode.h>

#include <cstdio>

namespace {

// -> the loss, and `weight` updated
at::Tensor Step(at::Tensor& weight, double scale) {
  const at::Tensor loss = at::sqrt(at::mm(at::ones({2, 4}), weight).sum().mul(scale));
  loss.backward();
  const c10::NoGradGuard no_grad;
  weight.sub_(weight.grad(), 0.01);
  weight.mutable_grad().reset();
  return loss;
}

}  // namespace

int main() {
  at::Tensor weight = at::ones({4, 3});
  weight.requires_grad_(true);
  for (const double scale : {1.0, -1.0, 1.0}) {
    std::printf("%a\n", Step(weight, scale).item<double>());
  }
  return 0;
}
