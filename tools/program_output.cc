// SPDX-License-Identifier: Apache-2.0
#include "tools/program_output.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tools/preload.h"
#include "tools/start_process.h"

namespace nanwatch {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr size_t kTextMax = 64 * 1024;

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
  int error = 0;
  std::optional<Pipe> said = MakePipe(error);
  if (!said) return output;
  const StartedProcess started = StartProcess({.argv = argv,
                                               .environment = environment.Assignments(),
                                               .in = ProcessStart::kNothing,
                                               .out = said->writing.get(),
                                               .err = ProcessStart::kNothing});
  if (started.error != 0) return output;
  said->writing.Close();
  output.timed_out = !ReadToEnd(said->reading.get(), SteadyClock::now() + timeout, output.text);
  if (output.timed_out) kill(started.pid, SIGKILL);
  const std::optional<int> status = AwaitProcess(started.pid);
  output.ended_well = status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
  return output;
}

}  // namespace nanwatch
