// SPDX-License-Identifier: Apache-2.0
// Has a process load the library by itself, at a point where that is safe.
//
// dlopen called just anywhere may find the thread inside malloc or the loader, holding a lock that
// dlopen wants: the process would hang for good. Two points are safe, and both are ordinary
// function calls:
//   - Where Python calls pthread_mutex_lock: to give the GIL back or to take it, on the way to each
//     op of torch's and each system call, in any thread (hook.h). Nobody is stopped.
//   - A pending call, which the main thread runs between two instructions of Python's. It is used
//     only where the main thread computes and comes to no such call for a while: it is then stopped
//     for a moment (borrow.h).
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "tools/late_call.h"

namespace nanwatch {

struct Injection {
  int pid = 0;
  bool free_threaded = false;  // a Python without a GIL
  LateCall call;
  std::chrono::milliseconds limit{10'000};
  std::function<void()> on_wait;  // called once, when it takes more than a second; may be empty
};

struct InjectionResult {
  bool called = false;  // nanwatch_entry_attach was called,
  int answer = -1;      // and answered so (shim/entry/attach.h)
  bool in_time = true;  // false: no thread came in time; the process is as it was
  std::string problem;  // when not called in time, a sentence's end; else ""
  int stops = 0;        // how often its main thread was stopped,
  std::chrono::nanoseconds stopped_max{0};  // and how long at most
  std::chrono::nanoseconds took{0};
};

// Signals that would end this process (SIGINT, SIGTERM, SIGHUP, SIGQUIT) are held back meanwhile:
// the hook is removed first. Killed by SIGKILL, it leaves a hook that does nothing.
[[nodiscard]] InjectionResult Inject(const Injection& injection);

}  // namespace nanwatch
