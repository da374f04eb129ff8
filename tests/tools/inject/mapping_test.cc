// SPDX-License-Identifier: Apache-2.0
// /proc/PID/maps, as the kernel writes it and as it never should.
#include "tools/inject/mapping.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TEST(Mappings, AreReadWithTheirRightsAndPaths) {
  const Mappings mappings = ParseMappings(
      "00400000-00401000 r-xp 00001000 08:01 7    /usr/bin/a b (deleted)\n"
      "7f00-7f01 rw-p 00000000 00:00 0\n"
      "7ffc0000-7ffd0000 rw-p 00000000 00:00 0          [stack]\n");
  ASSERT_EQ(mappings.size(), 3u);
  EXPECT_EQ(mappings[0], (Mapping{.begin = 0x400000,
                                  .end = 0x401000,
                                  .offset = 0x1000,
                                  .readable = true,
                                  .writable = false,
                                  .executable = true,
                                  .path = "/usr/bin/a b (deleted)"}));
  EXPECT_EQ(mappings[1].path, "");
  EXPECT_TRUE(mappings[1].writable);
  EXPECT_EQ(mappings[2].path, "[stack]");
}

TEST(Mappings, LeaveOutLinesThatMakeNoSense) {
  for (const char* line : {"", "\n", "x", "7f00", "7f00-", "7f00-7f01", "7f01-7f00 r-xp 0 0:0 0 /a",
                           "7f00-7f01 r", "7f00-7f01 r-xp", "7f00-7f01 r-xp ",
                           "7f00-7f01 r-xp z 0:0 0 /a", "11111111111111111-7f01 r-xp 0 0:0 0 /a"}) {
    EXPECT_EQ(ParseMappings(line), Mappings()) << line;
  }
  // Cut off in the middle of what nobody needs.
  EXPECT_EQ(ParseMappings("7f00-7f01 r-xp 0 ").size(), 1u);
  EXPECT_EQ(ParseMappings("7f00-7f01 r-xp 0 08:01").size(), 1u);
}

TEST(Mappings, AreFoundByAddress) {
  const Mappings mappings = ParseMappings("1000-2000 r-xp 0 0:0 0 /a\n3000-4000 r-xp 0 0:0 0 /b\n");
  EXPECT_EQ(MappingAt(mappings, 0xfff), nullptr);
  ASSERT_NE(MappingAt(mappings, 0x1000), nullptr);
  EXPECT_EQ(MappingAt(mappings, 0x1fff)->path, "/a");
  EXPECT_EQ(MappingAt(mappings, 0x2000), nullptr);
  EXPECT_EQ(MappingAt(mappings, 0x3000)->path, "/b");
}

}  // namespace
}  // namespace nanwatch
