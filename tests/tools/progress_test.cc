// SPDX-License-Identifier: Apache-2.0
#include "tools/progress.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <vector>

namespace nanwatch {
namespace {

using std::chrono::milliseconds;

// Keeps what was written, and lets a test wait for it.
class Writings {
 public:
  Progress::Output To(bool terminal, milliseconds first, milliseconds next) {
    return {terminal, first, next, [this](std::string_view text) {
              const std::lock_guard<std::mutex> lock(mutex_);
              all_.emplace_back(text);
              grown_.notify_all();
            }};
  }

  std::vector<std::string> AtLeast(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    grown_.wait_for(lock, std::chrono::minutes(1), [&] { return all_.size() >= count; });
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable grown_;
  std::vector<std::string> all_;
};

TEST(Progress, SaysNothingOfWhatIsDoneBeforeTheFirstSecond) {
  Writings writings;
  {
    Progress progress("exporting", writings.To(true, std::chrono::hours(1), std::chrono::hours(1)));
    progress.Now("reading the runs");
    progress.Count(3, 8, "runs read");
  }
  EXPECT_TRUE(writings.AtLeast(0).empty());
}

TEST(Progress, WritesLinesWhereNoTerminalIs) {
  Writings writings;
  Progress progress("exporting", writings.To(false, milliseconds(20), milliseconds(1)));
  progress.Count(3, 8, "runs read");
  const std::vector<std::string> lines = writings.AtLeast(2);
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0], "nanwatch: exporting: 3 of 8 runs read\n");
  progress.End();
  EXPECT_EQ(writings.AtLeast(0).back(), lines[0]);
}

TEST(Progress, WritesOneLineAnewOnATerminalAndErasesItAtTheEnd) {
  Writings writings;
  Progress progress("exporting", writings.To(true, milliseconds(20), std::chrono::hours(1)));
  progress.Now("reading the runs");
  EXPECT_EQ(writings.AtLeast(1).at(0), "nanwatch: exporting: reading the runs\x1b[K\r");
  progress.End();
  EXPECT_EQ(writings.AtLeast(2).at(1), "\x1b[K");
  const size_t count = writings.AtLeast(0).size();
  progress.End();
  EXPECT_EQ(writings.AtLeast(0).size(), count) << "nothing is said after the end";
}

}  // namespace
}  // namespace nanwatch
