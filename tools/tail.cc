// SPDX-License-Identifier: Apache-2.0
// The verb `tail`: the last findings, and, followed, the next ones as they come.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/explain/training_warnings.h"
#include "daemon/http/http_client.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/report/cell_text.h"
#include "daemon/report/incident_words.h"
#include "tools/exit_codes.h"
#include "tools/finding_line.h"
#include "tools/fleet_options.h"
#include "tools/fleet_question.h"
#include "tools/help_layout.h"
#include "tools/observations.h"
#include "tools/tail_lines.h"
#include "tools/tail_source.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

// Segments are asked so often whether anything came, and everything is read when it did. Warnings
// and ends, which no finding announces, are looked for twice a second.
constexpr int kAskEveryMs = 25;
constexpr uint64_t kLookEveryNs = 500'000'000;
// Of the time at most a quarter goes into looks, however much there is to be read.
constexpr uint64_t kRestFactor = 3;
constexpr int kAskFleetEveryMs = 1000;
constexpr int kLinesDefault = 20;

constexpr char kTailHelp[] =
    "One line per finding: time (UTC), run, rank, step, phase, layer, op, class, counts, source "
    "line; and\n"
    "  one per early warning, sorted by time. Findings that only pass a bad value on share one "
    "line, and so\n"
    "  do those of one site. The incidents of a run follow when it has ended. A finding is not an "
    "alarm (a\n"
    "  mask of -Inf is one, too): 'nanwatch report' gives the verdict.\n"
    "\n"
    "Examples:\n"
    "  nanwatch tail                 the last findings of all runs\n"
    "  nanwatch tail -f 7f3a         follow one run until it ends\n"
    "  nanwatch tail -f --forever --json | jq .layer\n"
    "\n"
    "With --fleet RUN is a job's whole id, or JOB@LAUNCH; without it the job that started last.\n"
    "Exit status: 0; 1 no such run, or the database cannot be read (live runs are shown anyway).\n"
    "Environment: NANWATCH_DIR, NANWATCH_STATE_DIR.";

struct TailOptions {
  std::string run;
  int lines = kLinesDefault;
  bool follow = false;
  bool forever = false;
  bool json = false;
  HttpClientOptions fleet;
};

// What has been printed so far, so that nothing is printed twice.
class Tail {
 public:
  Tail(const TailOptions& options, TailSource& source) : options_(options), source_(source) {}

  [[nodiscard]] bool IsFirstLook() const { return first_look_; }

  // Prints what is new of `jobs`, and of those in `ended` the incidents, once; of the first look
  // only the last lines. False when they could not be written.
  bool Print(const std::set<std::string>& jobs, const std::set<std::string>& ended) {
    std::vector<TailEntry> entries;
    for (const std::string& job : jobs) {
      // Nothing comes after what was read when it had ended, unless it is started once more.
      if (!ended.contains(job)) {
        settled_.erase(job);
      } else if (!settled_.insert(job).second) {
        continue;
      }
      const std::vector<RunFacts> facts = source_.FactsOf(job);
      for (const RunFacts& run : facts) Collect(run, entries);
      if (ended.contains(job) && concluded_.insert(job).second)
        CollectIncidents(job, facts, entries);
    }
    const size_t lines_max =
        first_look_ ? static_cast<size_t>(std::max(options_.lines, 0)) : entries.size();
    first_look_ = false;
    return WriteAll(STDOUT_FILENO, LastLines(std::move(entries), lines_max, options_.json));
  }

 private:
  // Adds what is new of its findings and warnings.
  void Collect(const RunFacts& facts, std::vector<TailEntry>& entries) {
    uint64_t& last = last_tickets_[RunId(facts.run())];
    const size_t first_of_run = entries.size();
    for (const FindingLine& line : FindingsAfter(facts, last)) {
      last = std::max(last, line.ticket);
      entries.push_back({.real_ns = line.real_ns,
                         .text = options_.json ? LineAsJson(line) : LineAsText(line),
                         .finding = line});
    }
    const std::vector<Warning> warnings = WarningsOf(facts);
    size_t& printed = warnings_printed_[RunId(facts.run())];
    for (; printed < warnings.size(); ++printed)
      entries.push_back({.real_ns = TimeOf(warnings[printed], facts, entries, first_of_run),
                         .text = options_.json
                                     ? WarningAsJson(warnings[printed])
                                     : WarningLine(facts.run().program(), warnings[printed]),
                         .finding = {}});
  }

  // A warning has a step and no time: it comes before the first finding of its run that is not of
  // an earlier step, else where the run has got to.
  static uint64_t TimeOf(const Warning& warning, const RunFacts& facts,
                         const std::vector<TailEntry>& entries, size_t first_of_run) {
    for (size_t i = first_of_run; i < entries.size(); ++i) {
      const bool later = entries[i].finding && entries[i].finding->step >= warning.step();
      if (later && entries[i].real_ns > 0) return entries[i].real_ns - 1;
    }
    return EndOf(facts);
  }

  static uint64_t EndOf(const RunFacts& facts) {
    return facts.state().ended() && facts.state().ended_real_ns() > 0
               ? facts.state().ended_real_ns()
               : SystemClock().real_ns();
  }

  void CollectIncidents(const std::string& job, const std::vector<RunFacts>& facts,
                        std::vector<TailEntry>& entries) {
    uint64_t end_ns = 0;
    for (const RunFacts& run : facts) end_ns = std::max(end_ns, EndOf(run));
    for (const TailEntry& entry : entries) {
      const bool of_job = entry.finding && std::any_of(facts.begin(), facts.end(), [&](auto& run) {
                            return RunId(run.run()) == entry.finding->run;
                          });
      if (of_job) end_ns = std::max(end_ns, entry.real_ns);
    }
    const Verdict verdict = source_.VerdictOn(job, facts);
    for (const Incident& incident : verdict.incidents())
      entries.push_back({.real_ns = end_ns,
                         .text = options_.json ? IncidentAsJson(verdict, incident)
                                               : IncidentLine(verdict, incident),
                         .finding = {}});
  }

  const TailOptions& options_;
  TailSource& source_;
  std::map<std::string, uint64_t> last_tickets_;
  std::map<std::string, size_t> warnings_printed_;  // by run
  std::set<std::string> concluded_;
  std::set<std::string> settled_;
  bool first_look_ = true;
};

JobNames LookAtJobs(Observations& observations, const std::string& only_job) {
  JobNames jobs = observations.Jobs();
  if (only_job.empty()) return jobs;
  for (std::set<std::string>* names : {&jobs.all, &jobs.live})
    std::erase_if(*names, [&](const std::string& job) { return job != only_job; });
  return jobs;
}

// Until there may be something new, and the last look has been paid for.
void AwaitNews(Observations& observations, uint64_t look_began_ns) {
  const SystemClock clock;
  const uint64_t took_ns = clock.monotonic_ns() - look_began_ns;
  const uint64_t rested_at_ns = clock.monotonic_ns() + kRestFactor * took_ns;
  const uint64_t due_ns = std::max(rested_at_ns, look_began_ns + kLookEveryNs);
  bool news = false;
  do {
    poll(nullptr, 0, kAskEveryMs);
    news |= observations.HasNewFindings();
  } while (clock.monotonic_ns() < (news ? rested_at_ns : due_ns));
}

// Prints until the runs have ended. Segments say when, because findings are there before a daemon
// has read them.
int Follow(const TailOptions& options, Observations& observations, const std::string& only_job) {
  HostSource source(observations);
  Tail tail(options, source);
  while (true) {
    // Which runs live is asked before their findings are read: what a run wrote last is thus seen.
    const uint64_t look_began_ns = SystemClock().monotonic_ns();
    if (tail.IsFirstLook()) (void)observations.HasNewFindings();
    const JobNames jobs = LookAtJobs(observations, only_job);
    if (jobs.all.empty() && tail.IsFirstLook() && observations.DatabaseStatus().ok()) {
      Say(NoRunIsKnown(observations.places()));
      if (options.follow && options.forever) Say("waiting for the first run (Ctrl-C to stop)");
    }
    std::set<std::string> ended;
    std::set_difference(jobs.all.begin(), jobs.all.end(), jobs.live.begin(), jobs.live.end(),
                        std::inserter(ended, ended.end()));
    if (!tail.Print(jobs.all, ended)) return NotWritten(kExitOk);
    if (!options.follow || (jobs.live.empty() && !options.forever)) return kExitOk;
    AwaitNews(observations, look_began_ns);
  }
}

// What a person has to know of the fleet, whenever it has become other.
class FleetRemarks {
 public:
  void Say(const FleetVerdict& verdict, const std::string& job) {
    SayWhoBegan(verdict.verdict());
    for (const std::string& remark : RemarksOn(verdict, job)) {
      if (said_.insert(remark).second) nanwatch::Say(Printable(remark));
    }
  }

 private:
  // A rank that comes late may have begun it.
  void SayWhoBegan(const Verdict& verdict) {
    if (verdict.incidents().empty()) return;
    const Finding& origin = verdict.incidents(0).origin();
    const std::string began = IncidentLine(verdict, verdict.incidents(0));
    const std::pair key(origin.run(), origin.ticket());
    if (began_.has_value() && *began_ != key)
      nanwatch::Say("the answer has changed: " + Printable(began));
    began_ = key;
  }

  std::optional<std::pair<std::string, uint64_t>> began_;
  std::set<std::string> said_;
};

// Prints until the job has ended, or fell silent. A gatherer that is away is waited for.
int FollowFleet(const TailOptions& options, const std::string& job) {
  FleetSource source(options.fleet);
  Tail tail(options, source);
  FleetRemarks remarks;
  Status trouble;
  while (true) {
    const Status asked = source.Ask(job);
    if (!asked.ok() && (tail.IsFirstLook() || asked.kind() == ErrorKind::kNotFound)) {
      Say(asked.message());
      return kExitFailed;
    }
    if (!asked.ok() && trouble.ok()) Say("waiting for the gatherer: " + asked.message());
    trouble = asked;
    if (asked.ok()) {
      remarks.Say(source.verdict(), job);
      const std::set<std::string> ended =
          source.is_live() ? std::set<std::string>() : std::set<std::string>{job};
      if (!tail.Print({job}, ended)) return NotWritten(kExitOk);
      if (!options.follow || (!source.is_live() && !options.forever)) return kExitOk;
    }
    poll(nullptr, 0, kAskFleetEveryMs);
  }
}

int TailFleet(const TailOptions& options) {
  if (!MayAskFleet(options.fleet)) return kExitUsage;
  const Result<std::string> job = FleetJobOf(options.fleet, options.run);
  if (job.ok()) return FollowFleet(options, *job);
  Say(job.status().message());
  return kExitFailed;
}

int TailRuns(const TailOptions& options) {
  if (AsksFleet(options.fleet)) return TailFleet(options);
  Observations observations(FindPlaces(ProcessEnvironment()));
  if (!observations.places().note.empty()) Say(observations.places().note);
  const Status database = observations.DatabaseStatus();
  std::string job;
  if (!options.run.empty()) {
    const Result<std::string> resolved = observations.ResolveJob(options.run);
    if (!resolved.ok()) {
      Say(resolved.status().message());
      return kExitFailed;
    }
    job = *resolved;
  }
  if (!database.ok()) Say(database.message());
  const int followed = Follow(options, observations, job);
  return database.ok() ? followed : kExitFailed;
}

}  // namespace

void AddTailVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand("tail", "Print the last findings, and follow the next ones.");
  SetHelp(*verb, "nanwatch tail [RUN] [OPTIONS]", kTailHelp);
  auto options = std::make_shared<TailOptions>();
  verb->add_option("RUN", options->run,
                   "A PID, or the id of a run or job, or its beginning (default: all)")
      ->type_name("");
  verb->add_option("-n,--lines", options->lines, "Print the last N lines (default: 20)")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000'000));
  verb->add_flag("-f,--follow", options->follow, "Print new findings until the runs have ended");
  verb->add_flag("--forever", options->forever, "With -f: keep going, and follow new runs");
  verb->add_flag("--json", options->json, "One JSON object per line");
  AddFleetOptions(*verb, options->fleet);
  verb->callback([options, &call] { call.chosen = [options] { return TailRuns(*options); }; });
}

}  // namespace nanwatch
