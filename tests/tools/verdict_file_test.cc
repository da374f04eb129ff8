#include "tools/verdict_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

using ::testing::HasSubstr;

TEST(VerdictFile, HoldsTheDocumentAndANewline) {
  TemporaryDirectory directory;
  std::string error;
  VerdictFile file = VerdictFile::Open(directory.Path("v.json"), error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(file.Write("{}"), "");
  EXPECT_EQ(directory.Read("v.json"), "{}\n");
}

TEST(VerdictFile, AnOlderVerdictIsGoneBeforeTheJobStarts) {
  TemporaryDirectory directory;
  directory.Write("v.json", "the verdict of yesterday");
  std::string error;
  const VerdictFile file = VerdictFile::Open(directory.Path("v.json"), error);
  EXPECT_EQ(directory.Read("v.json"), "");
}

TEST(VerdictFile, APathThatCannotBeWrittenIsASentence) {
  TemporaryDirectory directory;
  std::string error;
  (void)VerdictFile::Open(directory.Path("absent/v.json"), error);
  EXPECT_THAT(error, HasSubstr("nothing was started"));
}

TEST(VerdictFile, ADirectoryIsRefused) {
  TemporaryDirectory directory;
  std::string error;
  (void)VerdictFile::Open(directory.path(), error);
  EXPECT_NE(error, "");
}

TEST(VerdictFile, WithoutAPathNothingIsWritten) {
  std::string error;
  VerdictFile file = VerdictFile::Open("", error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(file.Write("{}"), "");
}

}  // namespace
}  // namespace nanwatch
