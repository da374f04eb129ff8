#include "tools/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/base/unique_fd.h"
#include "tools/preload.h"

namespace nanwatch {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr size_t kTextMax = 64 * 1024;

[[noreturn]] void Become(const std::vector<char*>& argv, const std::vector<char*>& variables,
                         int out) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(nothing, STDERR_FILENO);
  execve(argv[0], argv.data(), variables.data());
  _exit(127);
}

// Reads until the end of the pipe; false when that took too long.
bool ReadToEnd(int fd, SteadyClock::time_point deadline, std::string& text) {
  char part[4096];
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
    pollfd readable = {.fd = fd, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) == 0) return false;
    const ssize_t got = read(fd, part, sizeof part);
    if (got <= 0) return true;
    text.append(part, std::min(static_cast<size_t>(got), kTextMax - text.size()));
  }
}

}  // namespace

ProgramOutput RunAndRead(const std::vector<std::string>& argv, const EnvironmentBlock& outside,
                         std::chrono::milliseconds timeout) {
  ProgramOutput output;
  EnvironmentBlock environment = outside;
  environment.Set("LD_PRELOAD", WithoutNanwatch(outside.Text("LD_PRELOAD")));
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::vector<char*> variables;
  for (const std::string& entry : environment.Assignments()) {
    variables.push_back(const_cast<char*>(entry.c_str()));
  }
  variables.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return output;
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return output;
  if (pid == 0) Become(words, variables, writing.get());
  writing.Close();
  output.timed_out = !ReadToEnd(reading.get(), SteadyClock::now() + timeout, output.text);
  if (output.timed_out) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  output.ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return output;
}

}  // namespace nanwatch
