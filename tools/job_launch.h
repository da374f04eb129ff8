// SPDX-License-Identifier: Apache-2.0
// What `run` gives to the command: the checks that happen before anything is started, and the
// environment in which the command finds the preload library. Functions of their arguments.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/environment_block.h"
#include "tools/installation.h"

namespace nanwatch {

struct RunOptions {
  std::string level;    // "": NANWATCH_LEVEL, else what the library chooses
  std::string budget;   // percent of step time, as typed; "": NANWATCH_BUDGET, else none
  std::string stats;    // steps between snapshots, as typed; "": NANWATCH_STATS, else the default
  std::string measure;  // percent of the steps, as typed; "": NANWATCH_MEASURE, else none
  std::string on_anomaly;           // "": NANWATCH_ON_ANOMALY, else continue
  bool vet_checkpoints = false;     // NANWATCH_VET_CHECKPOINTS=1
  std::string capsule;              // "": NANWATCH_CAPSULE, else off
  std::string capsule_limit;        // bytes of one, as typed; "": the default
  bool kernels = false;             // otherwise as NANWATCH_KERNELS says
  std::vector<std::string> ignore;  // --ignore, as typed: rules, or '@' and a file
  std::string verdict_path;         // "": none; "-": stdout
  bool json = false;
  std::vector<std::string> command;

  // The variables that a configuration file has set, and how the user knows them.
  std::map<std::string, std::string> configured;

  bool operator==(const RunOptions&) const = default;
};

// The first problem with how `run` was called or with its environment variables, as a sentence that
// says what to do; "" if there is none.
[[nodiscard]] std::string FindWrongUse(const RunOptions& options, const EnvironmentBlock& outside);

struct JobLaunch {
  EnvironmentBlock environment;  // for the command
  std::string job;
  std::vector<std::string> notes;  // what the user should know, one sentence each
  bool observed = false;           // false: the command runs without us, and a note says why
  // Of a command that is not observed, as UnwatchedProcess has them.
  std::string reason;
  std::string detail;
};

// `outside` with the preload library, the job's id (`fresh_job` unless NANWATCH_JOB says otherwise)
// and the options added. Whatever is wrong here costs observation, never the job.
[[nodiscard]] JobLaunch PlanLaunch(const RunOptions& options, const EnvironmentBlock& outside,
                                   const Installation& installation, const std::string& fresh_job);

// The command runs without us because of `detail`; `remedy` says what to do ("": `detail` does).
// Changes nothing in the environment.
void LeaveUnobserved(const std::string& detail, const std::string& remedy, JobLaunch& launch);

// Twelve random hexadecimal digits.
[[nodiscard]] std::string RandomJobId();

}  // namespace nanwatch
