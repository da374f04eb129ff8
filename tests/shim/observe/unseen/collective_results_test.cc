// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/collective_results.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <thread>

#include "shim/host/thread_work.h"
#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class CollectiveResultsTest : public testing::Test {
 protected:
  static CollectiveName Name(const char* name, uint64_t sequence = 1) {
    CollectiveName collective;
    std::strncpy(collective.name, name, sizeof collective.name - 1);
    collective.sequence = sequence;
    return collective;
  }
  // A collective has begun that writes this.
  std::shared_ptr<CollectiveResult> Begun(const at::Tensor& into,
                                          const char* name = "gloo:all_reduce") {
    auto result =
        std::make_shared<CollectiveResult>(Name(name, ++begun_), on_.progress.completed());
    result->Add(into);
    on_.collective_results.Open(result);
    return result;
  }
  bool FindReceived() {
    return on_.collective_results.FindReceived(&on_.thread, nullptr, 0, &source_, &value_);
  }
  // An op hands results out: as its begin and end.
  void HandOut(const char* op, const char* overload, const at::Tensor& result) {
    Frame frame{};
    frame.op = &on_.Op(op, overload);
    on_.collective_results.OnHandingOut(&on_.thread, frame);
    on_.collective_results.OnHandedOut(&on_.thread, frame, {c10::IValue(result)});
  }
  std::vector<wire::CollectiveRecord> Records() {
    return on_.Emitted<wire::CollectiveRecord>(wire::RecordKind::kCollective);
  }

  ObservedTraining on_;
  wire::Source source_{};
  ValueRef value_;
  at::Tensor buffer_ = at::zeros({4});
  uint64_t begun_ = 0;
};

TEST_F(CollectiveResultsTest, FindWhatHasComeBadByAnOpenCollective) {
  const auto result = Begun(buffer_);
  EXPECT_FALSE(FindReceived()) << "nothing is there yet";
  buffer_.fill_(kNan);
  ASSERT_TRUE(FindReceived());
  EXPECT_EQ(on_.ClassOf(value_), wire::FindingClass::kReceived);
  EXPECT_EQ(source_.kind, static_cast<uint8_t>(wire::SourceKind::kValue));
  EXPECT_EQ(source_.value, value_.ticket);
}

TEST_F(CollectiveResultsTest, NameTheGroupAndTheNumberOfTheCollective) {
  const auto result = Begun(buffer_);
  buffer_.fill_(kNan);
  ASSERT_TRUE(FindReceived());
  const wire::ValueRecord record = on_.Values().at(0);
  ASSERT_EQ(record.n_sources, 1);
  EXPECT_EQ(record.sources[0].kind, static_cast<uint8_t>(wire::SourceKind::kCollective));
  EXPECT_EQ(record.sources[0].value, 1u);
  MappedSegment mapped(on_.process.place());
  EXPECT_EQ(mapped.Name(record.sources[0].name), "gloo");
}

TEST_F(CollectiveResultsTest, ReportWhatComesBackOnce) {
  const auto result = Begun(buffer_);
  buffer_.fill_(kNan);
  ASSERT_TRUE(FindReceived());
  ASSERT_TRUE(FindReceived());
  EXPECT_EQ(on_.Values().size(), 1u);
}

TEST_F(CollectiveResultsTest, DoNotTakeForReceivedWhatTheOpHasWrittenItself) {
  const auto result = Begun(buffer_);
  buffer_.fill_(kNan);
  const BadOutput own{ObservedTraining::Plain(buffer_), 0, false};
  EXPECT_FALSE(on_.collective_results.FindReceived(&on_.thread, &own, 1, &source_, &value_));
}

TEST_F(CollectiveResultsTest, DoNotTakeForReceivedWhatAnOpIsKnownToHaveWritten) {
  const auto result = Begun(buffer_);
  buffer_.fill_(kNan);
  const BadOutput known{ObservedTraining::Plain(buffer_), 0, false};
  on_.known_bad.Remember(&known, 1, {.value = {9, 1}, .site = 1, .written = Written{}});
  EXPECT_FALSE(FindReceived());
}

TEST_F(CollectiveResultsTest, GiveWhatCameBackAtTheEnd) {
  const auto result = Begun(buffer_);
  buffer_.fill_(kNan);
  const ValueRef received = on_.collective_results.Close(&on_.thread, result);
  EXPECT_NE(received.ticket, 0u);
  EXPECT_EQ(on_.ClassOf(received), wire::FindingClass::kReceived);
}

TEST_F(CollectiveResultsTest, GiveNothingAtACleanEndAndLetGo) {
  const auto result = Begun(buffer_);
  EXPECT_EQ(on_.collective_results.Close(&on_.thread, result).ticket, 0u);
  EXPECT_EQ(result.use_count(), 1);
  buffer_.fill_(kNan);
  EXPECT_FALSE(FindReceived()) << "somebody has written it since";
}

TEST_F(CollectiveResultsTest, LeaveOutOneWhoseEndWentByUnseen) {
  const auto result = Begun(buffer_);
  result->abandoned = true;
  buffer_.fill_(kNan);
  EXPECT_FALSE(FindReceived());
  const at::Tensor other = at::zeros({4});
  const auto next = Begun(other);
  EXPECT_EQ(result.use_count(), 1) << "the next one takes its place";
}

// The thread of the process group may come to the end long after those who waited have gone on, and
// the buffer (a bucket of gradients) holds something of the next step by then.
TEST_F(CollectiveResultsTest, LeaveAloneWhatMayBeOfALaterStepAtALateEnd) {
  const auto result = Begun(buffer_);
  on_.progress.CompleteSkip();
  buffer_.fill_(kNan);
  EXPECT_FALSE(FindReceived());
  EXPECT_EQ(on_.collective_results.Close(&on_.thread, result).ticket, 0u);
  EXPECT_TRUE(on_.Values().empty());
}

TEST_F(CollectiveResultsTest, SayNothingOfAStepBefore) {
  const auto result = Begun(buffer_);
  buffer_.fill_(kNan);
  ASSERT_TRUE(FindReceived());
  on_.progress.CompleteSkip();
  EXPECT_FALSE(FindReceived());
}

TEST_F(CollectiveResultsTest, CheckWhatAnOpHasHandedOutElsewhere) {
  HandOut("aten::cat", "", buffer_);
  buffer_.fill_(kNan);
  ASSERT_TRUE(FindReceived());
  EXPECT_EQ(on_.ClassOf(value_), wire::FindingClass::kReceived);
  EXPECT_EQ(on_.late.collectives, std::vector<bool>({false}));
}

// A process group's own thread unpacks what has come while the op that is to hand it out still runs.
TEST_F(CollectiveResultsTest, WaitForWhatAnotherThreadIsHandingOut) {
  Frame frame{};
  frame.op = &on_.Op("aten::cat", "");
  on_.collective_results.OnHandingOut(&on_.thread, frame);
  buffer_.fill_(kNan);
  std::atomic<int> asker{0};
  std::atomic<bool> has_answer{false};
  bool found = false;
  std::thread unpacks([&] {
    const auto own = std::make_unique<ThreadState>();
    asker = NumberOfThisThread();
    found = on_.collective_results.FindReceived(own.get(), nullptr, 0, &source_, &value_);
    has_answer = true;
  });
  // Until it waits. It does not where it is broken.
  while (!has_answer && (asker == 0 || CanGoOn(asker))) std::this_thread::yield();
  on_.collective_results.OnHandedOut(&on_.thread, frame, {c10::IValue(buffer_)});
  unpacks.join();
  EXPECT_TRUE(found);
}

TEST_F(CollectiveResultsTest, RecordNothingWhileParametersAreBad) {
  const at::Tensor parameter = at::full({4}, kNan);
  on_.poison.Mark(nullptr, ObservedTraining::Plain(parameter));
  on_.poison_watch.Settle();
  const auto result = Begun(buffer_);
  buffer_.fill_(kNan);
  EXPECT_FALSE(FindReceived());
}

TEST_F(CollectiveResultsTest, HoldNoStorage) {
  const auto result = Begun(buffer_);
  EXPECT_EQ(buffer_.storage().use_count(), 1u);
  buffer_ = at::Tensor();
  EXPECT_FALSE(FindReceived());
}

}  // namespace
}  // namespace nanwatch
