// SPDX-License-Identifier: Apache-2.0
// What the table knows of ops, by the schemas of the libtorch that this is linked to and by some
// that are made here.
#include "shim/observe/torch/op_table.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace nanwatch {
namespace {

std::string ManyWrites() {
  std::string schema = "many_writes(Tensor(a0!) x0";
  for (int i = 1; i < 64; ++i) {
    schema += ", Tensor(a" + std::to_string(i) + "!) x" + std::to_string(i);
  }
  return schema + ") -> Tensor";
}

TORCH_LIBRARY(nanwatch_op_table, library) {
  library.def("plain(Tensor x) -> Tensor");
  library.def("integer(Tensor x) -> int");
  library.def("nested(Tensor x) -> (int, (int, Tensor)[])");
  library.def("maybe(Tensor x) -> Tensor?");
  library.def(ManyWrites().c_str());
}

const c10::FunctionSchema& SchemaOf(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).schema();
}

class OpTableTest : public testing::Test {
 protected:
  const OpTraits& Of(const char* name, const char* overload = "") {
    return *table_->Find(&SchemaOf(name, overload));
  }

  std::unique_ptr<OpTable> table_ = std::make_unique<OpTable>();  // leaks its traits, as in the job
};

TEST_F(OpTableTest, GivesTheSameTraitsWheneverAnOpIsLookedUp) {
  const OpTraits& mm = Of("aten::mm");
  EXPECT_EQ(&Of("aten::mm"), &mm);
  EXPECT_NE(&Of("aten::bmm"), &mm);
  EXPECT_STREQ(mm.name, "aten::mm");
  EXPECT_EQ(mm.schema, &SchemaOf("aten::mm"));
  EXPECT_NE(&Of("aten::add", "Tensor"), &Of("aten::add", "Scalar"));
}

TEST_F(OpTableTest, PeekingKnowsAnOpOnlyOnceItWasFound) {
  const c10::FunctionSchema& mm = SchemaOf("aten::mm");
  EXPECT_EQ(table_->Peek(&mm), nullptr);
  const OpTraits* found = table_->Find(&mm);
  EXPECT_EQ(table_->Peek(&mm), found);
}

TEST_F(OpTableTest, ARangeIsNoOp) {
  const OpTraits& range = *table_->Range();
  EXPECT_EQ(range.schema, nullptr);
  EXPECT_TRUE(range.skip);
  EXPECT_TRUE(range.transparent);
  EXPECT_STREQ(range.name, "");
  EXPECT_EQ(table_->Peek(nullptr), nullptr);
}

TEST_F(OpTableTest, AnOpThatComputesIsLookedAt) {
  const OpTraits& mm = Of("aten::mm");
  EXPECT_FALSE(mm.skip);
  EXPECT_FALSE(mm.ends_quietly);
  EXPECT_FALSE(mm.is_view);
  EXPECT_FALSE(mm.transparent);
  EXPECT_FALSE(mm.in_place);
  EXPECT_FALSE(mm.writes_unseen);
  EXPECT_EQ(mm.updates | mm.overwrites | mm.rewrites, 0u);
  EXPECT_EQ(mm.arguments, 2);
  EXPECT_EQ(mm.returns, 1);
}

TEST_F(OpTableTest, ViewsAndAllocationsAndRandomNumbersAndIntegersEndQuietly) {
  for (const auto& [name, overload] :
       std::vector<std::pair<const char*, const char*>>{{"aten::view", ""},
                                                        {"aten::transpose", "int"},
                                                        {"aten::empty", "memory_format"},
                                                        {"aten::rand", ""},
                                                        {"aten::size", "int"},
                                                        {"nanwatch_op_table::integer", ""}}) {
    EXPECT_TRUE(Of(name, overload).skip) << name;
    EXPECT_TRUE(Of(name, overload).ends_quietly) << name;
  }
  EXPECT_TRUE(Of("aten::view").is_view);
  EXPECT_FALSE(Of("aten::rand").is_view);
}

TEST_F(OpTableTest, ANumberThatIsReadIsLookedAtThoughNoTensorComesBack) {
  const OpTraits& item = Of("aten::_local_scalar_dense");
  EXPECT_FALSE(item.skip);
  EXPECT_FALSE(item.ends_quietly);
}

// What torch.tensor(...) hands on has come from outside: it returns its argument, and is no view of
// values that somebody has looked at.
TEST_F(OpTableTest, WhatBringsValuesInIsLookedAtThoughItReturnsItsArgument) {
  const OpTraits& lift = Of("aten::lift_fresh");
  EXPECT_TRUE(lift.is_view);
  EXPECT_FALSE(lift.skip);
}

TEST_F(OpTableTest, ATensorInsideOfWhatIsReturnedIsLookedAt) {
  EXPECT_FALSE(Of("nanwatch_op_table::nested").skip);
  EXPECT_FALSE(Of("nanwatch_op_table::maybe").skip);
}

TEST_F(OpTableTest, WritesInPlaceAreToldFromWritesThatReadNothing) {
  const OpTraits& add = Of("aten::add_", "Tensor");
  EXPECT_EQ(add.updates, 1u);
  EXPECT_EQ(add.overwrites, 0u);
  EXPECT_TRUE(add.in_place);
  const OpTraits& copy = Of("aten::copy_");
  EXPECT_EQ(copy.updates, 0u);
  EXPECT_EQ(copy.overwrites, 1u);
  const OpTraits& out = Of("aten::add", "out");
  EXPECT_EQ(out.updates, 0u);
  EXPECT_EQ(out.overwrites, uint64_t{1} << 3) << "self, other, alpha, out";
  EXPECT_FALSE(add.is_view) << "what it returns is what it has written";
}

TEST_F(OpTableTest, ListOpsOfOptimizersWriteUnseen) {
  const OpTraits& add = Of("aten::_foreach_add_", "Scalar");
  EXPECT_TRUE(add.writes_unseen);
  EXPECT_TRUE(add.transparent);
  EXPECT_FALSE(add.ends_quietly) << "they are looked at where inputs are asked for";
  EXPECT_EQ(add.updates, 1u);
  EXPECT_FALSE(Of("aten::add_", "Tensor").writes_unseen);
}

TEST_F(OpTableTest, BatchNormWritesItsRunningStatisticsUndeclared) {
  const c10::FunctionSchema& schema = SchemaOf("aten::native_batch_norm");
  uint64_t running = 0;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    if (name == "running_mean" || name == "running_var") running |= uint64_t{1} << i;
  }
  ASSERT_NE(running, 0u);
  EXPECT_EQ(Of("aten::native_batch_norm").rewrites, running);
  EXPECT_EQ(Of("aten::native_layer_norm").rewrites, 0u);
}

TEST_F(OpTableTest, CompositesAndOpsOfOthersAreWhatTheyCall) {
  EXPECT_TRUE(Of("aten::einsum").transparent);
  EXPECT_TRUE(Of("nanwatch_op_table::plain").transparent);
  EXPECT_FALSE(Of("aten::native_layer_norm").transparent);
}

TEST_F(OpTableTest, ANumberThatTheResultDependsOnIsToldFromASetting) {
  EXPECT_TRUE(Of("aten::add", "Tensor").takes_number) << "alpha";
  EXPECT_TRUE(Of("aten::mul", "Scalar").takes_number);
  EXPECT_TRUE(Of("aten::clamp").takes_number) << "min and max may be left out";
  EXPECT_TRUE(Of("aten::_foreach_mul", "ScalarList").takes_number);
  EXPECT_FALSE(Of("aten::mm").takes_number);
  EXPECT_FALSE(Of("aten::native_layer_norm").takes_number) << "eps";
  EXPECT_FALSE(Of("aten::native_batch_norm").takes_number) << "momentum and eps";
  EXPECT_TRUE(Of("aten::div", "Tensor").takes_number_as_tensor);
  EXPECT_FALSE(Of("aten::pow", "Tensor_Tensor").takes_number_as_tensor);
}

TEST_F(OpTableTest, AScatterThatReducesComputesAndMovesNothing) {
  constexpr uint32_t kConstants = kMasks | kMoves;
  EXPECT_EQ(Of("aten::scatter", "value").families & kConstants, kConstants);
  EXPECT_EQ(Of("aten::scatter", "reduce").families & kConstants, 0u);
  EXPECT_EQ(Of("aten::scatter_", "value_reduce").families & kConstants, 0u);
  EXPECT_EQ(Of("aten::logspace").families & kConstants, 0u);
}

TEST_F(OpTableTest, ACopyKnowsWhichArgumentSaysThatNobodyWaits) {
  const OpTraits& copy = Of("aten::copy_");
  EXPECT_NE(copy.families & kMayNotWait, 0u);
  EXPECT_EQ(SchemaOf("aten::copy_").arguments()[copy.non_blocking].name(), "non_blocking");
  const OpTraits& to_copy = Of("aten::_to_copy");
  EXPECT_NE(to_copy.families & kMayNotWait, 0u);
  EXPECT_EQ(SchemaOf("aten::_to_copy").arguments()[to_copy.non_blocking].name(), "non_blocking");
  EXPECT_EQ(Of("aten::to", "dtype").families & kMayNotWait, 0u) << "it hands the argument on";
  EXPECT_EQ(Of("aten::mm").families & kMayNotWait, 0u);
}

TEST_F(OpTableTest, KnowsForEachDeviceWhatAutocastCasts) {
  EXPECT_EQ(Of("aten::mm").autocasts, kAutocastsOnCpu | kAutocastsOnCuda);
  EXPECT_EQ(Of("aten::log").autocasts, kAutocastsOnCuda);
  EXPECT_EQ(Of("aten::relu").autocasts, 0);
}

// As many as libtorch allows: a word has a bit for each.
TEST_F(OpTableTest, KnowsOfEachOfSixtyFourArgumentsThatItIsWritten) {
  const OpTraits& many = Of("nanwatch_op_table::many_writes");
  EXPECT_EQ(many.arguments, 64);
  EXPECT_EQ(many.updates, ~uint64_t{0});
  EXPECT_EQ(many.overwrites, 0u);
}

TEST_F(OpTableTest, ThreadsThatMeetNewOpsTogetherAreGivenTheSameTraits) {
  const std::vector<c10::OperatorName> names = c10::Dispatcher::singleton().getAllOpNames();
  std::vector<const c10::FunctionSchema*> schemas;
  for (const c10::OperatorName& name : names) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op.has_value()) schemas.push_back(&op->schema());
    if (schemas.size() == 3000) break;
  }
  ASSERT_GT(schemas.size(), 1000u);
  std::vector<const OpTraits*> found[2];
  std::atomic<int> ready{0};
  const auto find = [&](std::vector<const OpTraits*>* into) {
    ++ready;
    while (ready < 2) std::this_thread::yield();
    for (const c10::FunctionSchema* schema : schemas) into->push_back(table_->Find(schema));
  };
  std::thread other(find, &found[1]);
  find(&found[0]);
  other.join();
  EXPECT_EQ(found[0], found[1]);
  for (size_t i = 0; i < schemas.size(); ++i) ASSERT_EQ(found[0][i]->schema, schemas[i]);
}

TEST_F(OpTableTest, WithoutRoomNewOpsPassForRangesAndKnownOnesStayKnown) {
  const c10::FunctionSchema& mm = SchemaOf("aten::mm");
  const OpTraits* known = table_->Find(&mm);
  constexpr size_t kMore = 13'000;
  std::vector<c10::FunctionSchema> schemas(
      kMore, c10::FunctionSchema("aten::mm", "", mm.arguments(), mm.returns()));
  size_t named = 0;
  for (const c10::FunctionSchema& schema : schemas) {
    named += table_->Find(&schema) != table_->Range();
  }
  EXPECT_LT(named, kMore);
  EXPECT_GT(named, 12'000u);
  EXPECT_EQ(table_->Find(&schemas[kMore - 1]), table_->Range());
  EXPECT_EQ(table_->Find(&mm), known);
  EXPECT_EQ(table_->Find(&schemas[0])->schema, &schemas[0]);
}

}  // namespace
}  // namespace nanwatch
