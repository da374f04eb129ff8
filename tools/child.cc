// SPDX-License-Identifier: Apache-2.0
#include "tools/child.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace nanwatch {
namespace {

constexpr int kPassedOn[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
                             SIGUSR2, SIGCONT, SIGTSTP, SIGXCPU};

// A stop by job control stops us as well, so that the shell sees it. SIGSTOP does not: whoever
// sends it to the command alone will continue the command alone.
bool IsJobControlStop(int signal) {
  return signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

// Takes in what happened to the command; true once it has ended.
bool Reap(pid_t pid, CommandEnd& end) {
  int status = 0;
  while (true) {
    const pid_t changed = waitpid(pid, &status, WNOHANG | WUNTRACED);
    if (changed < 0 && errno == EINTR) continue;
    if (changed < 0) {
      end.exit_code = 1;  // somebody else reaped it: how it ended cannot be known
      return true;
    }
    if (changed == 0) return false;
    if (!WIFSTOPPED(status)) break;
    if (IsJobControlStop(WSTOPSIG(status))) raise(SIGSTOP);
  }
  end.by_signal = WIFSIGNALED(status);
  if (end.by_signal) {
    end.signal = WTERMSIG(status);
  } else {
    end.exit_code = WEXITSTATUS(status);
  }
  return true;
}

SignalGate::Arrival Describe(int signal, const siginfo_t& info) {
  if (signal < 0) return {};
  return {.signal = signal, .from_terminal = info.si_code == SI_KERNEL};
}

}  // namespace

SignalGate::SignalGate() {
  sigemptyset(&waited_for_);
  for (const int signal : kPassedOn) sigaddset(&waited_for_, signal);
  sigaddset(&waited_for_, SIGCHLD);
  sigprocmask(SIG_BLOCK, &waited_for_, &mask_before_);
  // Children of a process that ignores SIGCHLD vanish without a status.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &child_action_before_);
}

SignalGate::Arrival SignalGate::Next() {
  siginfo_t info = {};
  return Describe(sigwaitinfo(&waited_for_, &info), info);
}

SignalGate::Arrival SignalGate::Next(std::chrono::milliseconds timeout) {
  const timespec wait = {.tv_sec = timeout.count() / 1000,
                         .tv_nsec = timeout.count() % 1000 * 1'000'000};
  siginfo_t info = {};
  return Describe(sigtimedwait(&waited_for_, &info, &wait), info);
}

StartedProcess StartCommand(const SignalGate& gate, const std::vector<std::string>& argv,
                            const std::vector<std::string>& environment) {
  return StartProcess({.argv = argv,
                       .environment = environment,
                       .looks_in_path = true,
                       .blocked = &gate.blocked_before(),
                       .at_child_end = &gate.at_child_end_before()});
}

CommandEnd WaitForCommand(SignalGate& gate, pid_t pid) {
  CommandEnd end;
  while (!Reap(pid, end)) {
    const SignalGate::Arrival arrival = gate.Next();
    const int signal = arrival.signal;
    if (signal == 0 || signal == SIGCHLD) continue;
    end.asked_to_stop |= signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
    if (!arrival.from_terminal) kill(pid, signal);
  }
  return end;
}

void EndLike(const CommandEnd& end) {
  if (!end.by_signal) _exit(end.exit_code);
  const rlimit no_core = {.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &no_core);
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(end.signal, &standard, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, end.signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  kill(getpid(), end.signal);
  _exit(128 + end.signal);  // a signal that does not end a process by default
}

}  // namespace nanwatch
