// SPDX-License-Identifier: Apache-2.0
#include "tools/start_process.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace nanwatch {
namespace {

constexpr int kFirstOwn = STDERR_FILENO + 1;

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Moves a pipe's end out of the way of stdin, stdout and stderr.
bool MoveUp(UniqueFd& fd) {
  if (fd.get() >= kFirstOwn) return true;
  fd = UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirstOwn));
  return fd.valid();
}

// ---- in the child: async-signal-safe from here to the exec

void SetDescriptor(int target, int asked) {
  if (asked == ProcessStart::kNothing) {
    const int nothing = open("/dev/null", O_RDWR);
    if (nothing == target) return;
    dup2(nothing, target);
    close(nothing);
  } else if (asked != ProcessStart::kOurs) {
    dup2(asked, target);
  }
}

// Leaves `report` open, as the first after the standard ones. Linux before 5.9 closes none: then
// only ours go, at the exec.
int CloseOthers(int report) {
  if (report != kFirstOwn && dup3(report, kFirstOwn, O_CLOEXEC) < 0) return report;
  syscall(SYS_close_range, static_cast<unsigned>(kFirstOwn) + 1, ~0U, 0U);
  return kFirstOwn;
}

[[noreturn]] void Become(const ProcessStart& start, char* const* argv, char* const* environment,
                         int report) {
  if (start.at_child_end != nullptr) sigaction(SIGCHLD, start.at_child_end, nullptr);
  if (start.blocked != nullptr) sigprocmask(SIG_SETMASK, start.blocked, nullptr);
  SetDescriptor(STDIN_FILENO, start.in);
  SetDescriptor(STDOUT_FILENO, start.out);
  SetDescriptor(STDERR_FILENO, start.err);
  if (start.only_these_descriptors) report = CloseOthers(report);
  if (start.looks_in_path) {
    execvpe(argv[0], argv, environment);
  } else {
    execve(argv[0], argv, environment);
  }
  const int error = errno;
  (void)!write(report, &error, sizeof error);
  _exit(127);
}

}  // namespace

std::optional<Pipe> MakePipe(int& error) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    error = errno;
    return std::nullopt;
  }
  Pipe pipe{.reading = UniqueFd(ends[0]), .writing = UniqueFd(ends[1])};
  if (MoveUp(pipe.reading) && MoveUp(pipe.writing)) return pipe;
  error = errno;
  return std::nullopt;
}

// fork and not posix_spawn, which cannot give the child another disposition of SIGCHLD than ours,
// nor run a script without an interpreter's line as a shell does.
StartedProcess StartProcess(const ProcessStart& start) {
  const std::vector<char*> argv = Pointers(start.argv);
  const std::vector<char*> environment = Pointers(start.environment);
  StartedProcess started;
  // Carries errno of a failed exec; closed by a successful one.
  std::optional<Pipe> report = MakePipe(started.error);
  if (!report) return started;
  const pid_t pid = fork();
  if (pid < 0) return {.error = errno};
  if (pid == 0) Become(start, argv.data(), environment.data(), report->writing.get());
  report->writing.Close();
  ssize_t got;
  do {
    got = read(report->reading.get(), &started.error, sizeof started.error);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof started.error)) {
    AwaitProcess(pid);
    return {.error = started.error};
  }
  return {.pid = pid};
}

std::optional<int> AwaitProcess(pid_t pid) {
  int status = 0;
  pid_t ended;
  do {
    ended = waitpid(pid, &status, 0);
  } while (ended < 0 && errno == EINTR);
  return ended == pid ? std::optional<int>(status) : std::nullopt;
}

}  // namespace nanwatch
