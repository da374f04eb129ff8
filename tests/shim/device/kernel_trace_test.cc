// SPDX-License-Identifier: Apache-2.0
// KernelTrace over the fake CUPTI.
#include "shim/device/kernel_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/cupti/fake_cupti.h"

namespace nanwatch::device {
namespace {

// Kernels of an op by name: how many, and their time.
using Ran = std::map<std::string, std::pair<uint32_t, uint64_t>>;

class KernelTraceTest : public ::testing::Test {
 protected:
  KernelTraceTest() { fake_cupti_reset(); }
  void TearDown() override {
    EXPECT_EQ(fake_cupti_misdeed(), nullptr);
    EXPECT_EQ(fake_cupti_astray(), 0u);
  }

  void Make() {
    const auto cupti = CuptiOfProcess();
    ASSERT_TRUE(cupti.has_value());
    trace_ = KernelTrace::Create(*cupti);
    ASSERT_NE(trace_, nullptr);
    static auto* const never_destroyed = new std::vector<KernelTrace*>;
    never_destroyed->push_back(trace_);
  }
  void MakeTracing() {
    Make();
    const char* const refused = trace_->Start();
    ASSERT_EQ(refused, nullptr) << refused;
  }

  // Launched by op `op`, not run yet.
  uint64_t Launch(uint64_t op, const char* name) {
    trace_->Push(op);
    const uint64_t launched = fake_cupti_launched(name, 0, 0);
    trace_->Pop();
    return launched;
  }
  void Run(uint64_t op, const char* name, uint64_t nanoseconds) {
    fake_cupti_ran(Launch(op, name), nanoseconds);
  }
  Ran KernelsOf(uint64_t op) {
    OpKernel kernels[8];
    const size_t count = trace_->Gather(op, kernels);
    Ran ran;
    for (size_t i = 0; i < count; ++i) {
      ran[kernels[i].name] = {kernels[i].count, kernels[i].nanoseconds};
    }
    return ran;
  }

  KernelTrace* trace_ = nullptr;
};

TEST_F(KernelTraceTest, CallsNothingBeforeItIsStarted) {
  Make();
  EXPECT_EQ(fake_cupti_all_calls(), 0u);
}

TEST_F(KernelTraceTest, TellsTheKernelsOfAnOpWithTheirNumberAndTime) {
  MakeTracing();
  Run(7, "sqrt_kernel", 300);
  Run(7, "sqrt_kernel", 200);
  Run(7, "copy_kernel", 40);
  Run(8, "add_kernel", 9);
  trace_->Flush(/*all=*/false);
  EXPECT_EQ(KernelsOf(7), (Ran{{"sqrt_kernel", {2, 500}}, {"copy_kernel", {1, 40}}}));
  EXPECT_EQ(KernelsOf(8), (Ran{{"add_kernel", {1, 9}}}));
  EXPECT_EQ(KernelsOf(9), Ran{});
  EXPECT_EQ(trace_->lost(), 0u);
}

TEST_F(KernelTraceTest, JoinsKernelsWhicheverCallLaunchesThem) {
  MakeTracing();
  uint64_t op = 0;
  for (const uint32_t id : {211, 214, 269, 270, 430, 431, 505, 506}) {
    fake_cupti_set_launch_id(id);
    Run(++op, "kernel", 5);
    trace_->Flush(false);
    EXPECT_EQ(KernelsOf(op), (Ran{{"kernel", {1, 5}}})) << id;
  }
}

TEST_F(KernelTraceTest, AsksAnOlderCuptiForTheCallsThatItKnows) {
  fake_cupti_set_version(28);  // CUDA 12.9, which refuses 505
  MakeTracing();
  EXPECT_EQ(fake_cupti_calls("cuptiActivityEnable"), 2u);  // not all calls
  Run(1, "kernel", 5);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), (Ran{{"kernel", {1, 5}}}));
}

TEST_F(KernelTraceTest, TellsTheLongestFirst) {
  MakeTracing();
  Run(1, "short", 1);
  Run(1, "long", 100);
  Run(1, "middle", 10);
  trace_->Flush(false);
  OpKernel kernels[8];
  ASSERT_EQ(trace_->Gather(1, kernels), 3u);
  EXPECT_STREQ(kernels[0].name, "long");
  EXPECT_STREQ(kernels[1].name, "middle");
  EXPECT_STREQ(kernels[2].name, "short");
}

TEST_F(KernelTraceTest, GivesTheKernelsOfAnInnerOpToThatAlone) {
  MakeTracing();
  trace_->Push(1);
  fake_cupti_ran(fake_cupti_launched("outer", 0, 0), 5);
  trace_->Push(2);
  fake_cupti_ran(fake_cupti_launched("inner", 0, 0), 6);
  trace_->Pop();
  fake_cupti_ran(fake_cupti_launched("outer", 0, 0), 7);
  trace_->Pop();
  EXPECT_EQ(fake_cupti_depth(), 0u);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), (Ran{{"outer", {2, 12}}}));
  EXPECT_EQ(KernelsOf(2), (Ran{{"inner", {1, 6}}}));
}

TEST_F(KernelTraceTest, LeavesOutOurOwnKernelsAndThoseOfGraphsAndOfNobody) {
  MakeTracing();
  Run(1, "nanwatch_check_few", 5);
  trace_->Push(1);
  fake_cupti_ran(fake_cupti_launched("node", 3, 0), 6);
  trace_->Pop();
  fake_cupti_ran(fake_cupti_launched("nobody", 0, 0), 7);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), Ran{});
}

TEST_F(KernelTraceTest, WaitsForRecordsThatAreNotComplete) {
  MakeTracing();
  const uint64_t slow = Launch(1, "slow");
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), Ran{});
  fake_cupti_ran(slow, 1000);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), (Ran{{"slow", {1, 1000}}}));
}

TEST_F(KernelTraceTest, JoinsRecordsThatComeOutOfOrderAndLate) {
  MakeTracing();
  fake_cupti_set_late(1);
  constexpr int kOps = 3000;  // of some 300 bytes of records each: several buffers
  for (uint64_t op = 1; op <= kOps; ++op) Run(op, op % 2 != 0 ? "odd" : "even", op);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), Ran{});
  fake_cupti_set_late(0);
  fake_cupti_set_backwards(1);
  trace_->Flush(false);
  for (uint64_t op : {1, 2, 1500, kOps - 1, kOps}) {
    EXPECT_EQ(KernelsOf(op), (Ran{{op % 2 != 0 ? "odd" : "even", {1, op}}})) << op;
  }
  EXPECT_EQ(trace_->lost(), 0u);
}

TEST_F(KernelTraceTest, KeepsTheKernelsOfRecentOpsHoweverManyThereWere) {
  MakeTracing();
  const uint64_t ops = kKernelsKept + 5000;
  for (uint64_t op = 1; op <= ops; ++op) Run(op, "kernel", op);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), Ran{});
  const uint64_t oldest_kept = ops - kKernelsKept + 1;
  EXPECT_EQ(KernelsOf(oldest_kept), (Ran{{"kernel", {1, oldest_kept}}}));
  EXPECT_EQ(KernelsOf(ops), (Ran{{"kernel", {1, ops}}}));
  EXPECT_EQ(trace_->lost(), 0u);  // buffers came back and were given again
}

TEST_F(KernelTraceTest, CountsWhatCuptiDrops) {
  MakeTracing();
  fake_cupti_drop(3);  // id, call and kernel of the first
  Run(1, "dropped", 5);
  Run(2, "kept", 5);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), Ran{});
  EXPECT_EQ(KernelsOf(2), (Ran{{"kept", {1, 5}}}));
  EXPECT_EQ(trace_->lost(), 3u);
}

TEST_F(KernelTraceTest, GivesNoMoreBuffersThanItHas) {
  MakeTracing();
  fake_cupti_set_late(1);
  for (uint64_t op = 1; op <= 60'000; ++op) Run(op, "kernel", 1);
  EXPECT_EQ(fake_cupti_buffers_held(), 32u);
  fake_cupti_set_late(0);
  trace_->Flush(false);
  EXPECT_GT(trace_->lost(), 0u);
  Run(70'000, "later", 2);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(70'000), (Ran{{"later", {1, 2}}}));
}

TEST_F(KernelTraceTest, CutsLongNamesAndLeavesOutThoseBeyondItsTable) {
  MakeTracing();
  const std::string name(2000, 'k');
  Run(1, name.c_str(), 1);
  for (size_t i = 1; i < kKernelNamesKept; ++i) Run(2, ("kernel" + std::to_string(i)).c_str(), 1);
  Run(3, "one too many", 1);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), (Ran{{std::string(kKernelNameBytes - 1, 'k'), {1, 1}}}));
  EXPECT_EQ(KernelsOf(3), Ran{});
  EXPECT_EQ(trace_->lost(), 1u);
}

TEST_F(KernelTraceTest, SubscribesOnlyToSeeWhetherAnotherDoes) {
  MakeTracing();
  EXPECT_EQ(fake_cupti_calls("cuptiSubscribe"), 1u);
  EXPECT_EQ(fake_cupti_calls("cuptiUnsubscribe"), 1u);
}

TEST_F(KernelTraceTest, RefusesWhereAnotherSubscribes) {
  fake_cupti_hold();
  Make();
  const char* const why = trace_->Start();
  ASSERT_NE(why, nullptr);
  EXPECT_NE(std::string(why).find("holds CUPTI"), std::string::npos) << why;
  EXPECT_FALSE(trace_->Tracing());
  EXPECT_EQ(fake_cupti_calls("cuptiActivityRegisterCallbacks"), 0u);
  EXPECT_EQ(fake_cupti_calls("cuptiActivityEnable"), 0u);
}

TEST_F(KernelTraceTest, RefusesAnUnknownVersion) {
  for (const uint32_t unknown : {18u, 140000u}) {  // CUDA 11.8, and what may come
    fake_cupti_set_version(unknown);
    Make();
    const char* const why = trace_->Start();
    ASSERT_NE(why, nullptr);
    EXPECT_NE(std::string(why).find(std::to_string(unknown)), std::string::npos) << why;
  }
  EXPECT_EQ(fake_cupti_calls("cuptiActivityRegisterCallbacks"), 0u);
}

TEST_F(KernelTraceTest, SaysWhichCallFailedAndLeavesNothingOn) {
  for (const char* const call : {"cuptiActivityRegisterCallbacks", "cuptiActivityEnable"}) {
    fake_cupti_reset();
    fake_cupti_fail(call, 35);
    Make();
    const char* const why = trace_->Start();
    ASSERT_NE(why, nullptr) << call;
    EXPECT_NE(std::string(why).find(call), std::string::npos) << why;
    EXPECT_NE(std::string(why).find("administrators"), std::string::npos) << why;
    EXPECT_FALSE(trace_->Tracing());
    for (const int kind : {4, 5, 10, 39}) EXPECT_FALSE(fake_cupti_enabled(kind)) << kind;
  }
}

TEST_F(KernelTraceTest, RecordsAllCallsWhereSingleOnesCannotBeChosen) {
  fake_cupti_fail("cuptiActivityEnableRuntimeApi", 1);
  MakeTracing();
  Run(1, "kernel", 5);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1), (Ran{{"kernel", {1, 5}}}));
}

TEST_F(KernelTraceTest, RecordsAllCallsWhereSingleOnesBringNoNumbers) {
  fake_cupti_set_ids_need_kinds(1);
  MakeTracing();
  for (uint64_t op = 1; op <= 1000; ++op) Run(op, "unknown", 5);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1000), Ran{});
  trace_->Tend();
  Run(2000, "known", 5);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(2000), (Ran{{"known", {1, 5}}}));
}

// Our own launch stands behind an inner op, where the outer one's number is on top.
TEST_F(KernelTraceTest, RecordsAllCallsWhereOnlyOurOwnLaunchesAreRecorded) {
  MakeTracing();
  fake_cupti_set_launch_id(9999);  // of a CUDA to come
  const auto run = [this](uint64_t op) {
    trace_->Push(op << 20);
    Run(op, "kernel", 5);
    fake_cupti_ran(fake_cupti_launched("nanwatch_check_few", 0, 0), 1);
    trace_->Pop();
  };
  for (uint64_t op = 1; op <= 1000; ++op) run(op);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(1000), Ran{});
  const TraceRecords before = trace_->Records();
  EXPECT_EQ(before.kernels, 1000u);
  EXPECT_EQ(before.launches, 1000u);  // ours
  EXPECT_EQ(before.matched, 0u);
  EXPECT_GT(before.buffers, 0u);
  trace_->Tend();
  run(2000);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(2000), (Ran{{"kernel", {1, 5}}}));
  EXPECT_EQ(trace_->Records().matched, 1u);
}

TEST_F(KernelTraceTest, RecordsAllCallsWhereMostKernelsComeWithoutOne) {
  MakeTracing();
  for (uint64_t op = 1; op <= 1000; ++op) {
    fake_cupti_set_launch_id(op % 4 == 0 ? 430 : 9999);  // a library's, and all others'
    Run(op, "kernel", 5);
  }
  trace_->Flush(false);
  trace_->Tend();
  fake_cupti_set_launch_id(9999);
  Run(2000, "kernel", 5);
  trace_->Flush(false);
  EXPECT_EQ(KernelsOf(2000), (Ran{{"kernel", {1, 5}}}));
}

TEST_F(KernelTraceTest, RecordsLaunchesAloneWhereMostAreMadeOutsideOps) {
  MakeTracing();
  for (uint64_t op = 1; op <= 1000; ++op) {
    Run(op, "kernel", 5);
    for (int i = 0; i < 3; ++i) fake_cupti_ran(fake_cupti_launched("triton", 0, 0), 5);
  }
  trace_->Flush(false);
  trace_->Tend();
  EXPECT_EQ(fake_cupti_calls("cuptiActivityEnable"), 2u);
}

TEST_F(KernelTraceTest, CountsKernelsInGraphsApart) {
  MakeTracing();
  const uint64_t first = fake_cupti_launched("in a graph", 7, 0);
  fake_cupti_ran(first, 5);
  fake_cupti_ran(fake_cupti_launched("in a graph", 7, first), 5);
  trace_->Flush(false);
  EXPECT_EQ(trace_->Records().kernels, 0u);
  EXPECT_EQ(trace_->Records().kernels_in_graphs, 2u);
}

// ---- a profiler begins

std::vector<uint8_t> profilers_memory(1 << 16);
size_t profilers_buffers_done = 0;
void ProfilersRequest(uint8_t** buffer, size_t* bytes, size_t* records_max) {
  *buffer = profilers_memory.data();
  *bytes = profilers_memory.size();
  *records_max = 0;
}
void ProfilersDone(CuContext, uint32_t, uint8_t* buffer, size_t, size_t) {
  EXPECT_EQ(buffer, profilers_memory.data());
  ++profilers_buffers_done;
}

TEST_F(KernelTraceTest, GivesEverythingBackBeforeAProfilerBegins) {
  MakeTracing();
  Run(1, "before", 5);
  const uint64_t running = Launch(2, "still running");
  EXPECT_TRUE(trace_->Yield());
  EXPECT_FALSE(trace_->Tracing());
  EXPECT_EQ(fake_cupti_buffers_held(), 0u);
  for (const int kind : {4, 5, 10, 39}) EXPECT_FALSE(fake_cupti_enabled(kind)) << kind;
  EXPECT_EQ(KernelsOf(1), (Ran{{"before", {1, 5}}}));

  // As kineto does it.
  const Cupti theirs = *CuptiOfProcess();
  ASSERT_EQ(theirs.register_callbacks(&ProfilersRequest, &ProfilersDone), kCuptiSuccess);
  ASSERT_EQ(theirs.enable(kCuptiConcurrentKernel), kCuptiSuccess);
  fake_cupti_ran(running, 5);
  fake_cupti_ran(fake_cupti_launched("theirs", 0, 0), 5);
  ASSERT_EQ(theirs.flush_all(kCuptiFlushForced), kCuptiSuccess);
  EXPECT_EQ(profilers_buffers_done, 1u);
  EXPECT_FALSE(trace_->Yield());
  const size_t calls = fake_cupti_all_calls();
  trace_->Tend();
  trace_->Flush(false);
  EXPECT_EQ(fake_cupti_all_calls(), calls);
  EXPECT_NE(trace_->Start(), nullptr);  // for good
}

TEST_F(KernelTraceTest, NeverStartsAfterAProfilerHas) {
  Make();
  EXPECT_FALSE(trace_->Yield());
  EXPECT_NE(trace_->Start(), nullptr);
  EXPECT_EQ(fake_cupti_all_calls(), 0u);
}

TEST_F(KernelTraceTest, YieldsWhileThreadsLaunchAndAnotherFlushes) {
  MakeTracing();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= 3; ++t) {
    threads.emplace_back([this, &stop, t] {
      for (uint64_t op = t << 32; !stop; ++op) {
        if (trace_->Tracing()) Run(op, "kernel", 1);
      }
    });
  }
  threads.emplace_back([this, &stop] {
    while (!stop) {
      trace_->Flush(false);
      KernelsOf(1);
    }
  });
  while (trace_->Tracing() && fake_cupti_calls("cuptiActivityGetNextRecord") < 10'000) {
  }
  EXPECT_TRUE(trace_->Yield());
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_cupti_buffers_held(), 0u);
}

}  // namespace
}  // namespace nanwatch::device
