// The verb `tail`: the last findings, and, followed, the next ones as they come.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "daemon/explain/training_warnings.h"
#include "daemon/ingest/run_batch.h"
#include "tools/exit_codes.h"
#include "tools/finding_line.h"
#include "tools/help_layout.h"
#include "tools/job_verdict.h"
#include "tools/observations.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr int kFollowEveryMs = 200;
constexpr int kLinesDefault = 20;

constexpr char kFooter[] =
    "One line a finding: time (UTC), run, rank, step, phase, layer, op, class, counts, source "
    "line; and one\n"
    "  an early warning. When a run has ended its incidents follow. A finding alone is no alarm: a "
    "mask is one too; the "
    "verdict is\n"
    "  'nanwatch report's to give.\n"
    "\n"
    "Examples:\n"
    "  nanwatch tail                 the last findings of all runs\n"
    "  nanwatch tail -f 7f3a         follow one run until it has ended\n"
    "  nanwatch tail -f --forever --json | jq .layer\n"
    "\n"
    "Exit status: 0; 1 no such run.\n"
    "Environment: NANWATCH_DIR, NANWATCH_STATE_DIR.";

struct TailOptions {
  std::string run;
  int lines = kLinesDefault;
  bool follow = false;
  bool forever = false;
  bool json = false;
};

// What has been printed so far, so that nothing is printed twice.
class Tail {
 public:
  Tail(const TailOptions& options, Observations& observations)
      : options_(options), observations_(observations) {}

  // Prints what is new of `jobs`, of the first look only the last lines. False when nobody reads
  // any more.
  bool Print(const std::set<std::string>& jobs) {
    std::vector<FindingLine> lines;
    std::string text;
    for (const std::string& job : jobs) text += Collect(job, lines);
    std::stable_sort(lines.begin(), lines.end(), [](const FindingLine& a, const FindingLine& b) {
      return a.real_ns < b.real_ns;
    });
    const size_t shown_max =
        first_look_ ? static_cast<size_t>(std::max(options_.lines, 0)) : lines.size();
    first_look_ = false;
    for (size_t i = lines.size() - std::min(lines.size(), shown_max); i < lines.size(); ++i) {
      text += (options_.json ? LineAsJson(lines[i]) : LineAsText(lines[i])) + "\n";
    }
    return WriteAll(STDOUT_FILENO, text);
  }

  // Prints the incidents of a job that has ended, once.
  bool PrintIncidents(const std::string& job) {
    if (!concluded_.insert(job).second) return true;
    const Verdict verdict =
        VerdictOfJob(observations_.FactsOfJob(job), observations_.ExitOfJob(job));
    std::string text;
    for (const Incident& incident : verdict.incidents()) {
      text +=
          (options_.json ? IncidentAsJson(verdict, incident) : IncidentAsText(verdict, incident)) +
          "\n";
    }
    return WriteAll(STDOUT_FILENO, text);
  }

 private:
  // Adds what is new of its findings, and returns what is new of its warnings: they come before
  // what they warn of.
  std::string Collect(const std::string& job, std::vector<FindingLine>& lines) {
    std::string warnings;
    for (const RunFacts& facts : observations_.FactsOfJob(job)) {
      uint64_t& last = last_tickets_[RunId(facts.run())];
      for (FindingLine& line : FindingsAfter(facts, last)) {
        last = std::max(last, line.ticket);
        lines.push_back(std::move(line));
      }
      warnings += WarningsAfter(facts, warnings_told_[RunId(facts.run())]);
    }
    return warnings;
  }

  std::string WarningsAfter(const RunFacts& facts, size_t& told) const {
    const std::vector<Warning> warnings = WarningsOf(facts);
    std::string text;
    for (; told < warnings.size(); ++told)
      text +=
          (options_.json ? WarningAsJson(warnings[told]) : WarningAsText(warnings[told])) + "\n";
    return text;
  }

  const TailOptions& options_;
  Observations& observations_;
  std::map<std::string, uint64_t> last_tickets_;
  std::map<std::string, size_t> warnings_told_;  // by run
  std::set<std::string> concluded_;
  bool first_look_ = true;
};

struct JobsNow {
  std::set<std::string> all;
  std::set<std::string> live;
};

JobsNow LookAtJobs(Observations& observations, const std::string& only_job) {
  JobsNow jobs;
  for (const SeenRun& run : observations.Runs()) {
    if (!only_job.empty() && run.job != only_job) continue;
    jobs.all.insert(run.job);
    if (run.live) jobs.live.insert(run.job);
  }
  return jobs;
}

// Prints until the runs have ended. A look costs a few milliseconds and no memory that stays: cheap
// enough to repeat, and it sees segments that no daemon has read yet, which a watch on the database
// would not.
int Follow(const TailOptions& options, Observations& observations, const std::string& only_job) {
  Tail tail(options, observations);
  while (true) {
    // Which runs live is asked before their findings are read: what a run wrote last is thus seen.
    const JobsNow jobs = LookAtJobs(observations, only_job);
    if (!tail.Print(jobs.all)) return kExitOk;
    for (const std::string& job : jobs.all) {
      if (!jobs.live.contains(job) && !tail.PrintIncidents(job)) return kExitOk;
    }
    if (!options.follow || (jobs.live.empty() && !options.forever)) return kExitOk;
    poll(nullptr, 0, kFollowEveryMs);
  }
}

int TailRuns(const TailOptions& options) {
  Observations observations(FindPlaces(ProcessEnvironment()));
  if (!observations.places().note.empty()) Say(observations.places().note);
  const Status database = observations.DatabaseStatus();
  if (!database.ok()) Say("the database cannot be read: " + database.message());
  std::string job;
  if (!options.run.empty()) {
    const Result<std::string> resolved = observations.ResolveJob(options.run);
    if (!resolved.ok()) {
      Say(resolved.status().message());
      return kExitFailed;
    }
    job = *resolved;
  }
  return Follow(options, observations, job);
}

}  // namespace

void AddTailVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand("tail", "Print the last findings, and follow the next ones.");
  SetHelp(*verb, "nanwatch tail [RUN] [OPTIONS]", kFooter);
  auto options = std::make_shared<TailOptions>();
  verb->add_option("RUN", options->run, "A run or job, or the beginning of its id (default: all)")
      ->type_name("");
  verb->add_option("-n,--lines", options->lines, "How many of the past (default: 20)")
      ->type_name("COUNT");
  verb->add_flag("-f,--follow", options->follow, "Go on until the runs have ended");
  verb->add_flag("--forever", options->forever, "With -f: go on after that, for runs to come");
  verb->add_flag("--json", options->json, "One JSON object a line");
  verb->callback([options, &call] { call.chosen = [options] { return TailRuns(*options); }; });
}

}  // namespace nanwatch
