// Lets a process load the library by gdb, at a point where that is safe.
//
// dlopen called just anywhere may find the thread inside malloc or the loader, holding a lock that
// dlopen wants: the process would hang for good. So the process is stopped, breakpoints are set on
// functions that are entered with the GIL held and nothing else, and it goes on until a thread
// comes to one of them:
//   PyEval_SaveThread    on the way to each op of torch's, in any thread
//   PyCallable_Check     by a pending call, which the main thread runs between two instructions of
//                        Python's; nothing else need happen there
// Only then dlopen is called there, all other threads running on, so that one that holds the
// loader's lock can give it back. (memray does the same, with malloc among its points.)
//
// What the script takes care of, some of it learned from memray and heaptrack, some here:
//   no symbols but libc's and Python's are read (libtorch's take seconds, while the process
//   stands),
//     and none are downloaded;
//   no breakpoint is in while something is called: another thread that came to it would have gdb
//     abandon the call in the middle (the process then died);
//   signals go through to the process, and none stops a call. SIGSTOP alone ends the waiting, and
//     does not reach the process: it is how we have gdb leave. SIGTERM would have it leave its
//     breakpoints behind (gdb 13), and the process die of the next one.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/environment_block.h"

namespace nanwatch {

// What the process is to call, once it has the library.
struct LateCall {
  std::string library;
  std::string level;
  std::string directory;
  std::string answers;
};

// gdb's commands, one a line.
[[nodiscard]] std::string DebuggerScript(const LateCall& call);

struct DebuggerResult {
  bool called = false;  // nanwatch_entry_attach was called,
  int answer = -1;      // and answered so (shim/entry/attach.h)
  bool in_time = true;
  int debugger_left = 0;  // gdb's pid, when it would not leave; else 0
  std::string problem;    // a sentence, when it was not called in time; else ""
};

// What gdb's output says became of it.
[[nodiscard]] DebuggerResult ReadDebuggerOutput(const std::string& output);

// Runs gdb on `pid`. When no such point is reached within `limit`, gdb takes its breakpoints out
// again and leaves: the process runs on as before. So it does when we are to end (SIGINT, SIGTERM,
// SIGHUP), which then happens. gdb is never killed; where this process is, it stays until the point
// is reached.
[[nodiscard]] DebuggerResult LoadByDebugger(const std::string& gdb, int pid, const LateCall& call,
                                            const EnvironmentBlock& outside,
                                            std::chrono::milliseconds limit);

}  // namespace nanwatch
