// SPDX-License-Identifier: Apache-2.0
// Whatever goes wrong while a job is judged is an answer, and the next job is judged.
#include "daemon/loop/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "daemon/store/store.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

constexpr uint64_t kForAnswer = ~uint64_t{0};

class JudgeTest : public testing::Test {
 protected:
  JudgeTest() { EXPECT_TRUE(Store::OpenForWriting(path_).ok()); }
  Result<Verdict> Ask(Judge& judge) {
    judge.Begin(path_, "j");
    std::optional<Judge::Judgment> judgment = judge.Take(kForAnswer);
    EXPECT_TRUE(judgment.has_value());
    EXPECT_FALSE(judge.is_busy());
    if (!judgment) return Status(ErrorKind::kInvalid, "no answer");
    EXPECT_EQ(judgment->job, "j");
    return judgment->verdict;
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "nanwatch.db";
};

TEST_F(JudgeTest, AThreadThatCannotBeStartedIsAFailureAndTriedAgain) {
  int starts = 0;
  Judge judge([](const std::vector<RunFacts>&) { return Verdict(); },
              [&starts](std::function<void()> work) {
                if (++starts == 1)
                  throw std::system_error(EAGAIN, std::generic_category(), "no thread");
                return Judge::StartOne(std::move(work));
              });
  const Result<Verdict> refused = Ask(judge);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().kind(), ErrorKind::kResources);
  EXPECT_THAT(refused.status().message(), HasSubstr("thread"));
  EXPECT_TRUE(Ask(judge).ok());
  EXPECT_TRUE(Ask(judge).ok());
  EXPECT_EQ(starts, 2);
}

TEST_F(JudgeTest, AThreadThatThereIsNoMemoryForIsAFailureAndTriedAgain) {
  int starts = 0;
  Judge judge([](const std::vector<RunFacts>&) { return Verdict(); },
              [&starts](std::function<void()> work) {
                if (++starts == 1) throw std::bad_alloc();
                return Judge::StartOne(std::move(work));
              });
  EXPECT_EQ(Ask(judge).status().kind(), ErrorKind::kResources);
  EXPECT_TRUE(Ask(judge).ok());
}

TEST_F(JudgeTest, WhateverADiagnosisThrowsIsAFailure) {
  int asked = 0;
  Judge judge([&asked](const std::vector<RunFacts>&) -> Verdict {
    switch (++asked) {
      case 1:
        throw std::bad_alloc();
      case 2:
        throw std::length_error("a name");
      case 3:
        throw 17;
      default:
        return Verdict();
    }
  });
  EXPECT_EQ(Ask(judge).status().kind(), ErrorKind::kResources);
  const Status known = Ask(judge).status();
  EXPECT_EQ(known.kind(), ErrorKind::kInvalid);
  EXPECT_THAT(known.message(), HasSubstr("a name"));
  EXPECT_EQ(Ask(judge).status().kind(), ErrorKind::kInvalid);
  EXPECT_TRUE(Ask(judge).ok());
}

}  // namespace
}  // namespace nanwatch
