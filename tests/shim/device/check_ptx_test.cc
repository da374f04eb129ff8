// SPDX-License-Identifier: Apache-2.0
// The text of the kernels as a program finds it: whole, and ended by a zero. And their binary.
#include "shim/device/check_ptx.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

#include "shim/device/check_binary.h"

namespace nanwatch::device {
namespace {

using namespace std::string_view_literals;

TEST(CheckPtx, IsTheWholeTextEndedByAZero) {
  const KernelText ptx = CheckPtx();
  const std::string_view text(ptx.text, ptx.text_bytes);
  EXPECT_EQ(ptx.text[ptx.text_bytes], '\0');
  EXPECT_EQ(text.find('\0'), std::string_view::npos);
  EXPECT_TRUE(text.ends_with("\n}\n"sv)) << text.substr(text.size() - 20);
  for (const auto kernel :
       {"nanwatch_check_few("sv, "nanwatch_check_many("sv, "nanwatch_check_list("sv,
        "nanwatch_sum_list("sv, "nanwatch_measure_list("sv, "nanwatch_compare_list("sv,
        "nanwatch_check_batch("sv, "nanwatch_add_step("sv}) {
    EXPECT_NE(text.find(".visible .entry " + std::string(kernel)), std::string_view::npos)
        << kernel;
  }
}

TEST(CheckPtx, AsksForNoNewerDriverOrGpuThanPromised) {
  const KernelText ptx = CheckPtx();
  const std::string_view text(ptx.text, ptx.text_bytes);
  EXPECT_NE(text.find("\n.version 6.0\n.target sm_70\n"), std::string_view::npos);
}

TEST(CheckBinary, IsAFatBinaryWhereThereIsOne) {
  const void* binary = CheckBinary();
  if (binary == nullptr) GTEST_SKIP() << "this build found no assembler of NVIDIA's";
  uint32_t magic = 0;
  std::memcpy(&magic, binary, sizeof magic);
  EXPECT_EQ(magic, 0xba55ed50u);
}

}  // namespace
}  // namespace nanwatch::device
