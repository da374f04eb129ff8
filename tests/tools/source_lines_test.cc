// SPDX-License-Identifier: Apache-2.0
#include "tools/source_lines.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

constexpr char kScript[] =
    "import torch\n"
    "\n"
    "class Model:\n"
    "    def forward(self, x):\n"
    "        if x is None:\n"
    "\n"
    "            return torch.log(x)\n"
    "        return x\n"
    "\n"
    "def other(x):\n"
    "    return x\n";

class SourceLinesTest : public ::testing::Test {
 protected:
  SourceLinesTest() {
    std::ofstream(directory_.Path("train.py")) << kScript;
    std::ofstream(directory_.Path("secret.txt")) << "1\n2\n3\n";
    RunInfo& run = *verdict_.mutable_run();
    run.add_command("python");
    run.add_command(directory_.Path("train.py"));
    run.set_started_at("9999-01-01T00:00:00.000Z");
    verdict_.add_incidents();
  }

  std::optional<SourceLines> Of(const std::string& source) {
    verdict_.mutable_incidents(0)->mutable_origin()->set_source(source);
    return SourceLinesOf(verdict_);
  }

  TemporaryDirectory directory_;
  Verdict verdict_;
};

TEST_F(SourceLinesTest, ShowsTheLineWithItsNeighbors) {
  const std::optional<SourceLines> lines = Of("train.py:7 in forward");
  ASSERT_TRUE(lines.has_value());
  EXPECT_EQ(lines->path, directory_.Path("train.py"));
  EXPECT_EQ(lines->first, 3);
  EXPECT_EQ(lines->marked, 7);
  ASSERT_EQ(lines->lines.size(), 9u);
  EXPECT_EQ(lines->lines[4], "            return torch.log(x)");
  EXPECT_TRUE(Of("train.py:1 in <module>").has_value());
}

TEST_F(SourceLinesTest, FindsAScriptWhereItsProcessRan) {
  verdict_.mutable_run()->set_command(1, "./train.py");
  EXPECT_FALSE(Of("train.py:7 in forward").has_value()) << "it is not where we are";
  EXPECT_EQ(SourcePathOf(verdict_), "");
  verdict_.mutable_run()->set_directory(directory_.path());
  EXPECT_TRUE(Of("train.py:7 in forward").has_value());
  EXPECT_EQ(SourcePathOf(verdict_), directory_.Path("train.py"));
}

TEST_F(SourceLinesTest, ShowsNothingWhereTheFileIsAnother) {
  EXPECT_FALSE(Of("train.py:11 in forward").has_value()) << "that line is in another function";
  EXPECT_FALSE(Of("train.py:70 in forward").has_value());
  EXPECT_FALSE(Of("model.py:7 in forward").has_value());
  verdict_.mutable_run()->set_started_at("2001-01-01T00:00:00.000Z");
  EXPECT_FALSE(Of("train.py:7 in forward").has_value()) << "changed since the run began";
}

TEST_F(SourceLinesTest, ReadsPythonOnlyAndOnlyBesideTheScript) {
  EXPECT_FALSE(Of("secret.txt:1 in <module>").has_value());
  EXPECT_FALSE(Of("../train.py:1 in <module>").has_value());
  EXPECT_FALSE(Of("train.py:x in <module>").has_value());
  EXPECT_FALSE(Of("train.py:-1 in <module>").has_value());
  EXPECT_FALSE(Of("").has_value());
  EXPECT_FALSE(SourceLinesOf(Verdict()).has_value());
}

}  // namespace
}  // namespace nanwatch
