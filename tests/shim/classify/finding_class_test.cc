// SPDX-License-Identifier: Apache-2.0
#include "shim/classify/finding_class.h"

#include <gtest/gtest.h>

#include <string>

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::kHasNan;
using wire::kHasNegInf;
using wire::kHasPosInf;

struct Case {
  const char* name;
  OpEvidence evidence;
  FindingClass expected;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class FindingClassOf : public testing::TestWithParam<Case> {};

TEST_P(FindingClassOf, Evidence) { EXPECT_EQ(Classify(GetParam().evidence), GetParam().expected); }

std::string NameOf(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    InputsSeen, FindingClassOf,
    testing::Values(
        Case{"NanOfFiniteInputsIsMadeHere",
             {.output_kinds = kHasNan, .inputs_seen = true},
             FindingClass::kProduce},
        Case{"InfOfFiniteInputsIsMadeHere",
             {.output_kinds = kHasPosInf, .inputs_seen = true},
             FindingClass::kProduce},
        Case{"NanOfNanIsHandedOn",
             {.output_kinds = kHasNan, .inputs_seen = true, .input_kinds = kHasNan},
             FindingClass::kPropagate},
        Case{"InfOfInfIsHandedOn",
             {.output_kinds = kHasPosInf, .inputs_seen = true, .input_kinds = kHasPosInf},
             FindingClass::kPropagate},
        Case{"InfOfTheOtherSignIsHandedOn",
             {.output_kinds = kHasNegInf, .inputs_seen = true, .input_kinds = kHasPosInf},
             FindingClass::kPropagate},
        Case{"NanOfPosInfIsTheStepFromInfToNan",
             {.output_kinds = kHasNan, .inputs_seen = true, .input_kinds = kHasPosInf},
             FindingClass::kInfToNan},
        Case{"NanOfNegInfIsTheStepFromInfToNan",
             {.output_kinds = kHasNan, .inputs_seen = true, .input_kinds = kHasNegInf},
             FindingClass::kInfToNan},
        Case{"NanBesideInfOfInfIsTheStepFromInfToNan",
             {.output_kinds = kHasNan | kHasPosInf, .inputs_seen = true, .input_kinds = kHasPosInf},
             FindingClass::kInfToNan},
        Case{"OneNanAmongInfInputsExplainsTheNan",
             {.output_kinds = kHasNan, .inputs_seen = true, .input_kinds = kHasNan | kHasPosInf},
             FindingClass::kPropagate},
        Case{"InfOfNanIsHandedOn",
             {.output_kinds = kHasPosInf, .inputs_seen = true, .input_kinds = kHasNan},
             FindingClass::kPropagate},
        Case{"BadNumberAmongFiniteTensorsWasAskedFor",
             {.output_kinds = kHasNegInf, .inputs_seen = true, .scalar_bad = true},
             FindingClass::kScalar},
        Case{"BadTensorOutweighsABadNumber",
             {.output_kinds = kHasNan,
              .inputs_seen = true,
              .input_kinds = kHasNan,
              .scalar_bad = true},
             FindingClass::kPropagate},
        Case{"MaskWithInfInputThatMakesNanIsNoMask",
             {.output_kinds = kHasNan,
              .inputs_seen = true,
              .input_kinds = kHasPosInf,
              .scalar_bad = true,
              .writes_constants = true},
             FindingClass::kInfToNan},
        Case{"EntryOfFiniteTensorsComesFromOutside",
             {.output_kinds = kHasNan, .inputs_seen = true, .enters = true},
             FindingClass::kExternal},
        Case{"BadNumberOutweighsEntry",
             {.output_kinds = kHasNan, .inputs_seen = true, .scalar_bad = true, .enters = true},
             FindingClass::kScalar},
        Case{"MaskOpWithFiniteConstantAndInputsIsMadeHere",
             {.output_kinds = kHasPosInf, .inputs_seen = true, .writes_constants = true},
             FindingClass::kProduce},
        Case{"CastThatOverflowsSeenFiniteInputsIsMadeHere",
             {.output_kinds = kHasPosInf, .inputs_seen = true, .moves = true, .narrows = true},
             FindingClass::kProduce}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    NothingBadWasAlive, FindingClassOf,
    testing::Values(
        Case{"MovedNanWasThereBefore",
             {.output_kinds = kHasNan, .moves = true},
             FindingClass::kExternal},
        Case{"EntryComesFromOutside",
             {.output_kinds = kHasNan, .enters = true, .moves = true},
             FindingClass::kExternal},
        Case{"MovedNanBesideInfInANarrowTypeIsNoCast",
             {.output_kinds = kHasNan | kHasPosInf, .moves = true, .narrows = true},
             FindingClass::kExternal},
        Case{"EntryThatNarrowsComesFromOutside",
             {.output_kinds = kHasPosInf, .enters = true, .moves = true, .narrows = true},
             FindingClass::kExternal},
        Case{"InfOfAnOpThatMakesNoNanIsAnOverflow",
             {.output_kinds = kHasPosInf, .nan_proof = true},
             FindingClass::kProduce},
        Case{"NanIsMadeHere", {.output_kinds = kHasNan}, FindingClass::kProduce},
        Case{"NanEverywhereInAnUpdateIsItsNumber",
             {.output_kinds = kHasNan, .nan_proof = true, .bad_number = true},
             FindingClass::kScalar},
        Case{"InfIsMadeHere", {.output_kinds = kHasPosInf}, FindingClass::kProduce},
        Case{"MovedInfInANarrowTypeIsACastThatOverflowed",
             {.output_kinds = kHasPosInf, .moves = true, .narrows = true},
             FindingClass::kProduce},
        Case{"ConstantWriterWasAskedFor",
             {.output_kinds = kHasNegInf, .writes_constants = true},
             FindingClass::kScalar},
        Case{"BoundIsNoNan",
             {.output_kinds = kHasNan, .writes_constants = true, .nan_proof = true},
             FindingClass::kExternal},
        Case{"BoundMayBeInfinite",
             {.output_kinds = kHasPosInf, .writes_constants = true, .nan_proof = true},
             FindingClass::kScalar},
        Case{"MovedInfOfTheSameWidthWasThereBefore",
             {.output_kinds = kHasPosInf, .moves = true},
             FindingClass::kExternal},
        Case{"NanOfAnOpThatMakesNoneWasThereBefore",
             {.output_kinds = kHasNan, .nan_proof = true},
             FindingClass::kExternal},
        Case{"NarrowTypeAloneExcusesNothing",
             {.output_kinds = kHasNan, .narrows = true},
             FindingClass::kProduce},
        Case{"MovedNanInATypeWithoutInfIsACastThatOverflowed",
             {.output_kinds = kHasNan, .moves = true, .narrows = true, .lacks_inf = true},
             FindingClass::kProduce},
        Case{"WhatIsSaidOfInputsCountsOnlyWhenTheyWereSeen",
             {.output_kinds = kHasNan, .input_kinds = kHasNan, .scalar_bad = true},
             FindingClass::kProduce},
        Case{"MovedNanInANarrowTypeIsNoCast",
             {.output_kinds = kHasNan, .moves = true, .narrows = true},
             FindingClass::kExternal},
        Case{"MaskThatAlsoMovesWasAskedFor",
             {.output_kinds = kHasNegInf, .writes_constants = true, .moves = true},
             FindingClass::kScalar}),
    NameOf);

}  // namespace
}  // namespace nanwatch
