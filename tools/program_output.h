// Runs a program that answers a question and ends.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tools/environment_block.h"

namespace nanwatch {

struct ProgramOutput {
  bool ended_well = false;  // exit status 0, in time
  bool timed_out = false;
  int still_running = 0;  // its pid, when it was asked to leave and did not; else 0
  std::string text;       // its stdout, at most 64 KiB
};

// For a program that must not be killed, because it has something to put back: its stderr is read
// with its stdout, and it does not get the signals of our terminal.
struct ProgramManners {
  // Has it leave, when its time is up or `cancel` is readable. Called once a second until it has,
  // for it may be asked before it can listen; 30 s at most.
  std::function<void()> ask_to_leave;
  int cancel = -1;  // a descriptor
};

// `argv[0]` is a path. stdin is empty and stderr dropped; killed after `timeout`, where no manners
// are given. The preload library is taken out of its environment.
[[nodiscard]] ProgramOutput RunAndRead(const std::vector<std::string>& argv,
                                       const EnvironmentBlock& outside,
                                       std::chrono::milliseconds timeout,
                                       const ProgramManners* manners = nullptr);

}  // namespace nanwatch
