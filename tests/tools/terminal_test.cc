// SPDX-License-Identifier: Apache-2.0
#include "tools/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "daemon/base/unique_fd.h"

namespace nanwatch {
namespace {

int ColumnsOnATerminalOf(unsigned short columns) {
  int own = -1, terminal = -1;
  winsize size{};
  size.ws_row = 24;
  size.ws_col = columns;
  EXPECT_EQ(openpty(&own, &terminal, nullptr, nullptr, &size), 0);
  const UniqueFd held(own), other(terminal);
  return ReportColumns(terminal);
}

TEST(ReportColumns, AreThoseOfTheTerminalUpToAHundredAndTwenty) {
  EXPECT_EQ(ColumnsOnATerminalOf(80), 80);
  EXPECT_EQ(ColumnsOnATerminalOf(117), 117);
  EXPECT_EQ(ColumnsOnATerminalOf(300), 120);
  EXPECT_EQ(ColumnsOnATerminalOf(20), 60) << "narrower, nothing can be read";
  EXPECT_EQ(ColumnsOnATerminalOf(0), 100) << "a terminal that does not know";
}

TEST(ReportColumns, OfAPipeAreAHundred) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  EXPECT_EQ(ReportColumns(writing.get()), 100);
}

}  // namespace
}  // namespace nanwatch
