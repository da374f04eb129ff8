// SPDX-License-Identifier: Apache-2.0
// Whether the library can be loaded into a running process, and how. Pure. Every refusal is a word
// for programs and a sentence that says what is in the way and what to do.
#pragma once

#include <string>
#include <vector>

#include "tools/process_facts.h"

namespace nanwatch {

enum class LateLoad {
  kNone,
  kRemoteExec,  // its own Python runs a script, by sys.remote_exec (3.14); it is never stopped
  kInject,      // a hook has one of its threads call dlopen (tools/inject)
};

// "remote_exec", "inject"; "" for kNone.
[[nodiscard]] const char* LateLoadName(LateLoad how);

struct LateLoadPlan {
  LateLoad how = LateLoad::kNone;
  std::string reason;   // when refused: "ptrace_scope", one word, for programs
  std::string problem;  // and the sentence for people
};

struct LateLoadWish {
  bool inject = false;                       // `--inject`: its memory may be written to
  std::string torch_version;                 // of the process's libtorch; "" unknown
  std::vector<std::string> observer_minors;  // for which there are observers here
};

[[nodiscard]] LateLoadPlan PlanLateLoad(const ProcessFacts& process, const HostFacts& host,
                                        const LateLoadWish& wish);

}  // namespace nanwatch
