// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "shim/device/driver.h"

namespace nanwatch::device {
namespace {

TEST(DriverOfProcess, IsNothingWhereNoneIsLoadedAndLoadsNone) {
  EXPECT_FALSE(DriverOfProcess().has_value());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    EXPECT_EQ(line.find("libcuda"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace nanwatch::device
