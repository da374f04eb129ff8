// The verbs `attach` and `detach`: what live processes check is changed while they run.
#include <poll.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/base/clock.h"
#include "daemon/correlate/wire_names.h"
#include "proto/wire/place.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
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
    "A process is found when it was started with the library (`nanwatch run`, or LD_PRELOAD), at "
    "any\n"
    "level, and has run a module or an optimizer's step. It changes between two of its ops, at "
    "its\n"
    "next optimizer step or outermost module call; it is never stopped.\n"
    "\n"
    "One that was started without gets the library when it is named by its PID. Python 3.14 and "
    "later\n"
    "load it by themselves (sys.remote_exec). Others do with --inject, by a hook on a call of "
    "their\n"
    "Python's, where no lock is held; no debugger is needed. A process is stopped for it only "
    "when its\n"
    "main thread computes on without such a call: for a moment. Its steps are then\n"
    "counted from that moment, and programs that it starts are not watched.\n"
    "\n"
    "Levels: idle, canary (gradients, losses, updates), layer (and what modules return), full "
    "(every\n"
    "  op).\n"
    "\n"
    "Examples:\n"
    "  nanwatch attach 12345                        full, until it ends\n"
    "  nanwatch attach --job llama-7b --for 10m     every rank of a job, then back by itself\n"
    "  nanwatch attach --all --level canary\n"
    "  nanwatch attach 12345 --stacks               with the callers of each line in the report\n"
    "  nanwatch attach 12345 --inject               one that was started without nanwatch\n"
    "  nanwatch detach 12345                        idle\n"
    "\n"
    "Exit status: 0 all have changed; 1 none was found, or one has not changed in time (it still\n"
    "  will, at its next step); 2 wrong use.\n"
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
                                                    {"layer", wire::Level::kLayer},
                                                    {"full", wire::Level::kFull}};

// One process and what became of the request.
struct Target {
  SeenRun run;
  std::optional<LevelRequest> request;
  std::string problem;  // "" none
  std::optional<uint64_t> applied_after_ns;
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
                "'" + target + "' fits several runs, give more of it:" + candidates);
}

// The process that the target names by its number; nothing when it is no number of a process.
std::optional<int> PidOf(const std::string& target) {
  int pid = 0;
  const auto [end, error] = std::from_chars(target.data(), target.data() + target.size(), pid);
  if (error != std::errc() || end != target.data() + target.size() || pid <= 0) return std::nullopt;
  return pid;
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
  std::ifstream file(proc + "/status");
  ProcessFacts facts;
  TakeStatus(std::string(std::istreambuf_iterator<char>(file), {}), facts);
  return Refusal{"other_container",
                 "process " + std::to_string(pid) +
                     " runs in another container (its own pid namespace or root), where it is "
                     "process " +
                     std::to_string(facts.inner_pid) + ", and keeps its segment in " +
                     wire::DefaultDirectoryOf(facts.uid, there.key).path +
                     " unless NANWATCH_DIR says otherwise in there: run nanwatch in there, by "
                     "'docker exec', or by 'nsenter -t " +
                     std::to_string(pid) + " -a'"};
}

// Why what somebody means is not among the live runs, and cannot be made one of them either.
std::optional<Refusal> WhyNotFound(const AttachOptions& options, const Places& places) {
  const std::string where = " (looked in " + places.segment_dir + ")";
  const std::optional<int> pid = PidOf(options.target);
  if (!pid.has_value())
    return Refusal{"no_run", "no live run fits" + where + ": 'nanwatch ps' lists them"};
  const std::string name = "process " + options.target;
  if (access(("/proc/" + options.target).c_str(), F_OK) != 0)
    return Refusal{"no_process", "there is no " + name + " here"};
  if (std::optional<Refusal> elsewhere = WhyOfAnotherPlace(*pid)) return elsewhere;
  if (Maps(*pid, "libnanwatch_observer")) {
    return Refusal{"already",
                   name +
                       " is loaded but has told nothing yet: it has taken no optimizer step (and, "
                       "at level full, met nothing bad), or keeps its segment elsewhere" +
                       where};
  }
  if (Maps(*pid, "libnanwatch.so")) {
    return Refusal{"already", name + (Maps(*pid, "libtorch_cpu.so")
                                          ? " is loaded and not watched: why not, it said on its "
                                            "own stderr when torch or the library came"
                                          : " is loaded but has not imported torch")};
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
std::optional<Refusal> Load(const AttachOptions& options, const Places& places,
                            std::string& loaded) {
  if (std::optional<Refusal> refusal = WhyNotFound(options, places)) return refusal;
  const double limit_s = options.wait_s > 0 ? options.wait_s : AttachOptions().wait_s;
  const LateLoadResult result =
      LoadLate({.pid = *PidOf(options.target),
                .inject = options.inject,
                .limit = std::chrono::milliseconds(static_cast<int64_t>(limit_s * 1000))},
               places, LocateInstallation(), EnvironmentBlock::OfThisProcess());
  loaded = LateLoadName(result.how);
  if (!result.watched) return Refusal{result.reason, result.problem};
  if (!result.said.empty()) Say("process " + options.target + " says: " + result.said);
  Say("process " + options.target + " has the library now, " +
      (result.how == LateLoad::kInject
           ? "by a hook, after " + HookWords(result)
           : std::string("loaded by its own Python, and was not stopped")) +
      "; its steps are counted from here on");
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
      if (!target.request || target.applied_after_ns || !target.problem.empty()) continue;
      if (target.request->IsApplied()) {
        target.applied_after_ns = now;
      } else if (access(("/proc/" + std::to_string(target.run.run.pid_outer())).c_str(), F_OK) !=
                 0) {
        target.problem = "it has ended";
      } else if (target.request->IsLost()) {
        target.problem = "its segment was removed; try again";
      } else if (now >= limit) {
        const uint64_t beat = target.run.state.heartbeat_ns();
        target.problem = "asked, and not applied yet: no optimizer step and no module call since " +
                         FormatAge(beat == 0 ? now : clock.monotonic_ns() - beat) +
                         " (a long step, a hung collective, or a program without either); it will "
                         "be at its next one";
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
  } else {
    line += target.problem;
  }
  return line + "\n";
}

Json AsJson(const Target& target, const AttachOptions& options) {
  const Run& run = target.run.run;
  Json json = {{"run", target.run.id},        {"job", target.run.job},
               {"rank", run.rank()},          {"pid", run.pid()},
               {"level", options.level},      {"stacks", options.stacks},
               {"before", nullptr},           {"applied", target.applied_after_ns.has_value()},
               {"applied_after_ms", nullptr}, {"problem", target.problem}};
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
    if (const auto refusal = Load(options, observations.places(), loaded))
      return Refuse(options, loaded, *refusal);
    // The directory of segments may be new.
    observations = Observations(FindPlaces(ProcessEnvironment()));
    targets = FindTargets(options, observations);
    if (targets.empty())
      return Refuse(options, loaded,
                    {"ended", "process " + options.target + " has ended meanwhile"});
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
    all = all && target.applied_after_ns.has_value();
    text += AsLine(target, options);
  }
  WriteAll(STDOUT_FILENO, options.json
                              ? Document(targets, options, loaded, {})
                                        .dump(2, ' ', false, Json::error_handler_t::replace) +
                                    "\n"
                              : text);
  return all ? kExitOk : kExitFailed;
}

CLI::App* AddVerb(CLI::App& app, VerbCall& call, const char* name, const char* description,
                  const std::shared_ptr<AttachOptions>& options) {
  CLI::App* verb = app.add_subcommand(name, description);
  SetHelp(*verb, "nanwatch " + std::string(name) + " (PID|RUN|--job ID|--rank N|--all) [OPTIONS]",
          kAttachHelp);
  CLI::Option* target =
      verb->add_option("TARGET", options->target,
                       "A process, or a run or the beginning of its id ('nanwatch ps')")
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
                   "How long to wait until it has changed (default: 10; 0: not at all)")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--json", options->json, "Print a JSON document (nanwatch.attach/1)");
  verb->callback([options, rank, &call] {
    if (options->target.empty() && options->job.empty() && !options->all && rank->count() == 0) {
      throw CLI::RequiredError("say which: a PID, a RUN, --job ID, --rank N or --all");
    }
    if (options->inject && !PidOf(options->target).has_value()) {
      throw CLI::ValidationError("--inject", "brings the library into one process: name its PID");
    }
    call.chosen = [options] { return ChangeLevel(*options); };
  });
  return verb;
}

}  // namespace

void AddAttachVerbs(CLI::App& app, VerbCall& call) {
  auto attach = std::make_shared<AttachOptions>();
  CLI::App* verb =
      AddVerb(app, call, "attach", "Change what a live process checks, while it runs.", attach);
  verb->add_option("--level", attach->level, "idle, canary, layer or full (default: full)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember(kLevels));
  verb->add_flag("--stacks", attach->stacks,
                 "Have findings say who called the user's line, as far as they are the user's own "
                 "frames, until the next attach or detach");
  verb->add_flag(
      "--inject", attach->inject,
      "Bring the library into a process that was started without it, by a hook on a call "
      "of its Python's");
  attach->may_load = true;
  const std::map<std::string, double> units = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  verb->add_option("--for", attach->for_s,
                   "Go back by itself after so long: 90s, 10m, 2h; also when this tool is gone")
      ->type_name("DURATION")
      ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::CASE_SENSITIVE, "s"))
      ->check(CLI::PositiveNumber);
  auto detach = std::make_shared<AttachOptions>();
  detach->level = "idle";
  AddVerb(app, call, "detach", "Leave a live process waiting at level idle.", detach);
}

}  // namespace nanwatch
