// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/command_line.h"

#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <string>
#include <vector>

namespace nanwatch {
namespace {

// What the CLI11 that is linked says of these words, in ours.
std::string Complaint(std::vector<std::string> words) {
  CLI::App app;
  int lines = 0;
  std::string level;
  bool check = false;
  bool stats = false;
  bool json = false;
  bool version = false;
  app.add_option("--lines", lines)->check(CLI::Range(0, 1000));
  int plain = 0;
  app.add_option("--plain", plain);
  app.add_option("--level", level)->type_name("LEVEL");
  CLI::Option* checked = app.add_flag("--check", check);
  app.add_flag("--stats", stats)->excludes(checked);
  app.add_flag("--version", version);
  app.add_flag("--json", json)->needs("--version");
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    return PlainComplaint(error.what());
  }
  return "";
}

TEST(PlainComplaint, NamesWhatIsWrongAndWhatWouldBeRight) {
  EXPECT_EQ(Complaint({"--bogus"}), "unknown option or argument: --bogus");
  EXPECT_EQ(Complaint({"one"}), "unknown option or argument: one");
  EXPECT_EQ(Complaint({"--level"}), "--level needs a value (LEVEL)");
  EXPECT_EQ(Complaint({"--plain", "x"}), "--plain is 'x', which is not a number");
  EXPECT_EQ(Complaint({"--lines", "-3"}), "--lines is '-3': give a number from 0 to 1000");
  EXPECT_EQ(Complaint({"--lines", "x"}), "--lines is 'x': give a number from 0 to 1000");
  EXPECT_EQ(Complaint({"--stats", "--check"}), "--check and --stats cannot be combined");
  EXPECT_EQ(Complaint({"--json"}), "--json needs --version as well");
}

TEST(PlainComplaint, LeavesAloneWhatItDoesNotKnow) {
  EXPECT_EQ(PlainComplaint("something else: 1"), "something else: 1");
}

}  // namespace
}  // namespace nanwatch
