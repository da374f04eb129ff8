// SPDX-License-Identifier: Apache-2.0
#include "tools/job_launch.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "daemon/base/command_line.h"
#include "proto/wire/capsule.h"
#include "proto/wire/naming.h"
#include "tools/preload.h"

namespace nanwatch {
namespace {

const std::vector<std::string> kLevelNames = {"idle", "canary", "sampled", "full", "auto"};
const std::vector<std::string> kOnAnomaly = {"continue", "stop"};
const std::vector<std::string> kCapsuleKinds = {"off", "op"};
const std::vector<std::string> kSwitch = {"0", "1"};
constexpr size_t kJobLengthMax = 63;  // what a segment's header has room for

std::string FindWrongWord(std::string_view where, const std::string& typed,
                          const std::vector<std::string>& words) {
  if (typed.empty() || std::find(words.begin(), words.end(), typed) != words.end()) return "";
  const std::string near = NearestWord(typed, words);
  return fmt::format("{} is '{}': {} {}", where, typed,
                     near.empty() ? "use one of" : "did you mean '" + near + "'? Use one of",
                     fmt::join(words, ", "));
}

std::string FindWrongBudget(std::string_view where, std::string typed) {
  if (typed.empty()) return "";
  if (typed.ends_with('%')) typed.pop_back();
  char* end = nullptr;
  const double percent = strtod(typed.c_str(), &end);
  const bool is_number = !typed.empty() && end == typed.c_str() + typed.size();
  if (is_number && percent > 0 && percent <= 100) return "";
  return std::string(where) + " is '" + typed +
         "': give the percentage of step time that watching may cost, for example 2 (more than 0, "
         "at most 100)";
}

std::string FindWrongStats(std::string_view where, const std::string& typed) {
  const bool is_number = typed.size() < 10 && std::all_of(typed.begin(), typed.end(), [](char c) {
                           return c >= '0' && c <= '9';
                         });
  if (is_number) return "";
  return std::string(where) + " is '" + typed +
         "': give the number of steps between two snapshots of the parameters, for example 100, or "
         "0 for none";
}

std::string FindWrongMeasure(std::string_view where, const std::string& typed) {
  if (typed.empty()) return "";
  char* end = nullptr;
  const double percent = std::strtod(typed.c_str(), &end);
  if (*end == '\0' && percent >= 0 && percent <= 50) return "";
  return std::string(where) + " is '" + typed +
         "': give the percentage of steps that nanwatch may leave unchecked to measure its own "
         "cost, from 0 (none) to 50, for example 1";
}

// "64M": bytes, or KiB, MiB and GiB. Nothing: it is no size.
std::optional<uint64_t> ParseBytes(const std::string& typed) {
  constexpr std::string_view kUnits = "KMG";
  char* end = nullptr;
  const unsigned long long number = std::strtoull(typed.c_str(), &end, 10);
  if (typed.empty() || typed[0] < '0' || typed[0] > '9') return std::nullopt;
  const std::string_view unit = end;
  if (unit.empty()) return number;
  const size_t power = kUnits.find(unit[0]);
  if (unit.size() > 1 || power == std::string_view::npos) return std::nullopt;
  const int shift = 10 * (static_cast<int>(power) + 1);
  return number > (UINT64_MAX >> shift) ? std::nullopt : std::optional(number << shift);
}

std::string FindWrongLimit(std::string_view where, const std::string& typed) {
  if (typed.empty() || ParseBytes(typed).has_value()) return "";
  return std::string(where) + " is '" + typed + "': give a size, for example 64M";
}

std::string FindWrongJob(const std::string& job) {
  const auto is_fine = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  };
  if (job.size() <= kJobLengthMax && std::all_of(job.begin(), job.end(), is_fine) &&
      job[0] != '.') {
    return "";
  }
  return "NANWATCH_JOB is '" + job +
         "': use at most 63 letters, digits, '.', '_' and '-', not starting with '.', or unset it "
         "to get a new id";
}

void AddUnobservedNote(const std::string& because, const std::string& remedy, JobLaunch& launch) {
  launch.notes.push_back(remedy.empty() ? because + "; the command runs unobserved"
                                        : because + ", so the command runs unobserved; " + remedy);
}

// The level's name of today.
std::string CurrentLevelName(const std::string& typed) {
  return typed == wire::kFormerSampled ? "sampled" : typed;
}

void SetWhenGiven(EnvironmentBlock& environment, const char* name, const std::string& value) {
  if (!value.empty()) environment.Set(name, value);
}

// Adds the library to LD_PRELOAD, or a note that says why not.
void PlanPreload(JobLaunch& launch, const Installation& installation) {
  if (launch.environment.Text(wire::kEnvSwitch) == "0") {
    launch.reason = "switched_off";
    AddUnobservedNote("NANWATCH=0 is set", "unset it to watch", launch);
    return;
  }
  if (ResolveLinks(installation.library).empty()) {
    LeaveUnobserved("there is no " + installation.library,
                    "install nanwatch again, or keep bin and lib together when you move it",
                    launch);
    return;
  }
  if (!CanBePreloaded(installation.library)) {
    LeaveUnobserved("'" + installation.library +
                        "' has a space or a colon in its path, which LD_PRELOAD cannot carry",
                    "install nanwatch somewhere else", launch);
    return;
  }
  const PreloadPlan plan =
      ComposePreload(launch.environment.Text("LD_PRELOAD"), installation.library, ResolveLinks);
  if (!plan.other_copy.empty()) {
    launch.notes.push_back("LD_PRELOAD already names another copy of nanwatch, " + plan.other_copy +
                           ", which is the one that watches");
  }
  launch.environment.Set("LD_PRELOAD", plan.value);
  launch.observed = true;
}

}  // namespace

std::string FindWrongUse(const RunOptions& options, const EnvironmentBlock& outside) {
  if (options.command.empty()) {
    return "there is no command to run: put it after '--', for example "
           "'nanwatch run -- python train.py'";
  }
  const auto value = [&](const char* variable) { return outside.Text(variable); };
  const auto name = [&](const char* variable) {
    const auto found = options.configured.find(variable);
    return found == options.configured.end() ? std::string(variable) : found->second;
  };
  const std::string job = value(wire::kEnvJob);
  for (std::string wrong :
       {FindWrongWord("--level", CurrentLevelName(options.level), kLevelNames),
        FindWrongWord(name(wire::kEnvLevel), CurrentLevelName(value(wire::kEnvLevel)), kLevelNames),
        FindWrongWord("--on-anomaly", options.on_anomaly, kOnAnomaly),
        FindWrongWord(name(wire::kEnvOnAnomaly), value(wire::kEnvOnAnomaly), kOnAnomaly),
        FindWrongBudget("--budget", options.budget),
        FindWrongBudget(name(wire::kEnvBudget), value(wire::kEnvBudget)),
        FindWrongWord("--capsule", options.capsule, kCapsuleKinds),
        FindWrongWord(name(wire::kEnvCapsule), value(wire::kEnvCapsule), kCapsuleKinds),
        FindWrongLimit("--capsule-limit", options.capsule_limit),
        FindWrongLimit(name(wire::kEnvCapsuleLimit), value(wire::kEnvCapsuleLimit)),
        FindWrongStats("--stats", options.stats),
        FindWrongStats(name(wire::kEnvStats), value(wire::kEnvStats)),
        FindWrongMeasure("--measure", options.measure),
        FindWrongMeasure(name(wire::kEnvMeasure), value(wire::kEnvMeasure)),
        FindWrongWord(name(wire::kEnvKernels), value(wire::kEnvKernels), kSwitch),
        FindWrongWord(name(wire::kEnvVetCheckpoints), value(wire::kEnvVetCheckpoints), kSwitch),
        job.empty() ? std::string() : FindWrongJob(job)}) {
    if (!wrong.empty()) return wrong;
  }
  return "";
}

JobLaunch PlanLaunch(const RunOptions& options, const EnvironmentBlock& outside,
                     const Installation& installation, const std::string& fresh_job) {
  JobLaunch launch;
  launch.environment = outside;
  launch.job = outside.Text(wire::kEnvJob);
  if (launch.job.empty()) launch.job = fresh_job;
  launch.environment.Set(wire::kEnvJob, launch.job);
  const std::string level = options.level.empty() ? outside.Text(wire::kEnvLevel) : options.level;
  SetWhenGiven(launch.environment, wire::kEnvLevel, CurrentLevelName(level));
  if (level == wire::kFormerSampled) launch.notes.emplace_back(wire::kFormerSampledNotice);
  SetWhenGiven(launch.environment, wire::kEnvOnAnomaly, options.on_anomaly);
  SetWhenGiven(launch.environment, wire::kEnvStats, options.stats);
  SetWhenGiven(launch.environment, wire::kEnvMeasure, options.measure);
  SetWhenGiven(launch.environment, wire::kEnvKernels, options.kernels ? "1" : "");
  SetWhenGiven(launch.environment, wire::kEnvVetCheckpoints, options.vet_checkpoints ? "1" : "");
  SetWhenGiven(launch.environment, wire::kEnvCapsule, options.capsule);
  const std::string& size = options.capsule_limit;
  if (const std::optional<uint64_t> limit =
          ParseBytes(size.empty() ? outside.Text(wire::kEnvCapsuleLimit) : size)) {
    launch.environment.Set(wire::kEnvCapsuleLimit, std::to_string(*limit));
  }
  std::string budget = options.budget;
  if (budget.ends_with('%')) budget.pop_back();
  SetWhenGiven(launch.environment, wire::kEnvBudget, budget);
  PlanPreload(launch, installation);
  return launch;
}

void LeaveUnobserved(const std::string& detail, const std::string& remedy, JobLaunch& launch) {
  launch.observed = false;
  launch.reason = "not_preloaded";
  launch.detail = detail;
  AddUnobservedNote(detail, remedy, launch);
}

std::string RandomJobId() {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    random = static_cast<uint64_t>(arc4random()) << 32 | arc4random();
  }
  return fmt::format("{:012x}", random >> 16);
}

}  // namespace nanwatch
