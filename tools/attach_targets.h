// SPDX-License-Identifier: Apache-2.0
// Which processes `attach` and `detach` mean, and why there are none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "tools/idle_kernel.h"
#include "tools/level_request.h"
#include "tools/observations.h"

namespace nanwatch {

struct AttachOptions {
  std::string target;  // pid, run, or the beginning of a run's id
  std::string job;
  int rank = -1;
  bool all = false;
  std::string level = "full";
  double for_s = 0;
  double wait_s = 10;
  bool stacks = false;
  bool inject = false;
  bool may_load = false;  // `attach`: a process without the library gets it
  bool json = false;
};

// One process and what became of the request.
struct AttachTarget {
  SeenRun run;
  std::optional<LevelRequest> request;
  std::string problem;  // "" none
  std::optional<uint64_t> applied_after_ns;
  // A notebook that runs no cell: the request stays, and attach does not wait for it.
  std::optional<IdleKernel> kernel;
  bool idle = false;

  [[nodiscard]] bool Accepted() const { return applied_after_ns.has_value() || idle; }
};

// Why nobody was asked: a word for programs, and a sentence.
struct Refusal {
  std::string reason;
  std::string problem;
};

// Live runs that the options mean. Several, where the target is the beginning of their ids.
[[nodiscard]] std::vector<AttachTarget> FindTargets(const AttachOptions& options,
                                                    Observations& observations);

// Leaves the process that `target` names: a number is a process before it is the beginning of a
// run's id, and that must be one run's. kAmbiguous otherwise.
[[nodiscard]] Status ChooseOne(const std::string& target, std::vector<AttachTarget>& targets);

// The process that the target names by its number; nothing when it is no number of a process.
[[nodiscard]] std::optional<int> PidOf(const std::string& target);

// Why what somebody means is not among the live runs, and cannot be made one of them either;
// nothing where the library may be brought into it.
[[nodiscard]] std::optional<Refusal> WhyNotFound(const AttachOptions& options,
                                                 Observations& observations);

}  // namespace nanwatch
