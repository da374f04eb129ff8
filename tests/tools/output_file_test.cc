// SPDX-License-Identifier: Apache-2.0
#include "tools/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

using ::testing::HasSubstr;

std::string Content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

size_t FilesIn(const std::string& folder) {
  const auto files = std::filesystem::directory_iterator(folder);
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(OutputFile, ReplacesAFileWholeAndKeepsItsPermissions) {
  TemporaryDirectory directory;
  const std::string path = directory.Path("page.html");
  ASSERT_TRUE(WriteOutputFile(path, "old and long").ok());
  ASSERT_EQ(chmod(path.c_str(), 0604), 0);
  ASSERT_TRUE(WriteOutputFile(path, "new").ok());
  EXPECT_EQ(Content(path), "new");
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0604u);
  EXPECT_EQ(FilesIn(directory.path()), 1u);
}

TEST(OutputFile, ReplacesWhatALinkLeadsTo) {
  TemporaryDirectory directory;
  ASSERT_TRUE(WriteOutputFile(directory.Path("real"), "old").ok());
  std::filesystem::create_symlink(directory.Path("real"), directory.Path("link"));
  ASSERT_TRUE(WriteOutputFile(directory.Path("link"), "new").ok());
  EXPECT_EQ(Content(directory.Path("real")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(directory.Path("link")));
}

TEST(OutputFile, SaysWhatToDoAndLeavesNothingBehindWhereItFails) {
  TemporaryDirectory directory;
  const Status missing = WriteOutputFile(directory.Path("none/page.html"), "x");
  EXPECT_EQ(missing.kind(), ErrorKind::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("name a file in a directory that exists"));
  EXPECT_THAT(WriteOutputFile("/dev/full", std::string(1 << 20, 'x')).message(),
              HasSubstr("make room there"));
  EXPECT_THAT(WriteOutputFile(directory.path(), "x").message(), HasSubstr("Is a directory"));
  EXPECT_EQ(FilesIn(directory.path()), 0u);
}

}  // namespace
}  // namespace nanwatch
