// SPDX-License-Identifier: Apache-2.0
// The command as a child: real processes and real signals. The gate blocks signals for the whole
// process, so every case runs in a child of the test.
#include "tools/child.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "tests/tools/temporary_directory.h"
#include "tools/environment_block.h"

namespace nanwatch {
namespace {

// Runs `body` in a process of its own; its wait status, or -1 when it did not end within a minute.
int InAnotherProcess(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    body();
    _exit(99);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

void WatchOver(const std::vector<std::string>& argv) {
  SignalGate gate;
  const StartedProcess start =
      StartCommand(gate, argv, EnvironmentBlock::OfThisProcess().Assignments());
  if (start.error != 0) _exit(98);
  EndLike(WaitForCommand(gate, start.pid));
}

int StatusOf(const std::string& script) {
  return InAnotherProcess([&] { WatchOver({"/bin/sh", "-c", script}); });
}

TEST(Child, ItsExitStatusIsPassedOn) {
  for (const int code : {0, 1, 7, 255}) {
    const int status = StatusOf("exit " + std::to_string(code));
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), code);
  }
}

TEST(Child, TheSignalThatEndedItEndsUs) {
  for (const int signal : {SIGSEGV, SIGKILL, SIGTERM, SIGABRT}) {
    const int status = StatusOf("kill -" + std::to_string(signal) + " $$");
    EXPECT_TRUE(WIFSIGNALED(status)) << signal;
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_FALSE(WCOREDUMP(status));
  }
}

// The script tells by a file that its trap is set; then its parent, the tool, is signalled alone.
int StatusAfterSignalling(int signal, const std::string& trap) {
  TemporaryDirectory directory;
  const std::string ready = directory.Path("ready");
  const std::string script = "trap '" + trap + "' " + std::to_string(signal) + "; touch " + ready +
                             "; i=0; while [ $i -lt 3000 ]; do sleep 0.02; i=$((i+1)); done";
  return InAnotherProcess([&] {
    const pid_t tool = getpid();
    if (fork() == 0) {
      while (access(ready.c_str(), F_OK) != 0) {
        if (getppid() != tool) _exit(1);  // its alarm, which is not ours, has ended it
        usleep(2000);
      }
      kill(tool, signal);
      _exit(0);
    }
    WatchOver({"/bin/sh", "-c", script});
  });
}

TEST(Child, SignalsSentToUsAloneReachIt) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    const int status = StatusAfterSignalling(signal, "exit 42");
    EXPECT_TRUE(WIFEXITED(status)) << signal;
    EXPECT_EQ(WEXITSTATUS(status), 42) << signal;
  }
}

TEST(Child, ThatItWasAskedToStopIsRemembered) {
  const int status = InAnotherProcess([] {
    SignalGate gate;
    const StartedProcess start = StartCommand(gate, {"/bin/sleep", "60"}, {});
    kill(getpid(), SIGTERM);
    const CommandEnd end = WaitForCommand(gate, start.pid);
    _exit(end.asked_to_stop && end.by_signal && end.signal == SIGTERM ? 0 : 1);
  });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Child, IgnoredSignalsStayIgnoredForIt) {
  const int status = InAnotherProcess([] {
    signal(SIGHUP, SIG_IGN);  // as nohup does
    WatchOver({"/bin/sh", "-c", "kill -HUP $$; exit 5"});
  });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 5);
}

TEST(Child, StartsWithTheSignalMaskWeWereStartedWith) {
  // A blocked SIGTERM would leave the shell alive, to exit 6.
  const int status = StatusOf("kill -TERM $$; exit 6");
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(Child, IsWaitedForEvenWhereChildrenAreIgnored) {
  const int status = InAnotherProcess([] {
    signal(SIGCHLD, SIG_IGN);
    WatchOver({"/bin/sh", "-c", "exit 7"});
  });
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Child, StaysInOurProcessGroup) {
  const int status = InAnotherProcess([] {
    WatchOver({"/bin/sh", "-c",
               "test \"$(ps -o pgid= -p $$)\" = \"$(ps -o pgid= -p $PPID)\" && exit 3; exit 4"});
  });
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST(Child, WhatCannotBeExecutedIsKnownAtOnce) {
  TemporaryDirectory directory;
  const std::string script = directory.Write("train", "#!/nonexistent/interpreter\n", 0700);
  const int status = InAnotherProcess([&] {
    SignalGate gate;
    _exit(StartCommand(gate, {script}, {}).error == ENOENT ? 0 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace nanwatch
