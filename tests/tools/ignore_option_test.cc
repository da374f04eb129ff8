// SPDX-License-Identifier: Apache-2.0
#include "tools/ignore_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "proto/wire/ignore_section.h"
#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(IgnoreOption, GathersRulesAndFiles) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/nanwatch.ignore";
  std::ofstream(path) << "# masks\nop=aten::log";
  const IgnoreText read = ReadIgnoreOptions({"", "op=aten::div", "@" + path});
  EXPECT_EQ(read.text, "op=aten::div\n# masks\nop=aten::log\n");
  EXPECT_THAT(read.problems, IsEmpty());
}

TEST(IgnoreOption, NamesAFileThatCannotBeReadAndGoesOn) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const IgnoreText read = ReadIgnoreOptions({"@/no/such", "@" + pipe, "op=aten::div"});
  EXPECT_EQ(read.text, "op=aten::div\n");
  EXPECT_THAT(read.problems, ElementsAre(AllOf(HasSubstr("'/no/such'"), HasSubstr("No such file")),
                                         HasSubstr("not a regular file")));
}

TEST(IgnoreOption, ReadsOneByteMoreThanASegmentCarries) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/large";
  std::ofstream(path) << std::string(3 * wire::kIgnoreBytesMax, 'x');
  EXPECT_EQ(ReadIgnoreOptions({"@" + path}).text.size(), wire::kIgnoreBytesMax + 2);
}

}  // namespace
}  // namespace nanwatch
