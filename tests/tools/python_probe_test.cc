// SPDX-License-Identifier: Apache-2.0
#include "tools/python_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/temporary_directory.h"
#include "tools/elf_interpreter.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TorchVersion, TheMinorIsTheFirstTwoNumbers) {
  EXPECT_EQ(MinorOf("2.11.0+cu130"), "2.11");
  EXPECT_EQ(MinorOf("2.6"), "2.6");
  EXPECT_EQ(MinorOf("2"), "");
  EXPECT_EQ(MinorOf(""), "");
  EXPECT_EQ(MinorOf("unknown"), "");
}

TEST(Observer, ItsFileNameSaysItsMinor) {
  EXPECT_EQ(ObserverMinor("libnanwatch_observer-2.11.so"), "2.11");
  EXPECT_EQ(ObserverMinor("libnanwatch_observer-2.11.so.bak"), "");
  EXPECT_EQ(ObserverMinor("libtorch.so"), "");
}

TEST(Observer, TheyAreListedByVersion) {
  TemporaryDirectory directory;
  for (const char* minor : {"2.10", "2.9", "2.6"})
    directory.Write("libnanwatch_observer-" + std::string(minor) + ".so", "", 0644);
  Installation installation;
  installation.observer_dir = directory.path();
  EXPECT_THAT(ObserverMinors(installation), ElementsAre("2.6", "2.9", "2.10"));
}

TEST(PythonProbe, AProgramThatIsNotThereIsExplained) {
  EXPECT_THAT(ProbePython("/nonexistent/python", EnvironmentBlock()).problem, HasSubstr("no file"));
}

TEST(PythonProbe, AProgramThatFailsIsNoPython) {
  EXPECT_THAT(ProbePython("/bin/false", EnvironmentBlock()).problem,
              HasSubstr("did not say which torch it has"));
}

TEST(PythonProbe, ReadsTheFiveAnswers) {
  TemporaryDirectory directory;
  const std::string python = directory.Write(
      "python",
      "#!/bin/sh\necho /v/bin/python\necho 3.11.2\necho 2.11.0+cpu\necho /v/torch\necho 2.31\n",
      0700);
  const PythonProbe probe = ProbePython(python, EnvironmentBlock({"PATH=/bin:/usr/bin"}));
  EXPECT_EQ(probe.problem, "");
  EXPECT_EQ(probe.python_version, "3.11.2");
  EXPECT_EQ(probe.torch_version, "2.11.0+cpu");
  EXPECT_EQ(probe.torch_dir, "/v/torch");
  EXPECT_EQ(probe.glibc, "2.31");
}

TEST(ElfInterpreter, OfADynamicProgramIsItsLoader) {
  EXPECT_THAT(ElfInterpreter("/proc/self/exe").value_or(""), HasSubstr("ld-linux"));
}

TEST(ElfInterpreter, OfTheLoaderItselfIsNone) {
  const std::string loader = ElfInterpreter("/proc/self/exe").value_or("");
  EXPECT_EQ(ElfInterpreter(loader), "");
}

TEST(ElfInterpreter, OfATextIsUnknown) {
  TemporaryDirectory directory;
  EXPECT_EQ(ElfInterpreter(directory.Write("script", "#!/bin/sh\n")), std::nullopt);
  EXPECT_EQ(ElfInterpreter(directory.Path("absent")), std::nullopt);
}

}  // namespace
}  // namespace nanwatch
