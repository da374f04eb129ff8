// SPDX-License-Identifier: Apache-2.0
// A small language for tests that run the tool as a person would:
//
//   Tool tool;
//   const ToolResult result = tool.With("NANWATCH_LEVEL", "ful").Run({"run", "--", "true"});
//   EXPECT_EQ(result.exit_code, 2);
//
// Segments, state and home are directories of the test's own; a daemon that was started is ended
// with it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/tools/temporary_directory.h"

namespace nanwatch {

struct ToolResult {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string out;
  std::string err;
};

class Tool {
 public:
  Tool();
  ~Tool();

  // Sets a variable for the next runs; "" takes it away.
  Tool& With(const std::string& name, const std::string& value);
  // Uses this executable instead of the build's.
  Tool& As(const std::string& executable);

  // Runs it to its end; killed after a minute.
  [[nodiscard]] ToolResult Run(const std::vector<std::string>& arguments);
  // `run -- /bin/sh -c SCRIPT`.
  [[nodiscard]] ToolResult RunScript(const std::string& script);

  [[nodiscard]] const TemporaryDirectory& home() const { return home_; }
  [[nodiscard]] std::string SegmentDir() const { return home_.Path("segments"); }

 private:
  TemporaryDirectory home_;
  std::string executable_ = NANWATCH_TOOL;
  std::map<std::string, std::string> variables_;
};

// The library that the build's tool preloads.
[[nodiscard]] std::string PreloadLibrary();

}  // namespace nanwatch
