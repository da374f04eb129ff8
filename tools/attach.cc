// The verbs `attach` and `detach`: what live processes check is changed while they run.
#include <poll.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/base/clock.h"
#include "daemon/correlate/wire_names.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/level_request.h"
#include "tools/observations.h"
#include "tools/table.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int kLookEveryMs = 5;

constexpr char kFooter[] =
    "A process is found when it was started with the library (`nanwatch run`, or LD_PRELOAD), at "
    "any\n"
    "level, and has run a module or an optimizer's step. It changes between two of its ops, at "
    "its\n"
    "next optimizer step or outermost module call; it is never stopped.\n"
    "\n"
    "Levels: idle, canary (gradients, losses, updates), full (every op).\n"
    "\n"
    "Examples:\n"
    "  nanwatch attach 12345                        full, until it ends\n"
    "  nanwatch attach --job llama-7b --for 10m     every rank of a job, then back by itself\n"
    "  nanwatch attach --all --level canary\n"
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
  bool json = false;
};

const std::map<std::string, wire::Level> kLevels = {
    {"idle", wire::Level::kIdle}, {"canary", wire::Level::kCanary}, {"full", wire::Level::kFull}};

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

bool Maps(const std::string& pid, const char* library) {
  std::ifstream maps("/proc/" + pid + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

// Why a process that somebody means is not among the live runs.
std::string WhyNotFound(const AttachOptions& options, const Observations& observations) {
  const std::string where = " (looked in " + observations.places().segment_dir + ")";
  const bool is_pid =
      !options.target.empty() && std::all_of(options.target.begin(), options.target.end(),
                                             [](char c) { return c >= '0' && c <= '9'; });
  if (!is_pid) {
    return "no live run fits" + where + ": 'nanwatch ps' lists them";
  }
  if (access(("/proc/" + options.target).c_str(), F_OK) != 0)
    return "there is no process " + options.target + " here";
  if (Maps(options.target, "libnanwatch_observer")) {
    return "process " + options.target +
           " is loaded but has told nothing yet: it has taken no optimizer step (and, at level "
           "full, "
           "met nothing bad), or keeps its segment elsewhere" +
           where;
  }
  if (Maps(options.target, "libnanwatch.so")) {
    return "process " + options.target + " is loaded but has not imported torch";
  }
  return "process " + options.target +
         " was not started with nanwatch: start it with 'nanwatch run --level idle -- COMMAND', "
         "and attach then";
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
    line += options.level + ", was " + LevelName(static_cast<uint32_t>(target.request->before())) +
            "; applied after " + std::to_string(*target.applied_after_ns / 1'000'000) + " ms";
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
  Json json = {{"run", target.run.id},
               {"job", target.run.job},
               {"rank", run.rank()},
               {"pid", run.pid()},
               {"level", options.level},
               {"before", nullptr},
               {"applied", target.applied_after_ns.has_value()},
               {"applied_after_ms", nullptr},
               {"problem", target.problem}};
  if (target.request) json["before"] = LevelName(static_cast<uint32_t>(target.request->before()));
  if (target.applied_after_ns) {
    json["applied_after_ms"] = static_cast<double>(*target.applied_after_ns) / 1e6;
  }
  return json;
}

int ChangeLevel(const AttachOptions& options) {
  Observations observations(FindPlaces(ProcessEnvironment()));
  if (!observations.places().note.empty()) Say(observations.places().note);
  std::vector<Target> targets;
  for (SeenRun& run : observations.Runs()) {
    if (IsMeant(options, run)) targets.emplace_back().run = std::move(run);
  }
  if (targets.empty()) {
    Say(WhyNotFound(options, observations));
    return kExitFailed;
  }
  if (!options.target.empty()) {
    if (const Status chosen = ChooseOne(options.target, targets); !chosen.ok()) {
      Say(chosen.message());
      return kExitFailed;
    }
  }
  const auto for_ns = static_cast<uint64_t>(options.for_s * static_cast<double>(kSecondNs));
  for (Target& target : targets) {
    Result<LevelRequest> request = LevelRequest::Send(observations.SegmentPathOf(target.run),
                                                      kLevels.at(options.level), for_ns);
    if (request.ok()) {
      target.request.emplace(*std::move(request));
    } else {
      target.problem = request.status().message();
    }
  }
  AwaitAll(targets, options.wait_s);
  Json document = {{"schema", "nanwatch.attach/1"}, {"targets", Json::array()}};
  std::string text;
  bool all = true;
  for (const Target& target : targets) {
    all = all && target.applied_after_ns.has_value();
    text += AsLine(target, options);
    document["targets"].push_back(AsJson(target, options));
  }
  WriteAll(STDOUT_FILENO, options.json
                              ? document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                              : text);
  return all ? kExitOk : kExitFailed;
}

CLI::App* AddVerb(CLI::App& app, VerbCall& call, const char* name, const char* description,
                  const std::shared_ptr<AttachOptions>& options) {
  CLI::App* verb = app.add_subcommand(name, description);
  SetHelp(*verb, "nanwatch " + std::string(name) + " (PID|RUN|--job ID|--rank N|--all) [OPTIONS]",
          kFooter);
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
    call.chosen = [options] { return ChangeLevel(*options); };
  });
  return verb;
}

}  // namespace

void AddAttachVerbs(CLI::App& app, VerbCall& call) {
  auto attach = std::make_shared<AttachOptions>();
  CLI::App* verb =
      AddVerb(app, call, "attach", "Change what a live process checks, while it runs.", attach);
  verb->add_option("--level", attach->level, "idle, canary or full (default: full)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember(kLevels));
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
