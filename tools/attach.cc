// SPDX-License-Identifier: Apache-2.0
// The verbs `attach` and `detach`: what live processes check is changed while they run.
#include <poll.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/base/clock.h"
#include "daemon/base/small_file.h"
#include "daemon/correlate/wire_names.h"
#include "proto/wire/naming.h"
#include "proto/wire/place.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/idle_kernel.h"
#include "tools/installation.h"
#include "tools/late_load.h"
#include "tools/level_request.h"
#include "tools/observations.h"
#include "tools/process_facts.h"
#include "tools/table.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int kLookEveryMs = 5;

constexpr char kAttachHelp[] =
    "This finds a process that was started with 'nanwatch run' or LD_PRELOAD, at any level, once "
    "it has\n"
    "called a module or an optimizer. Its level changes at its next optimizer step or outermost "
    "module\n"
    "call. nanwatch does not stop it.\n"
    "\n"
    "A process that was started without nanwatch gets the library when you give its PID. Python "
    "3.14 and\n"
    "later load it by themselves (sys.remote_exec). Older ones need --inject, which hooks a call "
    "of the\n"
    "Python interpreter that is made without a lock; no debugger is needed. The process is stopped "
    "for a\n"
    "moment only if its main thread makes no such call. Steps are counted from then on. Programs "
    "that the\n"
    "process starts are not watched.\n"
    "\n"
    "Levels: idle, canary (gradients, losses, updates), sampled (every op; of large results a\n"
    "  part), full (every op).\n"
    "\n"
    "Examples:\n"
    "  nanwatch attach 12345                        full, until it ends\n"
    "  nanwatch attach --job llama-7b --for 10m     every rank of a job, then back by itself\n"
    "  nanwatch attach --all --level canary\n"
    "  nanwatch attach 12345 --stacks               with the callers of each line in the report\n"
    "  nanwatch attach 12345 --inject               a process that was started without nanwatch\n"
    "  nanwatch detach 12345                        idle\n"
    "\n"
    "A notebook kernel that runs no cell changes when the next cell runs. attach does not wait for "
    "that.\n"
    "\n"
    "Exit status: 0 all have changed, or will at the next cell; 1 none was found, or one did not\n"
    "  change in time (it still will, at its next step); 2 wrong use.\n"
    "Environment: NANWATCH_DIR.";

constexpr char kDetachHelp[] =
    "The level changes at the next optimizer step or outermost module call. nanwatch does not stop "
    "the\n"
    "process, and the library stays in it: 'nanwatch attach' watches it again.\n"
    "\n"
    "Examples:\n"
    "  nanwatch detach 12345\n"
    "  nanwatch detach --all\n"
    "\n"
    "Exit status: 0 all have changed, or will at the next cell of a notebook; 1 none was found, or "
    "one\n"
    "  did not change in time (it still will, at its next step); 2 wrong use.\n"
    "Environment: NANWATCH_DIR.";

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

const std::map<std::string, wire::Level> kLevels = {{"idle", wire::Level::kIdle},
                                                    {"canary", wire::Level::kCanary},
                                                    {"sampled", wire::Level::kSampled},
                                                    {"full", wire::Level::kFull}};

// One process and what became of the request.
struct Target {
  SeenRun run;
  std::optional<LevelRequest> request;
  std::string problem;  // "" none
  std::optional<uint64_t> applied_after_ns;
  // A notebook that runs no cell: the request stays, and attach does not wait for it.
  std::optional<IdleKernel> kernel;
  bool idle = false;

  [[nodiscard]] bool Accepted() const { return applied_after_ns.has_value() || idle; }
};

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

// A number is a process before it is the beginning of a run's id, and that must be one run's.
Status ChooseOne(const std::string& target, std::vector<Target>& targets) {
  const auto is_pid = [&](const Target& t) { return IsPid(target, t.run); };
  if (std::any_of(targets.begin(), targets.end(), is_pid)) {
    std::erase_if(targets, [&](const Target& t) { return !is_pid(t); });
    return Status();
  }
  if (targets.size() <= 1) return Status();
  std::string candidates;
  for (const Target& t : targets) candidates += " " + t.run.id;
  return Status(ErrorKind::kAmbiguous,
                "'" + target + "' matches several runs: give more of the id, such as" + candidates);
}

// The process that the target names by its number; nothing when it is no number of a process.
std::optional<int> PidOf(const std::string& target) {
  int pid = 0;
  const auto [end, error] = std::from_chars(target.data(), target.data() + target.size(), pid);
  if (error != std::errc() || end != target.data() + target.size() || pid <= 0) return std::nullopt;
  return pid;
}

// "90", "90s", "10m", "2h", "1d", in seconds; nothing for any other text.
std::optional<double> SecondsOf(const std::string& text) {
  const std::map<std::string_view, double> units = {
      {"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  const auto unit = units.find(std::string_view(end, text.data() + text.size() - end));
  if (unit == units.end()) return std::nullopt;
  return number * unit->second;
}

bool Maps(int pid, const char* library) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

// Why nobody was asked: a word for programs, and a sentence.
struct Refusal {
  std::string reason;
  std::string problem;
};

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

// Why what somebody means is not among the live runs, and cannot be made one of them either.
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

std::vector<Target> FindTargets(const AttachOptions& options, Observations& observations) {
  std::vector<Target> targets;
  for (SeenRun& run : observations.Runs()) {
    if (IsMeant(options, run)) targets.emplace_back().run = std::move(run);
  }
  return targets;
}

// What the hook cost the process.
std::string HookWords(const LateLoadResult& result) {
  const std::string took = std::to_string(result.took.count()) + " ms";
  if (result.stops == 0) return took + ", and was not stopped";
  return took + "; its main thread was stopped for " +
         std::to_string(result.stopped_max.count() / 1000) + " us" +
         (result.stops > 1 ? " at most, " + std::to_string(result.stops) + " times" : "");
}

// Brings the library into the process that is meant. `loaded` says how, for people and programs.
std::optional<Refusal> Load(const AttachOptions& options, Observations& observations,
                            std::string& loaded) {
  if (std::optional<Refusal> refusal = WhyNotFound(options, observations)) return refusal;
  const Places& places = observations.places();
  const double limit_s = options.wait_s > 0 ? options.wait_s : AttachOptions().wait_s;
  const LateLoadResult result =
      LoadLate({.pid = *PidOf(options.target),
                .inject = options.inject,
                .limit = std::chrono::milliseconds(static_cast<int64_t>(limit_s * 1000))},
               places, LocateInstallation(), EnvironmentBlock::OfThisProcess());
  loaded = LateLoadName(result.how);
  if (!result.watched) return Refusal{result.reason, result.problem};
  if (!result.said.empty()) Say("process " + options.target + " says: " + result.said);
  Say("process " + options.target + " now has the library, " +
      (result.how == LateLoad::kInject
           ? "loaded by a hook after " + HookWords(result)
           : std::string("loaded by its own Python, and was not stopped")) +
      "; its steps are counted from now on");
  return std::nullopt;
}

void AwaitAll(std::vector<Target>& targets, double wait_s) {
  const SystemClock clock;
  const uint64_t began = clock.monotonic_ns();
  const auto limit = static_cast<uint64_t>(wait_s * static_cast<double>(kSecondNs));
  for (bool pending = true; pending;) {
    pending = false;
    const uint64_t now = clock.monotonic_ns() - began;
    for (Target& target : targets) {
      if (!target.request || target.Accepted() || !target.problem.empty()) continue;
      if (!target.kernel) target.kernel.emplace(target.run.run.pid_outer());
      if (target.request->IsApplied()) {
        target.applied_after_ns = now;
      } else if (target.kernel->Look(clock.monotonic_ns())) {
        target.idle = true;
      } else if (access(("/proc/" + std::to_string(target.run.run.pid_outer())).c_str(), F_OK) !=
                 0) {
        target.problem = "it has ended";
      } else if (target.request->IsLost()) {
        target.problem = "its segment was removed; try again";
      } else if (now >= limit) {
        const uint64_t beat = target.run.state.heartbeat_ns();
        target.problem =
            "requested, but not applied yet: no optimizer step and no module call for " +
            FormatAge(beat == 0 ? now : clock.monotonic_ns() - beat) +
            " (a long step, a hung collective, or a program that has neither); it "
            "applies at the next one";
      } else {
        pending = true;
      }
    }
    if (pending) poll(nullptr, 0, kLookEveryMs);
  }
}

std::string AsLine(const Target& target, const AttachOptions& options) {
  const Run& run = target.run.run;
  std::string line = target.run.id.substr(0, 8) + "  " + run.program() + ", rank " +
                     std::to_string(run.rank()) + ", pid " + std::to_string(run.pid()) + ": ";
  if (target.applied_after_ns) {
    line += options.level + (options.stacks ? " with stacks" : "") + ", was " +
            LevelName(static_cast<uint32_t>(target.request->before())) + "; applied after " +
            std::to_string(*target.applied_after_ns / 1'000'000) + " ms";
    if (options.for_s > 0) {
      line += "; back to " + std::string(LevelName(run.level())) + " in " +
              FormatAge(static_cast<uint64_t>(options.for_s * static_cast<double>(kSecondNs)));
    }
  } else if (target.idle) {
    line +=
        options.level + (options.stacks ? " with stacks" : "") +
        " is requested and applies at the next cell: this notebook kernel is not running one now";
  } else {
    line += target.problem;
  }
  return line + "\n";
}

Json AsJson(const Target& target, const AttachOptions& options) {
  const Run& run = target.run.run;
  Json json = {{"run", target.run.id},
               {"job", target.run.job},
               {"rank", run.rank()},
               {"pid", run.pid()},
               {"level", options.level},
               {"stacks", options.stacks},
               {"before", nullptr},
               {"applied", target.applied_after_ns.has_value()},
               {"applied_after_ms", nullptr},
               {"problem", target.problem},
               {"applies_at_next_cell", target.idle}};
  if (target.request) json["before"] = LevelName(static_cast<uint32_t>(target.request->before()));
  if (target.applied_after_ns) {
    json["applied_after_ms"] = static_cast<double>(*target.applied_after_ns) / 1e6;
  }
  return json;
}

// `loaded`: how the library came into the process just now, "" it was there.
Json Document(const std::vector<Target>& targets, const AttachOptions& options,
              const std::string& loaded, const Refusal& refusal) {
  Json document = {{"schema", "nanwatch.attach/1"},
                   {"targets", Json::array()},
                   {"loaded", loaded.empty() ? Json(nullptr) : Json(loaded)},
                   {"reason", refusal.reason.empty() ? Json(nullptr) : Json(refusal.reason)},
                   {"problem", refusal.problem}};
  for (const Target& target : targets) document["targets"].push_back(AsJson(target, options));
  return document;
}

int Refuse(const AttachOptions& options, const std::string& loaded, const Refusal& refusal) {
  Say(refusal.problem);
  if (options.json) {
    WriteAll(
        STDOUT_FILENO,
        Document({}, options, loaded, refusal).dump(2, ' ', false, Json::error_handler_t::replace) +
            "\n");
  }
  return kExitFailed;
}

int ChangeLevel(const AttachOptions& options) {
  Observations observations(FindPlaces(ProcessEnvironment()));
  if (!observations.places().note.empty()) Say(observations.places().note);
  std::vector<Target> targets = FindTargets(options, observations);
  std::string loaded;
  if (targets.empty()) {
    if (const auto refusal = Load(options, observations, loaded))
      return Refuse(options, loaded, *refusal);
    // The directory of segments may be new.
    observations = Observations(FindPlaces(ProcessEnvironment()));
    targets = FindTargets(options, observations);
    if (targets.empty())
      return Refuse(options, loaded,
                    {"ended", "process " + options.target + " ended in the meantime"});
  }
  if (!options.target.empty()) {
    if (const Status chosen = ChooseOne(options.target, targets); !chosen.ok())
      return Refuse(options, loaded, {"ambiguous", chosen.message()});
  }
  const auto for_ns = static_cast<uint64_t>(options.for_s * static_cast<double>(kSecondNs));
  for (Target& target : targets) {
    Result<LevelRequest> request = LevelRequest::Send(
        observations.SegmentPathOf(target.run), kLevels.at(options.level), for_ns, options.stacks);
    if (request.ok()) {
      target.request.emplace(*std::move(request));
    } else {
      target.problem = request.status().message();
    }
  }
  AwaitAll(targets, options.wait_s);
  std::string text;
  bool all = true;
  for (const Target& target : targets) {
    all = all && target.Accepted();
    text += AsLine(target, options);
  }
  return PrintAndExit(options.json ? Document(targets, options, loaded, {})
                                             .dump(2, ' ', false, Json::error_handler_t::replace) +
                                         "\n"
                                   : text,
                      all ? kExitOk : kExitFailed);
}

CLI::App* AddVerb(CLI::App& app, VerbCall& call, const char* name, const char* description,
                  const std::shared_ptr<AttachOptions>& options) {
  CLI::App* verb = app.add_subcommand(name, description);
  SetHelp(*verb, "nanwatch " + std::string(name) + " (PID|RUN|--job ID|--rank N|--all) [OPTIONS]",
          options->level == "idle" ? kDetachHelp : kAttachHelp);
  CLI::Option* target =
      verb->add_option("TARGET", options->target,
                       "A PID, or the id of a run, or its beginning ('nanwatch ps')")
          ->type_name("");
  CLI::Option* job =
      verb->add_option("--job", options->job, "Every process of a job, or the beginning of its id")
          ->type_name("ID");
  CLI::Option* rank =
      verb->add_option("--rank", options->rank, "The process of this rank")->type_name("N");
  CLI::Option* all = verb->add_flag("--all", options->all, "Every live process of yours");
  target->excludes(job)->excludes(all);
  all->excludes(job);
  verb->add_option("--wait", options->wait_s,
                   "How long to wait for the change (default: 10; 0: do not wait)")
      ->type_name("SECONDS")
      ->check([](const std::string& text) {
        return SecondsOf(text).has_value()
                   ? ""
                   : "'" + text + "' is not a time: give seconds, such as 10";
      });
  verb->add_flag("--json", options->json, "Print a JSON document (nanwatch.attach/1)");
  verb->callback([options, rank, &call] {
    if (options->target.empty() && options->job.empty() && !options->all && rank->count() == 0) {
      throw CLI::ValidationError("say which process: a PID, a RUN, --job ID, --rank N or --all");
    }
    if (options->inject && !PidOf(options->target).has_value()) {
      throw CLI::ValidationError("--inject", "loads the library into one process: give its PID");
    }
    call.chosen = [options] {
      if (options->level == wire::kFormerSampled) {
        Say(wire::kFormerSampledNotice);
        options->level = "sampled";
      }
      return ChangeLevel(*options);
    };
  });
  return verb;
}

}  // namespace

void AddAttachVerbs(CLI::App& app, VerbCall& call) {
  auto attach = std::make_shared<AttachOptions>();
  CLI::App* verb =
      AddVerb(app, call, "attach", "Change what a live process checks, while it runs.", attach);
  verb->add_option("--level", attach->level, "idle, canary, sampled or full (default: full)")
      ->type_name("LEVEL")
      ->check([](const std::string& text) {
        return kLevels.contains(text) || text == wire::kFormerSampled
                   ? ""
                   : "'" + text + "' is not a level: use idle, canary, sampled or full";
      });
  verb->add_flag("--stacks", attach->stacks,
                 "Record the callers of each finding's line (your own frames only), until the "
                 "next attach or detach");
  verb->add_flag("--inject", attach->inject,
                 "Load the library into a process that was started without it, through a hook on a "
                 "call of its Python");
  attach->may_load = true;
  verb->add_option("--for", attach->for_s, "Go back to the old level after this time: 90s, 10m, 2h")
      ->type_name("DURATION")
      ->transform(CLI::Validator(
          [](std::string& text) {
            const std::optional<double> seconds = SecondsOf(text);
            if (!seconds.has_value() || *seconds <= 0)
              return "'" + text + "' is not a duration: give one such as 90s, 10m, 2h or 1d";
            text = std::to_string(*seconds);
            return std::string();
          },
          ""));
  auto detach = std::make_shared<AttachOptions>();
  detach->level = "idle";
  AddVerb(app, call, "detach", "Set a live process to level idle, which checks nothing.", detach);
}

}  // namespace nanwatch
