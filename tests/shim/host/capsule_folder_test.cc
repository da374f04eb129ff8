// SPDX-License-Identifier: Apache-2.0
#include "shim/host/capsule_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

class CapsuleFolderTest : public testing::Test {
 protected:
  [[nodiscard]] std::string directory() const { return place_.directory(); }
  const char* Write(const char* name, const std::string& tensors = "tensors") {
    const iovec pieces[] = {{const_cast<char*>(tensors.data()), tensors.size()},
                            {const_cast<char*>("-more"), 5}};
    return WriteCapsule(directory().c_str(), name, {pieces, "{}"});
  }
  [[nodiscard]] std::string Content(const std::string& file) const {
    std::ifstream in(directory() + "/" + file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  [[nodiscard]] mode_t ModeOf(const std::string& name) const {
    struct stat status {};
    EXPECT_EQ(stat((directory() + name).c_str(), &status), 0);
    return status.st_mode & 07777;
  }

  SegmentPlace place_;
};

TEST_F(CapsuleFolderTest, WriteAllPiecesInTheirOrder) {
  ASSERT_EQ(Write("run-1"), nullptr);
  EXPECT_EQ(Content("run-1.written/tensors.safetensors"), "tensors-more");
  EXPECT_EQ(Content("run-1.written/manifest.json"), "{}");
  EXPECT_EQ(place_.Files(), std::vector<std::string>{"run-1.written"});
}

TEST_F(CapsuleFolderTest, LetNobodyElseRead) {
  const mode_t mask = umask(0);
  ASSERT_EQ(Write("run-1"), nullptr);
  umask(mask);
  EXPECT_EQ(ModeOf(""), 0700u);
  EXPECT_EQ(ModeOf("/run-1.written"), 0700u);
  EXPECT_EQ(ModeOf("/run-1.written/manifest.json"), 0600u);
  EXPECT_EQ(ModeOf("/run-1.written/tensors.safetensors"), 0600u);
}

TEST_F(CapsuleFolderTest, RemoveWhatWasWritten) {
  ASSERT_EQ(Write("run-1"), nullptr);
  ASSERT_EQ(Write("run-2"), nullptr);
  RemoveCapsule(directory().c_str(), "run-1");
  EXPECT_EQ(place_.Files(), std::vector<std::string>{"run-2.written"});
}

// Half a folder is no capsule, and takes no room.
TEST_F(CapsuleFolderTest, LeaveNothingWhereTheNameIsTaken) {
  ASSERT_EQ(Write("run-1"), nullptr);
  EXPECT_NE(Write("run-1"), nullptr);
  EXPECT_EQ(place_.Files(), std::vector<std::string>{"run-1.written"});
}

TEST_F(CapsuleFolderTest, LeaveNothingWhereMemoryCannotBeRead) {
  const iovec pieces[] = {{nullptr, 4096}};
  EXPECT_NE(WriteCapsule(directory().c_str(), "run-1", {pieces, "{}"}), nullptr);
  EXPECT_TRUE(place_.Files().empty());
}

// The signal would end the process.
TEST_F(CapsuleFolderTest, SurviveALimitOnTheSizeOfFiles) {
  const auto write_under_limit = [this] {
    const rlimit limit{.rlim_cur = 16, .rlim_max = 16};
    setrlimit(RLIMIT_FSIZE, &limit);
    const char* why = Write("run-1", std::string(4096, 'x'));
    _exit(why != nullptr && std::strstr(why, "ulimit") != nullptr ? 0 : 1);
  };
  EXPECT_EXIT(write_under_limit(), testing::ExitedWithCode(0), "");
  EXPECT_TRUE(place_.Files().empty());
}

TEST_F(CapsuleFolderTest, SayThatTheDirectoryCannotBeMade) {
  const char* why = WriteCapsule("/proc/nanwatch/none", "run-1", {{}, "{}"});
  ASSERT_NE(why, nullptr);
  EXPECT_NE(std::string(why).find("directory"), std::string::npos);
}

}  // namespace
}  // namespace nanwatch
