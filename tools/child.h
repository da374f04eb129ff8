// SPDX-License-Identifier: Apache-2.0
// The command that `run` watches over: started in our process group with our terminal, so that job
// control and Ctrl-C work as if it had been typed alone.
//
// Signals. From before the start until the end of the tool, the signals that end or steer a job are
// blocked here and taken one by one (SignalGate), so none is lost between two moments and no
// handler runs. What the kernel sent because of the terminal (Ctrl-C, hang-up) went to the whole
// group already and is not passed on; what a process sent to us alone is. A signal sent to the
// group by kill(2) may thus arrive twice, which is better than not at all. Dispositions stay as
// they were: a `nohup` outside still holds for the command.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tools/start_process.h"

namespace nanwatch {

// Blocks the signals on construction. One per process, before any thread is started; never undone
// except by DieBySignal, as the tool has nothing left to do then.
class SignalGate {
 public:
  SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  struct Arrival {
    int signal = 0;  // 0: none came in time
    bool from_terminal = false;
  };
  // The next signal, SIGCHLD included; waits as long as it takes.
  Arrival Next();
  // The next signal within `timeout`.
  Arrival Next(std::chrono::milliseconds timeout);

  // What the command is to have in place of ours.
  [[nodiscard]] const sigset_t& blocked_before() const { return mask_before_; }
  [[nodiscard]] const struct sigaction& at_child_end_before() const { return child_action_before_; }

 private:
  sigset_t waited_for_;
  sigset_t mask_before_;
  struct sigaction child_action_before_;
};

// How the command ended: exactly one of the two is meaningful.
struct CommandEnd {
  bool by_signal = false;
  int exit_code = 0;
  int signal = 0;
  bool asked_to_stop = false;  // a SIGTERM, SIGINT or SIGHUP came while it ran

  bool operator==(const CommandEnd&) const = default;
};

// Starts `argv`, looked up in PATH, with `environment` ("NAME=value").
[[nodiscard]] StartedProcess StartCommand(const SignalGate& gate,
                                          const std::vector<std::string>& argv,
                                          const std::vector<std::string>& environment);

// Waits until the command has ended, passing signals on.
[[nodiscard]] CommandEnd WaitForCommand(SignalGate& gate, pid_t pid);

// Ends this process the way the command ended. A signal is raised with core dumps off: the
// command's own core is the one that matters.
[[noreturn]] void EndLike(const CommandEnd& end);

}  // namespace nanwatch
