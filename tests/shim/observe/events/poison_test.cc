// SPDX-License-Identifier: Apache-2.0
// Parameters that are bad, by their memory: no module holds them here.
#include "shim/observe/events/poison.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace nanwatch {
namespace {

using PoisonChange = Poison::Change;

class PoisonTest : public testing::Test {
 protected:
  // As the observer marks it. `gpu`: it says of the CPU's memory that it is a GPU's.
  void Mark(const at::Tensor& tensor, int8_t gpu = -1) {
    PlainTensor plain{};
    wire::Unchecked reason{};
    ASSERT_EQ(DescribeTensor(tensor, &plain, &reason), Readable::kYes);
    plain.gpu = gpu;
    poison_.Mark(nullptr, plain);
  }
  PoisonChange Settle() { return poison_.Settle(names_); }
  void EnterWith(const at::Tensor& tensor, int8_t gpu = -1) {
    Mark(tensor, gpu);
    ASSERT_EQ(Settle(), PoisonChange::kEntered);
  }
  static at::Tensor BadAt(int64_t size, int64_t index) {
    at::Tensor tensor = at::zeros({size});
    tensor[index] = std::nanf("");
    return tensor;
  }
  static size_t WeakHoldsOn(const at::Tensor& tensor) {
    const c10::weak_intrusive_ptr<c10::StorageImpl> one_more =
        tensor.storage().getWeakStorageImpl();
    return one_more.weak_use_count() - 1;
  }
  std::vector<const void*> NamelessOnGpu() {
    std::vector<const void*> found;
    poison_.ForEachNamelessOnGpu([&](const PlainTensor& tensor) {
      found.push_back(tensor.view.data);
      EXPECT_EQ(tensor.view.ndim, 1);
      EXPECT_EQ(tensor.view.sizes[0], tensor.view.numel);
    });
    return found;
  }

  EventClock clock_;
  PythonNames names_;
  Poison poison_{&clock_};
};

TEST_F(PoisonTest, NothingIsPoisonedAtFirst) {
  EXPECT_FALSE(poison_.Poisoned());
  EXPECT_EQ(Settle(), PoisonChange::kNone);
}

TEST_F(PoisonTest, BeginsWhereTheProgramBeginsSomethingNew) {
  const at::Tensor parameter = BadAt(4, 2);
  Mark(parameter);
  EXPECT_FALSE(poison_.Poisoned()) << "in the middle of an update";
  EXPECT_EQ(Settle(), PoisonChange::kEntered);
  EXPECT_TRUE(poison_.Poisoned());
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  EXPECT_TRUE(poison_.Poisoned());
}

TEST_F(PoisonTest, EndsOnceTheParameterIsGoodAgain) {
  at::Tensor parameter = BadAt(4, 2);
  EnterWith(parameter);
  parameter.zero_();
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
  EXPECT_FALSE(poison_.Poisoned());
  EXPECT_EQ(Settle(), PoisonChange::kNone);
}

TEST_F(PoisonTest, DoesNotEndWhileAnyElementIsBad) {
  // Longer than what is read at once, with a rest.
  at::Tensor parameter = BadAt(3 * 4096 + 17, 10);
  for (const int64_t bad : {4095, 4096, 8191, 3 * 4096, 3 * 4096 + 16}) {
    parameter[bad] = std::numeric_limits<float>::infinity();
  }
  EnterWith(parameter);
  for (const int64_t bad : {10, 4095, 4096, 8191, 3 * 4096}) {
    parameter[bad] = 0;
    ASSERT_EQ(Settle(), PoisonChange::kNone) << bad;
  }
  parameter[3 * 4096 + 16] = 0;
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

TEST_F(PoisonTest, DoesNotEndWhenAnEarlierElementTurnsBadInTheMeantime) {
  at::Tensor parameter = BadAt(10'000, 9'999);
  EnterWith(parameter);
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  parameter[3] = std::nanf("");
  parameter[9'999] = 0;
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  parameter[3] = 0;
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

TEST_F(PoisonTest, LooksAtThePartOfTheStorageThatIsTheParameter) {
  at::Tensor whole = BadAt(12, 11);
  whole[5] = std::nanf("");
  EnterWith(whole.slice(0, 4, 8));
  whole[5] = 0;
  EXPECT_EQ(Settle(), PoisonChange::kLeft) << "element 11 belongs to somebody else";
}

TEST_F(PoisonTest, EndsWhenTheParameterIsGone) {
  at::Tensor parameter = BadAt(4, 2);
  EnterWith(parameter);
  parameter.reset();
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

TEST_F(PoisonTest, EndsWhenTheParametersMemoryIsGivenBackUnderIt) {
  const at::Tensor parameter = BadAt(4, 2);
  EnterWith(parameter);
  parameter.storage().unsafeGetStorageImpl()->set_nbytes(8);
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

TEST_F(PoisonTest, LastsUntilAllOfSeveralAreGood) {
  at::Tensor first = BadAt(4, 0);
  at::Tensor second = BadAt(4, 1);
  Mark(first);
  EnterWith(second);
  first.zero_();
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  second.zero_();
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

TEST_F(PoisonTest, OneThatIsMarkedWithEveryStepLeavesRoomForOthers) {
  at::Tensor first = BadAt(4, 0);
  for (int i = 0; i < 100; ++i) Mark(first);
  at::Tensor second = BadAt(4, 1);
  EnterWith(second);
  first.zero_();
  EXPECT_EQ(Settle(), PoisonChange::kNone) << "the second one is still bad";
}

TEST_F(PoisonTest, TwoPartsOfOneStorageAreTwoParameters) {
  at::Tensor flat = at::zeros({8});
  flat[1] = flat[6] = std::nanf("");
  Mark(flat.slice(0, 0, 4));
  EnterWith(flat.slice(0, 4, 8));
  flat[1] = 0;
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  flat[6] = 0;
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

TEST_F(PoisonTest, OfManyTheFirstFewSpeakForAll) {
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < 20; ++i) {
    parameters.push_back(BadAt(4, 0));
    Mark(parameters.back());
  }
  EXPECT_EQ(Settle(), PoisonChange::kEntered);
  for (int i = 0; i < 7; ++i) parameters[static_cast<size_t>(i)].zero_();
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  for (at::Tensor& parameter : parameters) parameter.zero_();
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

TEST_F(PoisonTest, CanBeLeftThoughParametersAreBadAndBeginsAgainWithTheNextUpdate) {
  const at::Tensor parameter = BadAt(4, 0);
  EnterWith(parameter);
  poison_.Leave();
  EXPECT_FALSE(poison_.Poisoned());
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  Mark(parameter);
  EXPECT_EQ(Settle(), PoisonChange::kEntered);
}

TEST_F(PoisonTest, WhatWasMarkedBeforeItWasLeftDoesNotBeginIt) {
  const at::Tensor parameter = BadAt(4, 0);
  Mark(parameter);
  poison_.Leave();
  EXPECT_EQ(Settle(), PoisonChange::kNone);
}

TEST_F(PoisonTest, BeginsAgainWhenAParameterTurnsBadOnceMore) {
  at::Tensor parameter = BadAt(4, 0);
  EnterWith(parameter);
  parameter.zero_();
  ASSERT_EQ(Settle(), PoisonChange::kLeft);
  parameter[1] = std::nanf("");
  EnterWith(parameter);
  EXPECT_EQ(Settle(), PoisonChange::kNone);
}

TEST_F(PoisonTest, LetsGoOfTheMemoryItHasHeld) {
  at::Tensor parameter = BadAt(4, 0);
  const size_t before = WeakHoldsOn(parameter);
  EnterWith(parameter);
  EXPECT_EQ(WeakHoldsOn(parameter), before + 1);
  poison_.Leave();
  EXPECT_EQ(WeakHoldsOn(parameter), before);
  EnterWith(parameter);
  parameter.zero_();
  ASSERT_EQ(Settle(), PoisonChange::kLeft);
  EXPECT_EQ(WeakHoldsOn(parameter), before);
}

TEST_F(PoisonTest, AGpusParameterIsBadUntilAWriteThatCoversItIsKnownToBeGood) {
  const at::Tensor whole = at::zeros({12});
  const void* storage = whole.storage().unsafeGetStorageImpl();
  EnterWith(whole.slice(0, 4, 8), 0);  // bytes 16 to 32
  EXPECT_EQ(Settle(), PoisonChange::kNone) << "its memory is not to be read";
  poison_.RecordCleanWrite(storage, 16, 31);
  poison_.RecordCleanWrite(storage, 17, 48);
  poison_.RecordCleanWrite(&clock_, 16, 32);
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  poison_.RecordCleanWrite(storage, 16, 32);
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

TEST_F(PoisonTest, AGpusParameterThatIsMarkedAgainAfterAGoodWriteIsBadAgain) {
  const at::Tensor parameter = at::zeros({4});
  const void* storage = parameter.storage().unsafeGetStorageImpl();
  EnterWith(parameter, 0);
  poison_.RecordCleanWrite(storage, 0, 16);
  ASSERT_EQ(Settle(), PoisonChange::kLeft);
  EnterWith(parameter, 0);
  EXPECT_EQ(Settle(), PoisonChange::kNone);
}

TEST_F(PoisonTest, AGoodWriteOfAGpuSaysNothingOfParametersOnTheCpu) {
  const at::Tensor parameter = BadAt(4, 0);
  EnterWith(parameter);
  poison_.RecordCleanWrite(parameter.storage().unsafeGetStorageImpl(), 0, 16);
  poison_.RecordCleanGpus();
  EXPECT_EQ(Settle(), PoisonChange::kNone);
}

TEST_F(PoisonTest, EndsWhenAllOnGpusAreFoundGood) {
  const at::Tensor first = at::zeros({4});
  const at::Tensor second = at::zeros({4});
  Mark(first, 0);
  EnterWith(second, 1);
  poison_.RecordCleanGpus();
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

// What read it while it lived may not be told yet.
TEST_F(PoisonTest, AGpusParameterThatIsGoneHoldsUntilEverythingIsToldThatWasNotedBefore) {
  at::Tensor parameter = at::zeros({4});
  EnterWith(parameter, 0);
  clock_.noted = 8;
  clock_.told = 2;
  parameter.reset();
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  clock_.noted = 12;
  clock_.told = 7;
  EXPECT_EQ(Settle(), PoisonChange::kNone);
  clock_.told = 8;
  EXPECT_EQ(Settle(), PoisonChange::kLeft);
}

TEST_F(PoisonTest, NamelessParametersOnGpusAreHandedOutWhileTheyLive) {
  const at::Tensor on_cpu = BadAt(4, 0);
  const at::Tensor alive = at::zeros({3, 5});
  at::Tensor dead = at::zeros({4});
  Mark(on_cpu);
  Mark(dead, 0);
  Mark(alive, 0);
  EXPECT_EQ(NamelessOnGpu(), (std::vector<const void*>{dead.data_ptr(), alive.data_ptr()}));
  dead.reset();
  EXPECT_EQ(NamelessOnGpu(), std::vector<const void*>{alive.data_ptr()});
  alive.storage().unsafeGetStorageImpl()->set_nbytes(4);
  EXPECT_TRUE(NamelessOnGpu().empty()) << "its memory was given back";
}

}  // namespace
}  // namespace nanwatch
