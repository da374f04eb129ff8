// SPDX-License-Identifier: Apache-2.0
#include "tools/help_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <sstream>
#include <string>

namespace nanwatch {
namespace {

using ::testing::HasSubstr;

TEST(HelpLayout, WrapsWhatDoesNotFitUnderItself) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "word" + std::to_string(i) + " ";
  CLI::App app("A program.");
  std::string value;
  app.add_option("--level", value, text);
  app.add_subcommand("run", text);
  SetHelp(app, "nanwatch", "");
  const std::string help = app.help();
  std::istringstream lines(help);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  EXPECT_LE(widest, kHelpColumnsMax) << help;
  EXPECT_GT(widest, kHelpColumnsMax - 7) << "as much as fits: " << help;
  EXPECT_THAT(help, HasSubstr("\n" + std::string(26, ' ') + "word")) << help;
  EXPECT_THAT(help, HasSubstr("word39\n")) << "nothing is lost";
}

}  // namespace
}  // namespace nanwatch
