// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/small_file.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TEST(ProcFile, IsReadToItsEnd) {
  EXPECT_TRUE(TextOfProcFile("/proc/self/maps").ends_with('\n'));
  EXPECT_NE(TextOfProcFile("/proc/self/stat").find(") "), std::string::npos);
}

// As of a process that ends after the opening: read fails. Here because it is a directory.
TEST(ProcFile, ThatCannotBeReadIsNoException) {
  EXPECT_EQ(TextOfProcFile("/proc/self"), "");
  EXPECT_EQ(TextOfProcFile("/proc/self/nothing"), "");
}

}  // namespace
}  // namespace nanwatch
