// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/api/error_text.h"

#include <gtest/gtest.h>

#include <string>

namespace nanwatch {
namespace {

TEST(ErrorText, NonFiniteValuesAreNamedByWholeWords) {
  for (const char* message :
       {"cannot convert float NaN to integer", "cannot convert float infinity to integer",
        "probability tensor contains either `inf`, `nan` or element < 0",
        "Expected parameter logits of distribution Categorical(...) but found invalid values:",
        "tensor([[nan, nan]])", "loss is not finite at step 3", "Non-finite gradients",
        "The input matrix contained non-finite values.",
        "Function 'MulBackward0' returned nan values in its 0th output.", "NaNs found", "got -inf"})
    EXPECT_TRUE(SpeaksOfNonFinite(message)) << message;
}

TEST(ErrorText, OtherWordsAreNot) {
  for (const char* message :
       {"", "'Namespace' object has no attribute 'nan_policy'", "no module named 'nanogpt'",
        "information is missing", "infer the shape", "definite", "invalid literal",
        "values invalid", "the values are invalid", "CUDA out of memory", "banana", "stdinf"})
    EXPECT_FALSE(SpeaksOfNonFinite(message)) << message;
}

TEST(ErrorText, ALongMessageIsReadUpToItsBound) {
  EXPECT_TRUE(SpeaksOfNonFinite(std::string(60'000, ' ') + "nan"));
  EXPECT_FALSE(SpeaksOfNonFinite(std::string(70'000, ' ') + "nan"));
}

}  // namespace
}  // namespace nanwatch
