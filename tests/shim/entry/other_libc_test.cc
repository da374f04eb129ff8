// SPDX-License-Identifier: Apache-2.0
// Programs that we cannot observe are as they were: static ones, those of musl, and libraries that
// see their own dlopen before ours (RTLD_DEEPBIND). `nanwatch run` says that nothing was observed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shim/entry/scene.h"

namespace nanwatch::test {
namespace {

using ::testing::IsEmpty;

constexpr char kPrograms[] = NANWATCH_TEST_PROGRAMS;

void ExpectAsItWas(const std::string& program) {
  Scene scene;
  scene.Observer("2.11");
  const std::vector<std::string> command = {std::string(kPrograms) + "/" + program,
                                            scene.TorchPackage("2.11.0"), "no such library"};
  const Ran bare = scene.Run(command);
  const Ran preloaded = scene.RunPreloaded(command);
  EXPECT_EQ(bare.status, 7) << bare.err;
  EXPECT_EQ(preloaded.status, bare.status);
  EXPECT_EQ(preloaded.out, bare.out);
  EXPECT_EQ(preloaded.err, bare.err);
  EXPECT_THAT(preloaded.log, IsEmpty());
}

TEST(OtherLibc, AStaticProgramIsAsItWas) { ExpectAsItWas("plain_static"); }

// Its loader ends a process whose preloaded library asks for a symbol that musl does not have.
TEST(OtherLibc, AProgramOfMuslIsAsItWas) {
  if (!std::filesystem::exists(std::string(kPrograms) + "/plain_musl"))
    GTEST_SKIP() << "NOT TESTED: no musl-gcc (Debian: musl-tools) when this was built";
  ExpectAsItWas("plain_musl");
}

TEST(OtherLibc, AStaticProgramOfMuslIsAsItWas) {
  if (!std::filesystem::exists(std::string(kPrograms) + "/plain_musl_static"))
    GTEST_SKIP() << "NOT TESTED: no musl-gcc (Debian: musl-tools) when this was built";
  ExpectAsItWas("plain_musl_static");
}

// The torch that it opens is not seen; the next that anybody opens is.
TEST(DeepBind, ALibraryThatOpensTorchIsAsItWasAndTheNextSignIsSeen) {
  Scene scene;
  scene.Observer("2.11");
  const std::string torch = scene.TorchPackage("2.11.0");
  const std::string opener = std::string(kPrograms) + "/libdeep_opener.so";
  const std::vector<std::string> words = {"deep", opener, torch, "during", "threads"};
  const Ran ran = scene.Host(words);
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "deep ok\nduring threads=1 on_main=1 constructed=1\nthreads 1\n");
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(ran.log, IsEmpty());
  const Ran seen = scene.Host({"deep", opener, torch, "open", torch, "said", "1"});
  EXPECT_EQ(seen.status, 0) << seen.out;
  EXPECT_EQ(seen.log.size(), 1u);
}

}  // namespace
}  // namespace nanwatch::test
