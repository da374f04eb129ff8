// SPDX-License-Identifier: Apache-2.0
#include "tools/daemon_start.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "daemon/base/directories.h"
#include "tools/preload.h"
#include "tools/start_process.h"

namespace nanwatch {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kStartTimeout{10};
constexpr char kIdleExitSeconds[] = "60";

EnvironmentBlock ForDaemon(EnvironmentBlock environment) {
  const std::string preload = WithoutNanwatch(environment.Text("LD_PRELOAD"));
  if (preload.empty()) {
    environment.Unset("LD_PRELOAD");
  } else {
    environment.Set("LD_PRELOAD", preload);
  }
  return environment;
}

// Waits for the process that was started to hand over to the one in the background; collects its
// words. Does not wait for the end of the pipe, which the daemon may keep open.
bool AwaitHandover(pid_t pid, int words_fd, std::string& words, int& status) {
  const SteadyClock::time_point deadline = SteadyClock::now() + kStartTimeout;
  char text[4096];
  while (SteadyClock::now() < deadline) {
    const bool ended = waitpid(pid, &status, WNOHANG) == pid;
    pollfd readable = {.fd = words_fd, .events = POLLIN, .revents = 0};
    while (poll(&readable, 1, ended ? 0 : 20) > 0) {
      const ssize_t got = read(words_fd, text, sizeof text);
      if (got <= 0) {
        if (!ended)
          poll(nullptr, 0, 20);  // its end is closed: nothing more will come but the status
        break;
      }
      words.append(text, static_cast<size_t>(got));
    }
    if (ended) return true;
  }
  return false;
}

// Without the name of the program, which the sentence around it says.
std::string FirstLine(const std::string& words) {
  constexpr std::string_view kName = "nanwatchd: ";
  const size_t begin = words.starts_with(kName) ? kName.size() : 0;
  return words.substr(begin, words.find('\n') - begin);
}

}  // namespace

std::optional<pid_t> RunningDaemon(const std::string& segment_dir) {
  const std::string path = DaemonLockPath(segment_dir);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return std::nullopt;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const bool asked = fcntl(fd, F_GETLK, &lock) == 0;
  close(fd);
  if (!asked || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

std::string StartDaemon(const Installation& installation, const EnvironmentBlock& outside,
                        const std::string& segment_dir) {
  if (access(installation.daemon.c_str(), X_OK) != 0) {
    return "there is no " + installation.daemon;
  }
  StartedProcess started;
  std::optional<Pipe> said = MakePipe(started.error);
  if (!said) return strerror(started.error);
  // What the tool blocks to pass on to the job, the daemon needs for itself.
  sigset_t none;
  sigemptyset(&none);
  started =
      StartProcess({.argv = {installation.daemon, "--detach", "--idle-exit", kIdleExitSeconds},
                    .environment = ForDaemon(outside).Assignments(),
                    .in = ProcessStart::kNothing,
                    .out = ProcessStart::kNothing,
                    .err = said->writing.get(),
                    .only_these_descriptors = true,
                    .blocked = &none});
  if (started.error != 0) return strerror(started.error);
  said->writing.Close();
  std::string words;
  int status = 0;
  const bool handed_over = AwaitHandover(started.pid, said->reading.get(), words, status);
  if (!handed_over) return "it was not ready within 10 s";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (RunningDaemon(segment_dir).has_value()) return "";  // somebody else was faster
  return words.empty() ? "it ended at once without an error message" : FirstLine(words);
}

}  // namespace nanwatch
