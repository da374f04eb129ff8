// SPDX-License-Identifier: Apache-2.0
#include "tools/attach_targets.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <utility>

#include "daemon/base/small_file.h"
#include "proto/wire/place.h"
#include "tools/process_facts.h"

namespace nanwatch {
namespace {

bool IsPid(const std::string& target, const SeenRun& run) {
  return target == std::to_string(run.run.pid()) || target == std::to_string(run.run.pid_outer());
}

bool IsMeant(const AttachOptions& options, const SeenRun& run) {
  if (!run.live || !run.has_segment) return false;
  if (options.rank >= 0 && run.run.rank() != options.rank) return false;
  if (!options.job.empty()) return run.job.starts_with(options.job);
  return options.all || options.target.empty() || run.id.starts_with(options.target) ||
         IsPid(options.target, run);
}

bool Maps(int pid, const char* library) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

// A process of another container, or of the host, has its segment where its own nanwatch finds it.
std::optional<Refusal> WhyOfAnotherPlace(int pid) {
  const wire::Place there = wire::PlaceOfProcess(pid);
  if (there.pid_namespace == 0 || there.key == wire::PlaceOfProcess(0).key) return std::nullopt;
  const std::string proc = "/proc/" + std::to_string(pid);
  ProcessFacts facts;
  TakeStatus(TextOfProcFile(proc + "/status"), facts);
  return Refusal{"other_container",
                 "process " + std::to_string(pid) +
                     " runs in another container (its own pid namespace or root), where it is "
                     "process " +
                     std::to_string(facts.inner_pid) + "; its segment is in " +
                     wire::DefaultDirectoryOf(facts.uid, there.key).path +
                     ", unless NANWATCH_DIR is set there: run nanwatch inside that container, with "
                     "'docker exec' or 'nsenter -t " +
                     std::to_string(pid) + " -a'"};
}

std::string WhyNoRun(const AttachOptions& options, Observations& observations,
                     const std::string& where) {
  const std::vector<SeenRun> runs = observations.Runs();
  const auto is_meant = [&](const SeenRun& run) {
    return options.job.empty() ? run.id.starts_with(options.target)
                               : run.job.starts_with(options.job);
  };
  const bool names_one = !options.job.empty() || !options.target.empty();
  const std::string& name = options.job.empty() ? options.target : options.job;
  const std::string kind = options.job.empty() ? "run '" : "job '";
  const bool any_lives =
      std::any_of(runs.begin(), runs.end(), [](const SeenRun& run) { return run.live; });
  if (names_one && std::any_of(runs.begin(), runs.end(), is_meant) && options.rank < 0)
    return kind + name + "' has ended";
  if (!any_lives) return "no process is being watched" + where;
  std::string text = names_one ? "there is no live " + kind + name + "'" : "there is no live run";
  if (options.rank >= 0) text += " of rank " + std::to_string(options.rank);
  return text + where + ": 'nanwatch ps' lists the live runs";
}

}  // namespace

Status ChooseOne(const std::string& target, std::vector<AttachTarget>& targets) {
  const auto is_pid = [&](const AttachTarget& t) { return IsPid(target, t.run); };
  if (std::any_of(targets.begin(), targets.end(), is_pid)) {
    std::erase_if(targets, [&](const AttachTarget& t) { return !is_pid(t); });
    return Status();
  }
  if (targets.size() <= 1) return Status();
  std::string candidates;
  for (const AttachTarget& t : targets) candidates += " " + t.run.id;
  return Status(ErrorKind::kAmbiguous,
                "'" + target + "' matches several runs: give more of the id, such as" + candidates);
}

std::optional<int> PidOf(const std::string& target) {
  int pid = 0;
  const auto [end, error] = std::from_chars(target.data(), target.data() + target.size(), pid);
  if (error != std::errc() || end != target.data() + target.size() || pid <= 0) return std::nullopt;
  return pid;
}

std::optional<Refusal> WhyNotFound(const AttachOptions& options, Observations& observations) {
  const Places& places = observations.places();
  const std::string where = " (looked in " + places.segment_dir + ")";
  const std::optional<int> pid = PidOf(options.target);
  if (!pid.has_value()) return Refusal{"no_run", WhyNoRun(options, observations, where)};
  const std::string name = "process " + options.target;
  if (access(("/proc/" + options.target).c_str(), F_OK) != 0)
    return Refusal{"no_process", "there is no " + name + " here"};
  if (std::optional<Refusal> elsewhere = WhyOfAnotherPlace(*pid)) return elsewhere;
  if (Maps(*pid, "libnanwatch_observer")) {
    return Refusal{
        "already",
        name +
            " has the library, but shows nothing yet: it has completed no optimizer step (and, at "
            "level full, produced no bad value), or its segment is in another directory" +
            where};
  }
  if (Maps(*pid, "libnanwatch.so")) {
    return Refusal{"already", name + (Maps(*pid, "libtorch_cpu.so")
                                          ? " has the library, but is not watched: its own stderr "
                                            "says why"
                                          : " has the library, but has not imported torch")};
  }
  if (!options.may_load) {
    return Refusal{"not_loaded", name + " is not watched: it was started without nanwatch"};
  }
  return std::nullopt;
}

std::vector<AttachTarget> FindTargets(const AttachOptions& options, Observations& observations) {
  std::vector<AttachTarget> targets;
  for (SeenRun& run : observations.Runs()) {
    if (IsMeant(options, run)) targets.emplace_back().run = std::move(run);
  }
  return targets;
}

}  // namespace nanwatch
