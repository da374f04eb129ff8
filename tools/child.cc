#include "tools/child.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace nanwatch {
namespace {

constexpr int kPassedOn[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
                             SIGUSR2, SIGCONT, SIGTSTP, SIGXCPU};

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

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

void SignalGate::RestoreInChild() const {
  sigaction(SIGCHLD, &child_action_before_, nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

CommandStart StartCommand(const SignalGate& gate, const std::vector<std::string>& argv,
                          const std::vector<std::string>& environment) {
  const std::vector<char*> arguments = Pointers(argv);
  const std::vector<char*> variables = Pointers(environment);
  int report[2];  // carries errno of a failed exec; closed by a successful one
  if (pipe2(report, O_CLOEXEC) != 0) return {.error = errno};
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    close(report[0]);
    close(report[1]);
    return {.error = error};
  }
  if (pid == 0) {
    gate.RestoreInChild();
    execvpe(arguments[0], arguments.data(), variables.data());
    const int error = errno;
    (void)!write(report[1], &error, sizeof error);
    _exit(127);
  }
  close(report[1]);
  int error = 0;
  ssize_t got;
  do {
    got = read(report[0], &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  if (got == static_cast<ssize_t>(sizeof error)) {
    waitpid(pid, nullptr, 0);
    return {.error = error};
  }
  return {.pid = pid};
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
