// SPDX-License-Identifier: Apache-2.0
// The class of what an optimizer's update leaves bad, and of casts to types without Inf.
#include <gtest/gtest.h>

#include "shim/classify/finding_class.h"

namespace nanwatch {
namespace {

using Class = wire::FindingClass;

TEST(ClassOfAnUpdate, InfThatADecayCannotMakeWasThereBefore) {
  EXPECT_EQ(Classify({.output_kinds = wire::kHasPosInf, .shrinks = true}), Class::kExternal);
}

TEST(ClassOfAnUpdate, NanThatADecayLeavesIsItsOwn) {
  EXPECT_EQ(Classify({.output_kinds = wire::kHasNan, .shrinks = true}), Class::kProduce)
      << "0 * Inf is NaN, though nothing grows";
  EXPECT_EQ(Classify({.output_kinds = wire::kHasNan | wire::kHasPosInf, .shrinks = true}),
            Class::kProduce);
}

TEST(ClassOfAnUpdate, NanWhereAFiniteNumberMixesIntoFiniteStateWasThereBefore) {
  EXPECT_EQ(Classify({.output_kinds = wire::kHasNan, .nan_proof = true, .shrinks = true}),
            Class::kExternal);
}

TEST(ClassOfAnUpdate, BadNumberExplainsNoInf) {
  EXPECT_EQ(Classify({.output_kinds = wire::kHasPosInf, .nan_proof = true, .bad_number = true}),
            Class::kProduce);
}

TEST(ClassOfAnUpdate, BadNumberAloneExcusesNothing) {
  EXPECT_EQ(Classify({.output_kinds = wire::kHasNan, .bad_number = true}), Class::kProduce);
}

TEST(ClassOfAnUpdate, SeenInputsOutweighWhatTheOpMayDo) {
  EXPECT_EQ(Classify({.output_kinds = wire::kHasPosInf, .inputs_seen = true, .shrinks = true}),
            Class::kProduce);
  EXPECT_EQ(Classify({.output_kinds = wire::kHasNan, .inputs_seen = true, .nan_proof = true}),
            Class::kProduce);
}

TEST(ClassOfACast, NanInATypeWithoutInfIsTheOverflowOfAnOpThatMakesNoNan) {
  EXPECT_EQ(Classify({.output_kinds = wire::kHasNan, .lacks_inf = true, .nan_proof = true}),
            Class::kProduce);
}

TEST(ClassOfACast, NanMovedWithinAWideTypeWithoutInfWasThereBefore) {
  EXPECT_EQ(Classify({.output_kinds = wire::kHasNan, .moves = true, .lacks_inf = true}),
            Class::kExternal);
}

}  // namespace
}  // namespace nanwatch
