// SPDX-License-Identifier: Apache-2.0
// The verb `tail`: the last findings, and, followed, the next ones as they come.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/http/http_client.h"
#include "daemon/report/cell_text.h"
#include "daemon/report/incident_words.h"
#include "tools/exit_codes.h"
#include "tools/fleet_options.h"
#include "tools/fleet_question.h"
#include "tools/help_layout.h"
#include "tools/observations.h"
#include "tools/tail_looks.h"
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
    "Exit status: 0; 1 no such run, or the database cannot be read (what lives is shown anyway, "
    "but\n"
    "  no incidents).\n"
    "Environment: NANWATCH_DIR, NANWATCH_STATE_DIR.";

struct TailOptions {
  std::string run;
  int lines = kLinesDefault;
  bool follow = false;
  bool forever = false;
  bool json = false;
  HttpClientOptions fleet;
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
  TailLooks tail(source, options.lines, options.json);
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
    const std::string lines = tail.Next(jobs.all, ended);
    if (!WriteAll(STDOUT_FILENO, lines)) return NotWritten(kExitOk);
    if (!options.follow || (jobs.live.empty() && !options.forever))
      return jobs.stored.ok() && tail.missing().ok() ? kExitOk : kExitFailed;
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
  TailLooks tail(source, options.lines, options.json);
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
      if (!WriteAll(STDOUT_FILENO, tail.Next({job}, ended))) return NotWritten(kExitOk);
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
  // It could be read when this began.
  const Status later = observations.DatabaseStatus();
  if (followed == kExitFailed && database.ok() && !later.ok()) Say(later.message());
  return followed;
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
