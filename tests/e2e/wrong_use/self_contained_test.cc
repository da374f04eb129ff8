// SPDX-License-Identifier: Apache-2.0
// Programs are copied to hosts that have nothing of ours but glibc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/e2e/wrong_use/tool_process.h"

namespace nanwatch {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(SelfContained, ToolAndDaemonNeedNothingButGlibc) {
  const std::string tool = NANWATCH_TOOL;
  for (const std::string& program : {tool, tool + "d"}) {
    Tool asked;
    // The loader lists what it would load, and runs nothing.
    const ToolResult result = asked.As(program).With("LD_TRACE_LOADED_OBJECTS", "1").Run({});
    if (result.out.find("libasan") != std::string::npos ||
        result.out.find("libtsan") != std::string::npos) {
      GTEST_SKIP() << "sanitizer runtimes are shared";
    }
    ASSERT_THAT(result.out, HasSubstr("libc.so.6")) << program;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_THAT(line, AnyOf(HasSubstr("linux-vdso"), HasSubstr("ld-linux"),
                              HasSubstr("libc.so.6"), HasSubstr("libm.so.6"),
                              HasSubstr("libpthread.so.0"), HasSubstr("libdl.so.2")))
          << program;
    }
  }
}

}  // namespace
}  // namespace nanwatch
