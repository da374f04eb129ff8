// SPDX-License-Identifier: Apache-2.0
// What an optimizer writes is described once: what a plan notices of a change.
#include "shim/observe/step/update_plans.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/shim/observe/observed_training.h"

namespace nanwatch::canary {
namespace {

const PyObj object{};
const PyObj other_object{};

WrittenTensor Written(const at::Tensor& tensor, bool is_state = false, bool is_count = false) {
  return {&object, tensor, tensor.unsafeGetTensorImpl(), is_state, is_count};
}

bool StillMatches(const TensorIdentity& identity, const at::Tensor& tensor) {
  return identity.Matches(&object, *tensor.unsafeGetTensorImpl());
}

class TensorIdentityTest : public testing::Test {
 protected:
  at::Tensor tensor_ = at::zeros({4, 6});
  TensorIdentity identity_ = TensorIdentity::Of(Written(tensor_));
};

TEST_F(TensorIdentityTest, MatchesATensorInWhichNothingButValuesHasChanged) {
  tensor_.fill_(3);
  EXPECT_TRUE(StillMatches(identity_, tensor_));
}

TEST_F(TensorIdentityTest, IsOfOneObjectAndOneTensor) {
  EXPECT_FALSE(identity_.Matches(&other_object, *tensor_.unsafeGetTensorImpl()));
  EXPECT_FALSE(StillMatches(identity_, at::zeros({4, 6})));
}

TEST_F(TensorIdentityTest, ChangesWithTheTensorsStorage) {
  tensor_.set_data(at::zeros({4, 6}));
  EXPECT_FALSE(StillMatches(identity_, tensor_));
}

TEST_F(TensorIdentityTest, ChangesWhereTheStorageIsResized) {
  tensor_.storage().unsafeGetStorageImpl()->set_nbytes(0);
  EXPECT_FALSE(StillMatches(identity_, tensor_));
}

TEST_F(TensorIdentityTest, ChangesWhereTheStorageHasOtherMemory) {
  const at::Tensor other = at::zeros({4, 6});
  c10::DataPtr before = tensor_.storage().set_data_ptr(
      c10::DataPtr(other.data_ptr(), c10::Device(c10::DeviceType::CPU)));
  EXPECT_FALSE(StillMatches(identity_, tensor_));
  tensor_.storage().set_data_ptr(std::move(before));
  EXPECT_TRUE(StillMatches(identity_, tensor_));
}

TEST_F(TensorIdentityTest, ChangesWhereTheTensorIsAnotherPartOfItsStorage) {
  tensor_.unsafeGetTensorImpl()->set_storage_offset(6);
  EXPECT_FALSE(StillMatches(identity_, tensor_));
}

TEST_F(TensorIdentityTest, ChangesWhereTheTensorIsCutShort) {
  tensor_.unsafeGetTensorImpl()->set_sizes_contiguous({4, 5});
  EXPECT_FALSE(StillMatches(identity_, tensor_));
}

TEST_F(TensorIdentityTest, ChangesWhereTheTensorIsNoRunOfMemoryAnyMore) {
  tensor_.unsafeGetTensorImpl()->set_sizes_and_strides(c10::IntArrayRef({4, 6}),
                                                       c10::IntArrayRef({12, 2}));
  EXPECT_FALSE(StillMatches(identity_, tensor_));
}

TEST_F(TensorIdentityTest, ChangesWhereTheSameMemoryHasAnotherShape) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{6, 4}, {24}, {4, 6, 1}}) {
    tensor_.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    EXPECT_FALSE(StillMatches(identity_, tensor_));
  }
  const at::Tensor square = at::zeros({5, 5});
  const TensorIdentity identity = TensorIdentity::Of(Written(square));
  square.unsafeGetTensorImpl()->set_sizes_and_strides(c10::IntArrayRef({5, 5}),
                                                      c10::IntArrayRef({1, 5}));
  EXPECT_FALSE(StillMatches(identity, square));
}

TEST_F(TensorIdentityTest, ChangesWithTheType) {
  tensor_.storage().unsafeGetStorageImpl()->set_nbytes(identity_.bytes);
  tensor_.unsafeGetTensorImpl()->set_storage_and_dtype(tensor_.storage(),
                                                       caffe2::TypeMeta::Make<int32_t>());
  EXPECT_FALSE(StillMatches(identity_, tensor_));
}

TEST(TensorIdentity, OfANumberOnTheCpuIsReadAsItIsNow) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor numbers = at::ones({3}, type);
    const at::Tensor number = numbers[2];
    const TensorIdentity identity = TensorIdentity::Of(Written(number));
    EXPECT_TRUE(identity.is_number);
    EXPECT_TRUE(identity.IsFinite());
    number.fill_(std::numeric_limits<double>::infinity());
    EXPECT_FALSE(identity.IsFinite());
  }
  EXPECT_FALSE(TensorIdentity::Of(Written(at::ones({2}))).is_number);
  EXPECT_FALSE(TensorIdentity::Of(Written(at::ones({}, at::kHalf))).is_number);
}

TEST(TensorIdentity, OfACountOnTheCpuChangesWithItsMemory) {
  const at::Tensor count = at::ones({});
  const TensorIdentity identity = TensorIdentity::Of(Written(count, true, /*is_count=*/true));
  EXPECT_TRUE(identity.is_number);
  EXPECT_TRUE(StillMatches(identity, count));
  count.set_data(at::ones({}));
  EXPECT_FALSE(StillMatches(identity, count)) << "what it pointed to is gone";
}

class UpdatePlanTest : public testing::Test {
 protected:
  // As if it lay on a GPU.
  void Add(const at::Tensor& tensor, bool is_count = false) {
    PlainTensor plain = ObservedTraining::Plain(tensor);
    plain.gpu = 0;
    if (!is_count) lists_[0]->Add(plain, wire::Target::kParameter, nullptr);
    builder_.Add(Written(tensor, /*is_state=*/is_count, is_count), plain, &named_);
  }
  void AddOnCpu(const at::Tensor& tensor) {
    builder_.Add(Written(tensor, /*is_state=*/true), ObservedTraining::Plain(tensor), nullptr);
  }
  std::shared_ptr<const UpdatePlan> Build() { return builder_.Build(this, 7, lists_); }

  at::Tensor weight_ = at::zeros({4, 6});
  at::Tensor bias_ = at::zeros({4});
  NamedTensor named_;
  std::vector<TensorListPtr> lists_ = {c10::make_intrusive<TensorList>(int8_t{0}, 4)};
  PlanBuilder builder_{/*builds=*/true, 2};
};

TEST_F(UpdatePlanTest, HoldsWhatIsCheckedAndKnowsItsParametersByTheirPlaces) {
  Add(weight_);
  Add(bias_);
  const auto plan = Build();
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(plan->written.size(), 2u);
  ASSERT_EQ(plan->lists.size(), 1u);
  EXPECT_EQ(plan->lists[0]->bytes(), 28u * sizeof(float));
  const NamedTensor* named = nullptr;
  EXPECT_TRUE(plan->NameOf(1, bias_.unsafeGetTensorImpl(), &named));
  EXPECT_EQ(named, &named_);
  EXPECT_FALSE(plan->NameOf(0, bias_.unsafeGetTensorImpl(), &named)) << "another parameter's place";
  EXPECT_FALSE(plan->NameOf(2, bias_.unsafeGetTensorImpl(), &named));
  bias_.set_data(at::zeros({4}));
  EXPECT_FALSE(plan->NameOf(1, bias_.unsafeGetTensorImpl(), &named)) << "its memory is another";
}

TEST_F(UpdatePlanTest, KeepsNoMemory) {
  Add(weight_);
  const auto plan = Build();
  const c10::weak_intrusive_ptr<c10::StorageImpl> storage = weight_.storage().getWeakStorageImpl();
  weight_ = at::Tensor();
  EXPECT_TRUE(storage.expired());
}

TEST_F(UpdatePlanTest, VerifiesCountsAndChecksNone) {
  Add(weight_);
  Add(at::zeros({}), /*is_count=*/true);
  const auto plan = Build();
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->written.size(), 2u);
  EXPECT_EQ(plan->lists[0]->size(), 1u);
}

TEST_F(UpdatePlanTest, CountsNumbersOnTheCpu) {
  Add(weight_);
  AddOnCpu(at::zeros({}));
  AddOnCpu(at::zeros({}, at::kDouble));
  const auto plan = Build();
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->numbers, 2u);
  EXPECT_EQ(plan->number_bytes, 12u);
}

TEST_F(UpdatePlanTest, IsNoneWhereMoreThanNumbersLiesOnTheCpu) {
  Add(weight_);
  AddOnCpu(at::zeros({2}));
  EXPECT_EQ(Build(), nullptr);
}

TEST_F(UpdatePlanTest, IsNoneWhereATensorIsCheckedInNoList) {
  Add(weight_);
  PlainTensor plain = ObservedTraining::Plain(bias_);
  plain.gpu = 0;
  builder_.Add(Written(bias_), plain, nullptr);
  EXPECT_EQ(Build(), nullptr);
}

TEST_F(UpdatePlanTest, IsNoneWhereSomethingWasGivenUpOrNothingIsChecked) {
  EXPECT_EQ(Build(), nullptr);
  Add(weight_);
  builder_.GiveUp();
  EXPECT_EQ(Build(), nullptr);
}

TEST_F(UpdatePlanTest, IsNoneOfASparseTensorsValues) {
  Add(weight_);
  PlainTensor plain = ObservedTraining::Plain(bias_);
  plain.gpu = 0;
  lists_[0]->Add(plain, wire::Target::kParameter, nullptr);
  builder_.Add(Written(weight_), plain, nullptr);
  EXPECT_EQ(Build(), nullptr);
}

std::shared_ptr<const UpdatePlan> PlanOf(const void* optimizer, uint64_t names) {
  UpdatePlan plan;
  plan.optimizer = optimizer;
  plan.names = names;
  return std::make_shared<const UpdatePlan>(plan);
}

TEST(UpdatePlans, AreFoundByTheirOptimizerWhileNamesAreTheSame) {
  UpdatePlans plans;
  const int optimizers[2] = {};
  const auto plan = PlanOf(&optimizers[0], 3);
  plans.Keep(plan);
  EXPECT_EQ(plans.Find(&optimizers[0], 3), plan);
  EXPECT_EQ(plans.Find(&optimizers[1], 3), nullptr);
  EXPECT_EQ(plans.Find(&optimizers[0], 4), nullptr);
}

TEST(UpdatePlans, KeepOneOfAnOptimizer) {
  UpdatePlans plans;
  const int optimizers[2] = {};
  for (const int& optimizer : optimizers) plans.Keep(PlanOf(&optimizer, 1));
  plans.Keep(PlanOf(&optimizers[0], 2));
  EXPECT_EQ(plans.Find(&optimizers[0], 1), nullptr);
  EXPECT_NE(plans.Find(&optimizers[0], 2), nullptr);
  EXPECT_NE(plans.Find(&optimizers[1], 1), nullptr);
}

TEST(UpdatePlans, PauseWhereNoneOfAnOptimizersEverMatches) {
  UpdatePlans plans;
  const int optimizer = 0;
  for (uint64_t names = 1; names <= 3; ++names) {
    EXPECT_TRUE(plans.MayBuild(&optimizer));
    plans.Keep(PlanOf(&optimizer, names));
  }
  EXPECT_EQ(plans.Find(&optimizer, 3), nullptr) << "it would be verified for nothing";
  int pause = 0;
  while (!plans.MayBuild(&optimizer)) ++pause;
  EXPECT_EQ(pause, 64);
  EXPECT_TRUE(plans.MayBuild(&optimizer));
}

TEST(UpdatePlans, GoOnWhereOneMatchesNowAndThen) {
  UpdatePlans plans;
  const int optimizer = 0;
  for (uint64_t names = 1; names <= 9; ++names) {
    EXPECT_TRUE(plans.MayBuild(&optimizer));
    plans.Keep(PlanOf(&optimizer, names));
    if (names % 2 == 0) plans.OnMatch(&optimizer);
  }
  EXPECT_NE(plans.Find(&optimizer, 9), nullptr);
}

TEST(PlanBuilder, BuildsNothingWhereThatIsNotWanted) {
  const at::Tensor weight = at::zeros({2});
  PlainTensor plain = ObservedTraining::Plain(weight);
  plain.gpu = 0;
  const std::vector<TensorListPtr> lists = {c10::make_intrusive<TensorList>(int8_t{0}, 1)};
  lists[0]->Add(plain, wire::Target::kParameter, nullptr);
  for (const bool builds : {true, false}) {
    PlanBuilder builder(builds, 1);
    builder.Add(Written(weight), plain, nullptr);
    EXPECT_EQ(builder.Build(&builds, 1, lists) != nullptr, builds);
  }
}

}  // namespace
}  // namespace nanwatch::canary
