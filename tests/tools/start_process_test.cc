// SPDX-License-Identifier: Apache-2.0
// Real processes: what a child has, and what is known of one that could not be started.
#include "tools/start_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

std::string ReadAll(const UniqueFd& fd) {
  std::string text;
  char part[256];
  for (ssize_t got; (got = read(fd.get(), part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(got));
  return text;
}

// What it writes to stdout, started as `start` says.
std::string OutputOf(ProcessStart start) {
  int error = 0;
  std::optional<Pipe> said = MakePipe(error);
  if (!said) return "no pipe";
  start.out = said->writing.get();
  const StartedProcess started = StartProcess(start);
  EXPECT_EQ(started.error, 0);
  said->writing.Close();
  std::string text = ReadAll(said->reading);
  EXPECT_EQ(AwaitProcess(started.pid), 0);
  return text;
}

// The same of /bin/sh with `script`.
std::string OutputOf(const std::string& script, ProcessStart start) {
  start.argv = {"/bin/sh", "-c", script};
  return OutputOf(std::move(start));
}

TEST(StartProcess, GivesTheEnvironmentAndNothingElse) {
  EXPECT_EQ(OutputOf("echo $A$HOME", {.environment = {"A=1"}}), "1\n");
}

TEST(StartProcess, NothingIsAnEmptyInputAndAnErrorOutputThatTakesAll) {
  EXPECT_EQ(OutputOf("cat; echo lost >&2; echo kept",
                     {.in = ProcessStart::kNothing, .err = ProcessStart::kNothing}),
            "kept\n");
}

TEST(StartProcess, ClosesOtherDescriptorsOnlyWhereThatIsAsked) {
  const UniqueFd open_for_all(open("/dev/null", O_RDONLY));  // exec does not close it
  const std::string script = "test -e /proc/self/fd/" + std::to_string(open_for_all.get()) +
                             " && echo open || echo closed";
  EXPECT_EQ(OutputOf(script, {}), "open\n");
  EXPECT_EQ(OutputOf(script, {.only_these_descriptors = true}), "closed\n");
}

TEST(StartProcess, GivesTheSignalsThatAreToBeBlocked) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  EXPECT_EQ(OutputOf("kill -TERM $$; echo alive", {.blocked = &blocked}), "alive\n");
}

// Of /proc/PID/status, "SigIgn:  0000000000010000".
bool IgnoresChildEnd(const std::string& line) {
  const size_t mask = line.find_first_of("0123456789abcdef", line.find(':'));
  return mask != std::string::npos &&
         (std::stoull(line.substr(mask), nullptr, 16) >> (SIGCHLD - 1) & 1) != 0;
}

TEST(StartProcess, GivesWhatIsToHappenWhenItsOwnChildrenEnd) {
  // No shell between: it has an action of its own.
  const std::vector<std::string> asks = {"/bin/grep", "SigIgn", "/proc/self/status"};
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  EXPECT_TRUE(IgnoresChildEnd(OutputOf({.argv = asks, .at_child_end = &ignored})));
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  EXPECT_FALSE(IgnoresChildEnd(OutputOf({.argv = asks, .at_child_end = &standard})));
}

TEST(StartProcess, LooksInPathOnlyWhereThatIsAsked) {
  EXPECT_EQ(StartProcess({.argv = {"true"}}).error, ENOENT);
  const StartedProcess started = StartProcess({.argv = {"true"}, .looks_in_path = true});
  EXPECT_EQ(started.error, 0);
  EXPECT_EQ(AwaitProcess(started.pid), 0);
}

TEST(StartProcess, WhatCannotBeExecutedIsKnownAtOnceAlsoWithoutOtherDescriptors) {
  TemporaryDirectory directory;
  const std::string script = directory.Write("train", "#!/nonexistent/interpreter\n", 0700);
  EXPECT_EQ(StartProcess({.argv = {script}, .only_these_descriptors = true}).error, ENOENT);
  EXPECT_EQ(StartProcess({.argv = {directory.Write("text", "", 0600)}}).error, EACCES);
}

// A tool may be started with its standard descriptors closed.
TEST(StartProcess, PipesStayClearOfStandardDescriptors) {
  const UniqueFd kept(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  close(STDIN_FILENO);
  int error = 0;
  const std::optional<Pipe> pipe = MakePipe(error);
  const bool is_free = fcntl(STDIN_FILENO, F_GETFD) < 0;
  if (kept.valid()) dup2(kept.get(), STDIN_FILENO);
  ASSERT_TRUE(pipe.has_value());
  EXPECT_GT(pipe->reading.get(), STDERR_FILENO);
  EXPECT_GT(pipe->writing.get(), STDERR_FILENO);
  EXPECT_TRUE(is_free);
}

}  // namespace
}  // namespace nanwatch
