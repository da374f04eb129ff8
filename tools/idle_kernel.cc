// SPDX-License-Identifier: Apache-2.0
#include "tools/idle_kernel.h"

#include <sys/syscall.h>
#include "daemon/base/small_file.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

namespace nanwatch {
namespace {

std::string ReadProc(int pid, const std::string& name) {
  return TextOfProcFile("/proc/" + std::to_string(pid) + "/" + name);
}

// The fields behind the program's name, which may hold anything: state, parent, ...
std::istringstream FieldsOf(const std::string& stat) {
  const size_t end = stat.rfind(')');
  return std::istringstream(end == std::string::npos ? "" : stat.substr(end + 1));
}

char StateOfMainThread(int pid) {
  char state = '?';
  FieldsOf(ReadProc(pid, "task/" + std::to_string(pid) + "/stat")) >> state;
  return state;
}

// Processor time of its main thread, in ticks.
uint64_t TicksOfMainThread(int pid) {
  std::istringstream fields = FieldsOf(ReadProc(pid, "task/" + std::to_string(pid) + "/stat"));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  uint64_t user = 0;
  uint64_t system = 0;
  fields >> user >> system;
  return user + system;
}

// System calls in which a process waits for input. Not every processor has the older ones.
constexpr auto kWaitsForInput = std::to_array<long>({
#ifdef SYS_poll
    SYS_poll,
#endif
#ifdef SYS_select
    SYS_select,
#endif
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
#ifdef SYS_read
    SYS_read,
#endif
    SYS_ppoll, SYS_pselect6, SYS_epoll_pwait});

// The same as /proc/PID/wchan names them.
constexpr auto kChannelsOfInput =
    std::to_array<std::string_view>({"poll", "select", "tty_read", "n_tty"});

// What the main thread waits for; nothing where the kernel does not say.
std::optional<bool> WaitsForInput(int pid) {
  const std::string call = ReadProc(pid, "task/" + std::to_string(pid) + "/syscall");
  if (!call.empty() && call.front() >= '0' && call.front() <= '9') {
    const long number = std::strtol(call.c_str(), nullptr, 10);
    return std::find(kWaitsForInput.begin(), kWaitsForInput.end(), number) != kWaitsForInput.end();
  }
  const std::string channel = ReadProc(pid, "task/" + std::to_string(pid) + "/wchan");
  if (channel.empty() || channel == "0") return std::nullopt;
  return std::any_of(kChannelsOfInput.begin(), kChannelsOfInput.end(), [&](std::string_view name) {
    return channel.find(name) != std::string::npos;
  });
}

}  // namespace

bool IsNotebookCommand(const std::string& cmdline) {
  std::istringstream words(cmdline);
  for (std::string word; std::getline(words, word, '\0');) {
    const std::string name = word.substr(word.rfind('/') + 1);
    // python -m ipykernel_launcher, python .../colab_kernel_launcher.py, ipython
    if (name.starts_with("ipykernel") || name.find("kernel_launcher") != std::string::npos ||
        name == "ipython" || name == "ipython3") {
      return true;
    }
  }
  return false;
}

IdleKernel::IdleKernel(int pid)
    : pid_(pid), is_notebook_(IsNotebookCommand(ReadProc(pid, "cmdline"))) {}

bool IdleKernel::Look(uint64_t now_ns) {
  if (!is_notebook_) return false;
  const uint64_t ticks = TicksOfMainThread(pid_);
  const bool waits = StateOfMainThread(pid_) == 'S' && WaitsForInput(pid_).value_or(true);
  if (!waits || ticks != ticks_ || since_ns_ == 0) {
    ticks_ = ticks;
    since_ns_ = waits ? now_ns : 0;
    return false;
  }
  return now_ns - since_ns_ >= kIdleNs;
}

}  // namespace nanwatch
