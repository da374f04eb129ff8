// SPDX-License-Identifier: Apache-2.0
// What a finding may not claim in a forked child that cannot ask what its ops are given.
#include "shim/observe/unseen/out_of_sight.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <memory>

#include "shim/observe/torch/input_tracking.h"
#include "tests/shim/observe/observed_training.h"

namespace {
bool no_threads = false;
}

// The child asks for libtorch's lock by a thread of its own. Without one it is never had.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): glibc's are reserved names
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  if (no_threads) return EAGAIN;
  static const auto next =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, argument);
}

namespace nanwatch {
namespace {

using wire::ValueRecord;

std::unique_ptr<at::ObserverContext> SeeNothing(const at::RecordFunction&) { return nullptr; }
void EndNothing(const at::RecordFunction&, at::ObserverContext*) {}

class OutOfSightTest : public testing::Test {
 protected:
  OutOfSightTest() {
    parents_.Register(/*check_ops=*/true);
    on_.tracking.Inherit(parents_);
    no_threads = true;
  }
  ~OutOfSightTest() override {
    no_threads = false;
    parents_.Unregister();
  }

  // Of -Inf that the op made, which is certain of itself.
  uint32_t FlagsOf(bool inputs_seen) {
    const BadOutput output{ObservedTraining::Plain(result_), 0, false};
    const Sources sources{};
    Frame& frame = on_.thread.frames[0];
    frame = Frame{};
    frame.op = &on_.Op("aten::log", "");
    frame.kind = FrameKind::kOp;
    frame.inputs_seen = inputs_seen;
    return on_.out_of_sight.FlagsOf(frame, {.thread = &on_.thread,
                                            .finding_class = wire::FindingClass::kScalar,
                                            .output_kinds = wire::kHasNegInf,
                                            .phase = wire::Phase::kForward,
                                            .outputs = &output,
                                            .count = 1,
                                            .sources = &sources,
                                            .is_new = true});
  }

  ObservedTraining on_;
  InputTracking parents_{{&SeeNothing, &EndNothing, &SeeNothing, &EndNothing, &SeeNothing}};
  at::Tensor result_ = at::zeros({4});
};

TEST_F(OutOfSightTest, DoubtsWhatOpsWereGivenWhereAChildCannotAsk) {
  EXPECT_EQ(FlagsOf(/*inputs_seen=*/false), 0u);
  on_.tracking.Arm();
  EXPECT_FALSE(on_.tracking.armed());
  EXPECT_TRUE(on_.tracking.refused());
  EXPECT_EQ(FlagsOf(/*inputs_seen=*/false), uint32_t{ValueRecord::kUnseenInputs});
  EXPECT_EQ(FlagsOf(/*inputs_seen=*/true), 0u);
  on_.tracking.Disarm();  // nothing bad is left
  EXPECT_EQ(FlagsOf(/*inputs_seen=*/false), 0u);
}

TEST_F(OutOfSightTest, CountsNoStepInWhichAChildCouldNotAsk) {
  int optimizer = 0;
  on_.tracking.Arm();
  on_.steps.OnStepBegin(&on_.thread, "Optimizer.step#Adam.step", nullptr, &optimizer);
  on_.steps.OnStepEnd(&on_.thread);
  uint64_t watched[wire::kWatchedLevels] = {};
  on_.progress.StepsWatched(watched);
  EXPECT_EQ(watched[static_cast<int>(wire::Level::kIdle)], 1u);
  EXPECT_EQ(watched[static_cast<int>(wire::Level::kFull)], 0u);
}

}  // namespace
}  // namespace nanwatch
