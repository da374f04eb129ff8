// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/gradient_path.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>

namespace nanwatch {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

bool answer = false;

// Asks in its backward, about the gradient that it was handed there.
struct Asks : torch::autograd::Function<Asks> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 1.0; }
  static tensor_list backward(AutogradContext*, tensor_list gradients) {
    answer = GradientsComeFromOps();
    return gradients;
  }
};

// A Function of the program's own.
struct HandsOn : torch::autograd::Function<HandsOn> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 1.0; }
  static tensor_list backward(AutogradContext*, tensor_list gradients) { return gradients; }
};

at::Tensor Hooked(const at::Tensor& x) {
  x.register_hook([](const at::Tensor& gradient) { return gradient; });
  return x;
}

// What is answered where `rest` of the forward follows the node that asks.
bool Ask(const std::function<at::Tensor(at::Tensor)>& rest) {
  const at::Tensor x = at::rand({2, 3}).set_requires_grad(true);
  answer = false;
  rest(Asks::apply(x)).sum().backward();
  return answer;
}

TEST(GradientPath, EndsAtTheOpOfTheNodeBefore) {
  EXPECT_TRUE(Ask([](const at::Tensor& x) { return x.exp(); }));
}

TEST(GradientPath, LeadsThroughViewsToTheOp) {
  EXPECT_TRUE(Ask([](const at::Tensor& x) { return x.view({3, 2}).t().unsqueeze(0).exp(); }));
}

TEST(GradientPath, MayBeginAtTheRoot) {
  EXPECT_TRUE(Ask([](const at::Tensor& x) { return x.view({6}); }));
}

TEST(GradientPath, IsCutByAHookOnTheNodeItself) {
  EXPECT_FALSE(Ask([](const at::Tensor& x) { return Hooked(x).exp(); }));
}

TEST(GradientPath, IsCutByAHookOnAView) {
  EXPECT_FALSE(Ask([](const at::Tensor& x) { return Hooked(x.view({6})).exp(); }));
}

TEST(GradientPath, IsCutByAHookSeveralViewsAway) {
  EXPECT_FALSE(Ask([](const at::Tensor& x) {
    return Hooked(x.view({3, 2})).t().unsqueeze(0).expand({2, 2, 3}).exp();
  }));
}

TEST(GradientPath, IsCutByAHookOnASum) {
  EXPECT_FALSE(Ask([](const at::Tensor& x) { return Hooked(x + 1.0).exp(); }));
}

TEST(GradientPath, IsNotCutByAHookBeforeTheOp) {
  EXPECT_TRUE(Ask([](const at::Tensor& x) { return Hooked(x.exp()).view({6}); }));
}

TEST(GradientPath, IsCutWhereOneOfSeveralIs) {
  EXPECT_FALSE(Ask([](const at::Tensor& x) { return x.exp() + Hooked(x.view({2, 3})); }));
}

TEST(GradientPath, IsCutByAFunctionOfTheProgram) {
  EXPECT_FALSE(Ask([](const at::Tensor& x) { return HandsOn::apply(x).exp(); }));
  EXPECT_FALSE(Ask([](const at::Tensor& x) { return HandsOn::apply(x.view({6})).exp(); }));
}

TEST(GradientPath, IsNotCutByAFunctionBeforeTheOp) {
  EXPECT_TRUE(Ask([](const at::Tensor& x) { return HandsOn::apply(x.exp()); }));
}

TEST(GradientPath, ThatIsTooLongIsNotKnown) {
  EXPECT_FALSE(Ask([](at::Tensor x) {
    for (int i = 0; i < 100; ++i) x = x.t();
    return x.exp();
  }));
}

TEST(GradientPath, IsOfNoConcernOutsideAPass) { EXPECT_TRUE(GradientsComeFromOps()); }

}  // namespace
}  // namespace nanwatch
