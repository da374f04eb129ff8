// SPDX-License-Identifier: Apache-2.0
// The verbs `attach` and `detach`: what live processes check is changed while they run.
#include <poll.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/base/clock.h"
#include "proto/wire/naming.h"
#include "tools/attach_targets.h"
#include "tools/attach_words.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/idle_kernel.h"
#include "tools/installation.h"
#include "tools/late_load.h"
#include "tools/level_request.h"
#include "tools/observations.h"
#include "tools/table.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

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

const std::map<std::string, wire::Level> kLevels = {{"idle", wire::Level::kIdle},
                                                    {"canary", wire::Level::kCanary},
                                                    {"sampled", wire::Level::kSampled},
                                                    {"full", wire::Level::kFull}};

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

void AwaitAll(std::vector<AttachTarget>& targets, double wait_s) {
  const SystemClock clock;
  const uint64_t began = clock.monotonic_ns();
  const auto limit = static_cast<uint64_t>(wait_s * static_cast<double>(kNsPerSecond));
  for (bool pending = true; pending;) {
    pending = false;
    const uint64_t now = clock.monotonic_ns() - began;
    for (AttachTarget& target : targets) {
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

int Refuse(const AttachOptions& options, const std::string& loaded, const Refusal& refusal) {
  Say(refusal.problem);
  if (options.json) {
    WriteAll(STDOUT_FILENO, AttachDocument({}, options, loaded, refusal)
                                    .dump(2, ' ', false, Json::error_handler_t::replace) +
                                "\n");
  }
  return kExitFailed;
}

int ChangeLevel(const AttachOptions& options) {
  Observations observations(FindPlaces(ProcessEnvironment()));
  if (!observations.places().note.empty()) Say(observations.places().note);
  std::vector<AttachTarget> targets = FindTargets(options, observations);
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
  const auto for_ns = static_cast<uint64_t>(options.for_s * static_cast<double>(kNsPerSecond));
  for (AttachTarget& target : targets) {
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
  for (const AttachTarget& target : targets) {
    all = all && target.Accepted();
    text += AsLine(target, options);
  }
  return PrintAndExit(options.json ? AttachDocument(targets, options, loaded, {})
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
