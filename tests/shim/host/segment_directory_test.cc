// SPDX-License-Identifier: Apache-2.0
#include "shim/host/segment_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "proto/wire/place.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

class SegmentDirectory : public testing::Test {
 protected:
  // The message of a refusal; fails the test if it is accepted, or if the message does not help.
  std::string Refusal(const std::string& wanted) {
    char path[wire::kDirPathMax + 1];
    SegmentReport report;
    const int fd = OpenSegmentDirectory(wanted.c_str(), path, report);
    EXPECT_EQ(fd, -1);
    EXPECT_FALSE(report.ok);
    EXPECT_THAT(report.message, HasSubstr("NANWATCH_DIR"));
    EXPECT_LT(std::strlen(report.message), sizeof report.message - 1) << "cut off";
    return report.message;
  }
  // The absolute path of a directory that is accepted, "" and a failure if not.
  std::string Accepted(const char* wanted) {
    char path[wire::kDirPathMax + 1] = "";
    SegmentReport report;
    const int fd = OpenSegmentDirectory(wanted, path, report);
    EXPECT_GE(fd, 0) << report.message;
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    close(fd);
    return path;
  }
  SegmentPlace place_;
};

TEST_F(SegmentDirectory, IsMadeForItsOwnerAlone) {
  EXPECT_EQ(Accepted(place_.directory().c_str()), place_.directory());
  struct stat status {};
  ASSERT_EQ(stat(place_.directory().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
}

TEST_F(SegmentDirectory, ComesFromTheEnvironmentWhereNothingElseIsAskedFor) {
  setenv(wire::kEnvDir, place_.directory().c_str(), 1);
  EXPECT_EQ(Accepted(nullptr), place_.directory());
  EXPECT_EQ(Accepted(""), place_.directory());
  unsetenv(wire::kEnvDir);
}

TEST_F(SegmentDirectory, IsInSharedMemoryUnderTheUsersNumberByDefault) {
  const std::string standard =
      wire::DefaultDirectoryOf(geteuid(), wire::PlaceOfProcess(0).key).path;
  const bool existed = std::filesystem::exists(standard);
  unsetenv(wire::kEnvDir);
  EXPECT_EQ(Accepted(nullptr), standard);
  if (!existed) rmdir(standard.c_str());
}

TEST_F(SegmentDirectory, MayBeGivenRelativeToTheCurrentOneAndStaysWhenThatChanges) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(place_.parent());
  EXPECT_EQ(Accepted("segments//"), place_.directory());
  std::filesystem::current_path(before);
}

TEST_F(SegmentDirectory, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "NOT TESTED: giving a directory away needs root";
  std::filesystem::create_directory(place_.directory());
  ASSERT_EQ(chown(place_.directory().c_str(), 1234, 0), 0);
  EXPECT_THAT(Refusal(place_.directory()), HasSubstr("belongs to user 1234, not to you (user 0)"));
}

TEST_F(SegmentDirectory, ThatOthersMayWriteToIsRefused) {
  std::filesystem::create_directory(place_.directory());
  for (const mode_t mode : {0777, 0770, 0702, 01777}) {
    ASSERT_EQ(chmod(place_.directory().c_str(), mode), 0);
    EXPECT_THAT(Refusal(place_.directory()), HasSubstr("others may write"));
  }
  ASSERT_EQ(chmod(place_.directory().c_str(), 0755), 0);
  EXPECT_EQ(Accepted(place_.directory().c_str()), place_.directory());
}

TEST_F(SegmentDirectory, ThatIsASymbolicLinkIsRefusedAlsoWithSlashesBehindIt) {
  std::filesystem::create_directory(place_.parent() + "/real");
  std::filesystem::create_symlink("real", place_.directory());
  EXPECT_THAT(Refusal(place_.directory()), HasSubstr("symbolic link"));
  EXPECT_THAT(Refusal(place_.directory() + "//"), HasSubstr("symbolic link"));
}

TEST_F(SegmentDirectory, ThatIsAFileIsRefused) {
  std::ofstream(place_.directory()) << "x";
  EXPECT_THAT(Refusal(place_.directory()), HasSubstr("is not a directory"));
}

TEST_F(SegmentDirectory, WhoseParentIsMissingIsRefused) {
  EXPECT_THAT(Refusal(place_.parent() + "/no/such"), HasSubstr("cannot be created: No such file"));
}

TEST_F(SegmentDirectory, WithTooLongAPathIsRefusedAndTheLongestPossibleIsNot) {
  std::string path = place_.parent() + "/";
  path += std::string(wire::kDirPathMax - path.size(), 'd');
  EXPECT_EQ(Accepted(path.c_str()), path);
  EXPECT_THAT(Refusal(path + "d"), HasSubstr("181 bytes long"));
  EXPECT_THAT(Refusal(path + std::string(5000, 'd')), HasSubstr("180 is the maximum"));
}

}  // namespace
}  // namespace nanwatch
