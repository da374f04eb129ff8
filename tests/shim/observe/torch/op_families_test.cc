// SPDX-License-Identifier: Apache-2.0
// The table is private to its file, so that nobody else comes to depend on it: the test includes
// the file.
#include "shim/observe/torch/op_families.cc"

#include <gtest/gtest.h>

#include <string>

namespace nanwatch {
namespace {

using testing::TestWithParam;
using testing::Values;

// A name that the rule is meant for: a prefix rule matches its own prefix.
std::string Sample(const Rule& rule) {
  std::string name(rule.name);
  if (name.back() == '*') name.pop_back();
  return name;
}

TEST(OpFamilies, APrefixRuleTakesEveryNameThatBeginsSo) {
  for (const char* name : {"aten::empty", "aten::empty_like", "aten::empty_strided"}) {
    EXPECT_EQ(OpFamiliesOf(name), kAllocates | kReadsMetadata) << name;
  }
  EXPECT_EQ(OpFamiliesOf("aten::tanh_backward"), kNanProof);
}

TEST(OpFamilies, ARuleWithoutAStarTakesOneNameOnly) {
  EXPECT_EQ(OpFamiliesOf("aten::exp"), kNanProof);
  EXPECT_EQ(OpFamiliesOf("aten::exp2"), 0u);
  EXPECT_EQ(OpFamiliesOf("aten::expand"), 0u);
  EXPECT_EQ(OpFamiliesOf("aten::sort"), kMoves);
  EXPECT_EQ(OpFamiliesOf("aten::detach_"), kMoves);
  EXPECT_EQ(OpFamiliesOf("aten::sort_of"), 0u);
  EXPECT_EQ(OpFamiliesOf("aten::fill_"), kFills | kOverwrites | kReadsMetadata);
  EXPECT_EQ(OpFamiliesOf("aten::fill_diagonal_"), 0u);
}

TEST(OpFamilies, ANameIsMatchedFromItsBeginning) {
  EXPECT_EQ(OpFamiliesOf("my::aten::exp"), 0u);
  EXPECT_EQ(OpFamiliesOf("exp"), 0u);
  EXPECT_EQ(OpFamiliesOf(""), 0u);
}

TEST(OpFamilies, EveryOpOfACommunicationLibraryCommunicates) {
  EXPECT_EQ(OpFamiliesOf("c10d::allreduce_"), kCommunicates);
  EXPECT_EQ(OpFamiliesOf("_c10d_functional::all_gather_into_tensor"), kCommunicates);
  EXPECT_EQ(OpFamiliesOf("c10dx::allreduce_"), 0u);
  EXPECT_EQ(OpFamiliesOf("c10d::allgather_"), kCommunicates | kHandsOut);
  EXPECT_EQ(OpFamiliesOf("c10d::gather_"), kCommunicates | kHandsOut | kKeepsResults);
}

class MakesNanOfFiniteNumbers : public TestWithParam<const char*> {};

TEST_P(MakesNanOfFiniteNumbers, SoItExcusesNothing) {
  EXPECT_EQ(OpFamiliesOf(GetParam()) & (kNanProof | kMoves | kMasks | kFills | kEnters), 0u);
}

// Division and remainders by zero, functions outside their domain, Inf - Inf inside one op's own
// sums.
INSTANTIATE_TEST_SUITE_P(
    OpFamilies, MakesNanOfFiniteNumbers,
    Values("aten::div", "aten::div_", "aten::true_divide", "aten::fmod", "aten::remainder",
           "aten::reciprocal", "aten::log", "aten::log_", "aten::log1p", "aten::log2",
           "aten::log10", "aten::sqrt", "aten::rsqrt", "aten::pow", "aten::pow_", "aten::acos",
           "aten::asin", "aten::atanh", "aten::acosh", "aten::logit", "aten::lgamma",
           "aten::digamma", "aten::mean", "aten::sum", "aten::std", "aten::var", "aten::norm",
           "aten::linalg_vector_norm", "aten::cumsum", "aten::logsumexp", "aten::_softmax",
           "aten::_log_softmax", "aten::softmax", "aten::native_layer_norm",
           "aten::native_group_norm", "aten::mm", "aten::addmm", "aten::bmm", "aten::convolution",
           "aten::addcdiv_", "aten::addcdiv", "aten::sqrt_", "aten::linalg_inv_ex",
           "aten::linalg_cholesky_ex", "aten::nll_loss_forward", "aten::binary_cross_entropy"));

class ValuesOfTheModel : public TestWithParam<const char*> {};

TEST_P(ValuesOfTheModel, AreLookedAtInEveryOutput) {
  EXPECT_EQ(OpFamiliesOf(GetParam()) & (kFirstOutputOnly | kAllocates | kCreates), 0u);
}

INSTANTIATE_TEST_SUITE_P(OpFamilies, ValuesOfTheModel,
                         Values("aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                                "aten::_scaled_dot_product_flash_attention_backward",
                                "aten::_scaled_dot_product_efficient_attention_backward",
                                "aten::_scaled_dot_product_cudnn_attention_backward",
                                "aten::_flash_attention_backward",
                                "aten::_efficient_attention_backward",
                                "aten::max_pool2d_with_indices_backward", "aten::native_layer_norm",
                                "aten::native_layer_norm_backward", "aten::native_batch_norm",
                                "aten::native_batch_norm_backward", "aten::native_dropout_backward",
                                "aten::convolution_backward", "aten::lstm"));

TEST(OpFamilies, OfAnAttentionForwardOnlyTheFirstOutputHoldsValues) {
  for (const char* name : {"aten::_scaled_dot_product_flash_attention_for_cpu",
                           "aten::_scaled_dot_product_flash_attention",
                           "aten::_scaled_dot_product_efficient_attention",
                           "aten::_scaled_dot_product_cudnn_attention"}) {
    EXPECT_EQ(OpFamiliesOf(name), kFirstOutputOnly) << name;
  }
}

TEST(OpFamilies, OnlyTheForwardOfBatchNormWritesStatistics) {
  EXPECT_EQ(OpFamiliesOf("aten::native_batch_norm"), kBatchNorm);
  EXPECT_EQ(OpFamiliesOf("aten::native_batch_norm_backward"), 0u);
  EXPECT_EQ(OpFamiliesOf("aten::cudnn_batch_norm"), kBatchNorm);
}

TEST(OpFamilies, AWriterThatReadsNothingIsToldFromOneThatReads) {
  for (const char* name : {"aten::zero_", "aten::fill_", "aten::copy_", "aten::set_"}) {
    EXPECT_NE(OpFamiliesOf(name) & kOverwrites, 0u) << name;
  }
  for (const char* name : {"aten::add_", "aten::mul_", "aten::masked_fill_", "aten::relu_"}) {
    EXPECT_EQ(OpFamiliesOf(name) & kOverwrites, 0u) << name;
  }
}

TEST(OpFamilies, NothingIsBothUnlookedAtAndAMask) {
  for (const Rule& rule : kRules) {
    const bool unlooked = (rule.families & (kAllocates | kCreates | kCommunicates)) != 0;
    EXPECT_FALSE(unlooked && (rule.families & (kFills | kMasks | kEnters)) != 0) << rule.name;
  }
}

// Off while "aten::threshold*" takes "aten::threshold_backward", whose values are no masks.
TEST(OpFamilies, NoRuleIsShadowedByAnEarlierOne) {
  for (const Rule& rule : kRules) {
    const std::string sample = Sample(rule);
    for (const Rule* earlier = kRules; earlier != &rule; ++earlier) {
      EXPECT_FALSE(Matches(earlier->name, sample))
          << rule.name << " is never reached: " << earlier->name << " takes it";
    }
  }
}

TEST(OpFamilies, EveryExceptionIsOneToARule) {
  for (const Rule& exception : kExceptions) {
    bool needed = false;
    for (const Rule& rule : kRules) needed |= Matches(rule.name, exception.name);
    EXPECT_TRUE(needed) << exception.name << " says nothing that would not hold without it";
    EXPECT_EQ(OpFamiliesOf(exception.name), exception.families);
  }
}

}  // namespace
}  // namespace nanwatch
