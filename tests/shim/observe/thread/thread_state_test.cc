// SPDX-License-Identifier: Apache-2.0
// The states of threads. They are the process's: cases use threads of their own, whose ids are
// libtorch's.
#include "shim/observe/thread/thread_state.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

namespace nanwatch {
namespace {

// States of ended threads that are kept before the oldest is used again.
constexpr int kKeptAfterEnd = 64;

void OnThread(const std::function<void()>& run) { std::thread(run).join(); }

// So many threads, one after the other, each with a state.
void EndThreads(int count) {
  for (int i = 0; i < count; ++i) {
    OnThread([] { ASSERT_NE(ThreadStates::Mine(), nullptr); });
  }
}

// As an op does that makes an autograd node.
void Enter(ThreadState* thread, int64_t sequence, const OpTraits* op) {
  SequenceEntry& entry = thread->sequences[sequence & (ThreadState::kSequences - 1)];
  entry.sequence.store(sequence + 1, std::memory_order_relaxed);
  entry.op = op;
}

class ThreadStatesTest : public testing::Test {
 protected:
  // Of an ended thread whose state stands: its logical id.
  uint64_t EndedThread(const std::function<void(ThreadState*)>& run = [](ThreadState*) {}) {
    uint64_t id = 0;
    OnThread([&] {
      ThreadState* mine = ThreadStates::Mine();
      run(mine);
      id = mine->torch_thread_id;
    });
    return id;
  }

  OpTraits op_{};
};

TEST_F(ThreadStatesTest, AThreadHasNoneBeforeItsFirstOpAndOneFromThereOn) {
  OnThread([] {
    EXPECT_EQ(ThreadStates::Known(), nullptr);
    ThreadState* mine = ThreadStates::Mine();
    ASSERT_NE(mine, nullptr);
    EXPECT_EQ(ThreadStates::Mine(), mine);
    EXPECT_EQ(ThreadStates::Known(), mine);
    EXPECT_EQ(mine->graph_task, -1);
    EXPECT_EQ(mine->depth, 0u);
  });
}

TEST_F(ThreadStatesTest, ThreadsThatLiveTogetherHaveStatesAndNumbersOfTheirOwn) {
  ThreadState* mine = ThreadStates::Mine();
  OnThread([mine] {
    EXPECT_NE(ThreadStates::Mine(), mine);
    EXPECT_NE(ThreadStates::Mine()->small_id, mine->small_id);
    EXPECT_NE(ThreadStates::Mine()->torch_thread_id, mine->torch_thread_id);
  });
}

TEST_F(ThreadStatesTest, AreFoundByTheIdThatLibtorchGivesTheThread) {
  ThreadState* mine = ThreadStates::Mine();
  const uint64_t id = at::RecordFunction::currentThreadId();
  EXPECT_EQ(ThreadStates::OfTorchThread(id), mine);
  EXPECT_EQ(ThreadStates::OfTorchThread(id + 4096), nullptr) << "another in the same place";
  EXPECT_EQ(ThreadStates::OfTorchThread(UINT64_MAX), nullptr);
}

TEST_F(ThreadStatesTest, OfAnEndedThreadAreFoundForAWhile) {
  const uint64_t id = EndedThread([this](ThreadState* mine) { Enter(mine, 5, &op_); });
  ASSERT_NE(ThreadStates::OfTorchThread(id), nullptr);
  const SequenceEntry* entry = ThreadStates::FindSequence(id, 5);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->op, &op_);
  EndThreads(2 * kKeptAfterEnd);
  EXPECT_EQ(ThreadStates::OfTorchThread(id), nullptr);
  EXPECT_EQ(ThreadStates::FindSequence(id, 5), nullptr);
}

TEST_F(ThreadStatesTest, ASequenceNumberIsFoundUntilAnotherTakesItsPlace) {
  ThreadState* mine = ThreadStates::Mine();
  const uint64_t id = mine->torch_thread_id;
  EXPECT_EQ(ThreadStates::FindSequence(id, 100), nullptr);
  Enter(mine, 100, &op_);
  ASSERT_NE(ThreadStates::FindSequence(id, 100), nullptr);
  EXPECT_EQ(ThreadStates::FindSequence(id, 101), nullptr);
  EXPECT_EQ(ThreadStates::FindSequence(id, 100 + ThreadState::kSequences), nullptr);
  Enter(mine, 100 + ThreadState::kSequences, &op_);
  EXPECT_EQ(ThreadStates::FindSequence(id, 100), nullptr);
  EXPECT_NE(ThreadStates::FindSequence(id, 100 + ThreadState::kSequences), nullptr);
}

TEST_F(ThreadStatesTest, TheFirstSequenceNumberIsOneAndZeroedMemoryIsNone) {
  OnThread([this] {
    ThreadState* mine = ThreadStates::Mine();
    EXPECT_EQ(ThreadStates::FindSequence(mine->torch_thread_id, 0), nullptr);
    EXPECT_EQ(ThreadStates::FindSequence(mine->torch_thread_id, -1), nullptr);
    Enter(mine, 0, &op_);
    EXPECT_NE(ThreadStates::FindSequence(mine->torch_thread_id, 0), nullptr);
    EXPECT_EQ(ThreadStates::FindSequence(mine->torch_thread_id, -1), nullptr);
  });
}

TEST_F(ThreadStatesTest, ASequenceOfOneThreadIsNoneOfAnother) {
  Enter(ThreadStates::Mine(), 7, &op_);
  const uint64_t other = EndedThread();
  EXPECT_EQ(ThreadStates::FindSequence(other, 7), nullptr);
  EXPECT_EQ(ThreadStates::FindSequence(UINT64_MAX, 7), nullptr);
}

TEST_F(ThreadStatesTest, AReferenceToASequenceIsGoneOnceItsPlaceIsTaken) {
  ThreadState* mine = ThreadStates::Mine();
  EXPECT_EQ(SequenceRef().Get(), nullptr);
  EXPECT_EQ(SequenceRef(nullptr).Get(), nullptr);
  Enter(mine, 9, &op_);
  const SequenceEntry* entry = ThreadStates::FindSequence(mine->torch_thread_id, 9);
  const SequenceRef reference(entry);
  EXPECT_EQ(reference.Get(), entry);
  Enter(mine, 9 + ThreadState::kSequences, &op_);
  EXPECT_EQ(reference.Get(), nullptr);
}

// The same memory, as it is handed from thread to thread.
TEST_F(ThreadStatesTest, AThreadThatIsGivenAUsedStateBeginsWithoutWhatTheOtherHasLeft) {
  EndThreads(kKeptAfterEnd);  // so that each further one is given a used state
  const Layer layer;
  ThreadState* used = nullptr;
  EndedThread([&](ThreadState* mine) {
    used = mine;
    mine->depth = 3;
    mine->nodes_open = 2;
    mine->regions_open = 1;
    mine->optimizer_depth = 1;
    mine->inputs_used = 9;
    mine->expose_hidden = 4;
    mine->busy = mine->proof = true;
    mine->node_layer = &layer;
    mine->last_gpu = 2;
    mine->trail_steps = 77;
    mine->graph_task = 6;
    for (const int64_t sequence : {0, 1, 1000, 20'000, (1 << 15) - 1}) Enter(mine, sequence, &op_);
  });
  int handed_on = 0;
  for (int i = 0; i < 2 * kKeptAfterEnd && handed_on == 0; ++i) {
    EndedThread([&](ThreadState* mine) {
      if (mine != used) return;
      ++handed_on;
      EXPECT_EQ(mine->depth, 0u);
      EXPECT_EQ(mine->nodes_open, 0u);
      EXPECT_EQ(mine->regions_open, 0u);
      EXPECT_EQ(mine->optimizer_depth, 0u);
      EXPECT_EQ(mine->inputs_used, 0u);
      EXPECT_FALSE(mine->attention());
      EXPECT_FALSE(mine->proof);
      EXPECT_EQ(mine->node_layer, nullptr);
      EXPECT_EQ(mine->last_gpu, 0);
      EXPECT_EQ(mine->trail_steps, 0u);
      EXPECT_EQ(mine->graph_task, -1);
      EXPECT_EQ(mine->torch_thread_id, at::RecordFunction::currentThreadId());
      for (const int64_t sequence : {0, 1, 1000, 20'000, (1 << 15) - 1}) {
        EXPECT_EQ(ThreadStates::FindSequence(mine->torch_thread_id, sequence), nullptr) << sequence;
      }
    });
  }
  EXPECT_EQ(handed_on, 1) << "memory is used again, or a job of many threads would grow";
}

TEST_F(ThreadStatesTest, CountsGoOnWhereAStateIsUsedAgain) {
  const ThreadCounters before = ThreadStates::Sum();
  for (int i = 0; i < 2 * kKeptAfterEnd; ++i) {
    EndedThread([](ThreadState* mine) {
      mine->counters.ops_seen += 3;
      mine->counters.unchecked[static_cast<int>(wire::Unchecked::kOpaque)] += 1;
    });
  }
  const ThreadCounters after = ThreadStates::Sum();
  EXPECT_EQ(after.ops_seen - before.ops_seen, 6u * kKeptAfterEnd);
  constexpr auto kOpaque = static_cast<int>(wire::Unchecked::kOpaque);
  EXPECT_EQ(after.unchecked[kOpaque] - before.unchecked[kOpaque], 2u * kKeptAfterEnd);
}

TEST_F(ThreadStatesTest, EachCountIsSummedForItself) {
  const ThreadCounters before = ThreadStates::Sum();
  ThreadCounters& mine = ThreadStates::Mine()->counters;
  mine.ops_seen += 1;
  mine.tensors_checked += 2;
  mine.bytes_checked += 4;
  mine.values_bad += 8;
  mine.unchecked[0] += 16;
  mine.unchecked[wire::kUncheckedReasons - 1] += 32;
  const ThreadCounters after = ThreadStates::Sum();
  EXPECT_EQ(after.ops_seen - before.ops_seen, 1u);
  EXPECT_EQ(after.tensors_checked - before.tensors_checked, 2u);
  EXPECT_EQ(after.bytes_checked - before.bytes_checked, 4u);
  EXPECT_EQ(after.values_bad - before.values_bad, 8u);
  EXPECT_EQ(after.unchecked[0] - before.unchecked[0], 16u);
  EXPECT_EQ(
      after.unchecked[wire::kUncheckedReasons - 1] - before.unchecked[wire::kUncheckedReasons - 1],
      32u);
}

TEST_F(ThreadStatesTest, AStateOfNoThreadCountsAndIsNobodys) {
  const ThreadCounters before = ThreadStates::Sum();
  ThreadState* state = ThreadStates::MakeForResolving();
  ASSERT_NE(state, nullptr);
  EXPECT_NE(ThreadStates::Mine(), state);
  EXPECT_EQ(state->graph_task, -1);
  EXPECT_NE(state->small_id, ThreadStates::Mine()->small_id);
  state->counters.values_bad += 5;
  EXPECT_EQ(ThreadStates::Sum().values_bad - before.values_bad, 5u);
  EndThreads(2 * kKeptAfterEnd);
  EXPECT_EQ(state->counters.values_bad, 5u);
  EXPECT_EQ(ThreadStates::OfTorchThread(0), nullptr) << "it has no thread's id";
}

ThreadState* seen_ending = nullptr;
bool known_while_ending = false;

TEST_F(ThreadStatesTest, TheEndOfAThreadIsToldOnItWithItsState) {
  ThreadStates::SetOnEnd([](ThreadState* ending) {
    seen_ending = ending;
    known_while_ending = ThreadStates::Known() == ending;
  });
  ThreadState* ended = nullptr;
  EndedThread([&ended](ThreadState* mine) { ended = mine; });
  ThreadStates::SetOnEnd(nullptr);
  EXPECT_EQ(seen_ending, ended);
  EXPECT_TRUE(known_while_ending);
  seen_ending = nullptr;
  EndedThread();
  EXPECT_EQ(seen_ending, nullptr);
}

// Both threads have a state: which of many is found must be that of the thread that asks.
TEST_F(ThreadStatesTest, ThreadsThatBeginAndEndTogetherFindTheirOwn) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&wrong] {
      for (int round = 0; round < 60; ++round) {
        OnThread([&wrong] {
          ThreadState* mine = ThreadStates::Mine();
          const uint64_t id = at::RecordFunction::currentThreadId();
          if (mine->torch_thread_id != id || ThreadStates::OfTorchThread(id) != mine) ++wrong;
          if (ThreadStates::Known() != mine || mine->depth != 0) ++wrong;
          mine->depth = 1;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ThreadStatesTest, AForkedChildKnowsItsOwnThreadAlone) {
  ThreadStates::Mine()->counters.ops_seen += 100;
  const uint64_t other = EndedThread([this](ThreadState* mine) { Enter(mine, 3, &op_); });
  ASSERT_NE(ThreadStates::FindSequence(other, 3), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    ThreadStates::AfterFork();
    const ThreadState* mine = ThreadStates::Known();
    const bool right = mine != nullptr && ThreadStates::Mine() == mine &&
                       ThreadStates::Sum().ops_seen == 0 &&
                       ThreadStates::OfTorchThread(mine->torch_thread_id) == mine &&
                       ThreadStates::FindSequence(other, 3) == nullptr;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Attention, IsDrawnByOurOwnCodeAndByWrapperTensors) {
  ThreadState* mine = ThreadStates::Mine();
  EXPECT_FALSE(mine->attention());
  mine->busy = true;
  EXPECT_TRUE(mine->attention());
  mine->busy = false;
  mine->expose_hidden = 1;
  EXPECT_TRUE(mine->attention());
  mine->expose_hidden = 0;
  EXPECT_FALSE(mine->attention());
}

TEST(LastScalar, TakesNoMoreBytesThanItHas) {
  ScalarSeen seen{};
  const double complex[2] = {1.5, 2.5};
  seen.Remember(0, wire::ElementType::kComplex128, complex, sizeof complex);
  EXPECT_EQ(seen.type, wire::ElementType::kComplex128);
  EXPECT_EQ(seen.sequence_plus_one, 1) << "number 0 is not none";
  EXPECT_EQ(__builtin_bit_cast(double, seen.bits), 1.5);
}

}  // namespace
}  // namespace nanwatch
