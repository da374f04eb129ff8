// SPDX-License-Identifier: Apache-2.0
#include "tools/run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "daemon/base/clock.h"
#include "daemon/base/directories.h"
#include "daemon/base/unique_fd.h"
#include "daemon/explain/ignore_rules.h"
#include "daemon/ingest/secret_words.h"
#include "daemon/report/json_report.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/text_report.h"
#include "daemon/report/unknown_text.h"
#include "proto/wire/capsule.h"
#include "proto/wire/ignore_section.h"
#include "proto/wire/launch.h"
#include "proto/wire/naming.h"
#include "tools/capsule/capsule.h"
#include "tools/capsule/job_capsules.h"
#include "tools/child.h"
#include "tools/command.h"
#include "tools/daemon_start.h"
#include "tools/exit_codes.h"
#include "tools/fellow_launchers.h"
#include "tools/ignore_option.h"
#include "tools/installation.h"
#include "tools/job_end.h"
#include "tools/job_exit.h"
#include "tools/job_leftovers.h"
#include "tools/job_verdict.h"
#include "tools/launch_turn.h"
#include "tools/observations.h"
#include "tools/source_lines.h"
#include "tools/terminal.h"
#include "tools/unseen_job.h"
#include "tools/verdict_file.h"

namespace nanwatch {
namespace {

// What was found out and set up before the command starts.
struct Preparation {
  int exit_code = kExitOk;  // not 0: do not start
  VerdictFile verdict_file;
  JobLaunch launch;
  Places places;
  bool shares_job = false;  // others may run in it: a launcher or NANWATCH_JOB named it
  bool announces = true;
  bool keeps_capsules = false;
  uint64_t started_real_ns = 0;
  LauncherMark mark;
};

Preparation Refuse(int exit_code, const std::string& why) {
  Say(why);
  Preparation refused;
  refused.exit_code = exit_code;
  return refused;
}

// Segments need a directory that is ours alone. Without one the job runs, unobserved.
void PrepareSegmentDirectory(Preparation& prepared, const EnvironmentBlock& outside) {
  Status status = prepared.places.segment_status;
  if (status.kind() == ErrorKind::kNotFound && !prepared.places.segment_dir.empty()) {
    status = EnsureSegmentDirectory(prepared.places.segment_dir);
  }
  prepared.places.segment_status = status;
  if (status.ok()) return;
  prepared.launch.environment = outside;
  LeaveUnobserved(status.message(), "", prepared.launch);
}

// Ranks that a launcher starts with a `run` each are one job. NANWATCH_JOB wins. The daemon stays
// as long as the mark does, also while the command has no segment yet.
void PrepareJob(Preparation& prepared, const EnvironmentBlock& outside) {
  if (!prepared.launch.observed) return;
  const std::string job =
      prepared.shares_job ? "" : JobOfLaunch(outside, prepared.places.segment_dir);
  if (!job.empty()) {
    prepared.shares_job = true;
    prepared.launch.job = job;
    prepared.launch.environment.Set(wire::kEnvJob, job);
  }
  if (prepared.shares_job) prepared.announces = SpeaksForRanks(outside);
  prepared.mark = LauncherMark::Join(prepared.places.segment_dir, prepared.launch.job);
}

void PrepareDaemon(Preparation& prepared, const EnvironmentBlock& outside,
                   const Installation& installation) {
  if (!prepared.launch.observed || RunningDaemon(prepared.places.segment_dir).has_value()) return;
  const std::string failure = StartDaemon(installation, outside, prepared.places.segment_dir);
  if (failure.empty()) {
    // Where its database is, it has decided now.
    prepared.places = FindPlaces(ProcessEnvironment());
    if (prepared.places.is_beside()) prepared.launch.notes.push_back(prepared.places.note);
    return;
  }
  prepared.launch.notes.push_back(
      "the daemon could not be started: " + failure +
      "; the command is watched anyway, and its findings are read when it ends");
}

// The job carries its rules, so every later verdict about it uses them.
void PrepareRules(const RunOptions& options, const EnvironmentBlock& outside,
                  Preparation& prepared) {
  std::vector<std::string> given = {outside.Text(wire::kEnvIgnore)};
  given.insert(given.end(), options.ignore.begin(), options.ignore.end());
  const IgnoreText rules = ReadIgnoreOptions(given);
  std::vector<std::string> problems = rules.problems;
  const IgnoreRules parsed = ParseIgnoreRules(rules.text);
  problems.insert(problems.end(), parsed.problems.begin(), parsed.problems.end());
  if (rules.text.size() > wire::kIgnoreBytesMax) {
    problems.push_back("the rules are longer than " + std::to_string(wire::kIgnoreBytesMax) +
                       " bytes: those at the end are not used");
  }
  if (!rules.text.empty()) prepared.launch.environment.Set(wire::kEnvIgnore, rules.text);
  std::vector<std::string>& notes = prepared.launch.notes;
  notes.insert(notes.end(), problems.begin(), problems.end());
}

// Where the job writes capsules, if it is to.
void PrepareCapsules(Preparation& prepared) {
  EnvironmentBlock& environment = prepared.launch.environment;
  const std::string kind = environment.Text(wire::kEnvCapsule);
  if (!prepared.launch.observed || kind.empty() || kind == "off") return;
  prepared.keeps_capsules = true;
  environment.Set(wire::kEnvCapsuleDir, CapsuleDirectory(prepared.places.state_dir));
  const std::string level = environment.Text(wire::kEnvLevel);
  if (level.empty() || level == "full" || level == "sampled") return;
  prepared.launch.notes.push_back(
      "capsules are written only while every op is checked: use --level full, not " + level);
}

Preparation Prepare(const RunOptions& options) {
  const EnvironmentBlock outside = EnvironmentBlock::OfThisProcess();
  const std::string wrong = FindWrongUse(options, outside);
  if (!wrong.empty()) return Refuse(kExitUsage, wrong);
  const CommandLookup lookup = FindCommand(options.command[0], outside.Text("PATH"));
  if (lookup.exit_code != 0) return Refuse(lookup.exit_code, lookup.message);
  Preparation prepared;
  std::string verdict_problem;
  prepared.verdict_file = VerdictFile::Open(options.verdict_path, verdict_problem);
  if (!verdict_problem.empty()) return Refuse(kExitUsage, verdict_problem);

  const Installation installation = LocateInstallation();
  prepared.launch = PlanLaunch(options, outside, installation, RandomJobId());
  prepared.places = FindPlaces(ProcessEnvironment());
  prepared.shares_job = !outside.Text(wire::kEnvJob).empty();
  if (!prepared.launch.observed) return prepared;
  PrepareRules(options, outside, prepared);
  PrepareSegmentDirectory(prepared, outside);
  PrepareJob(prepared, outside);
  PrepareDaemon(prepared, outside, installation);
  PrepareCapsules(prepared);
  return prepared;
}

void Announce(const RunOptions& options, const Preparation& prepared) {
  for (const std::string& note : prepared.launch.notes) Say(note);
  if (!prepared.launch.observed || !prepared.announces) return;
  const std::string level = prepared.launch.environment.Text(wire::kEnvLevel);
  Say("watching " + options.command[0] + ", job " + prepared.launch.job +
      (level.empty() ? "" : ", level " + level) + "; the report follows when it ends");
}

// The document of a command in which nothing was seen: who it was and how it ended, no runs.
Verdict NothingSeen(const RunOptions& options, const std::string& job, const JobExit& exit,
                    const std::vector<UnwatchedProcess>& unwatched = {}) {
  Verdict verdict = VerdictOfJob({}, exit, unwatched);
  RunInfo& run = *verdict.mutable_run();
  run.set_job(job);
  run.set_host(HostName());
  run.set_pid(exit.pid);
  for (const std::string& word : WithoutSecrets(options.command)) run.add_command(word);
  run.set_ended_at(FormatUtc(exit.ended_real_ns));
  if (exit.exit_code.has_value()) run.set_exit_code(*exit.exit_code);
  if (exit.signal.has_value()) run.set_signal(*exit.signal);
  return verdict;
}

JobExit DescribeExit(const std::string& job, pid_t pid, const CommandEnd& end) {
  JobExit exit = {.job = job,
                  .pid = pid,
                  .exit_code = {},
                  .signal = {},
                  .ended_real_ns = SystemClock().real_ns()};
  if (end.by_signal) {
    exit.signal = end.signal;
  } else {
    exit.exit_code = end.exit_code;
  }
  return exit;
}

// Without a daemon nobody else removes what was read. Findings stay for `report`; the next job
// removes the oldest where they become too many, and clean segments of ranks whose launchers ended.
void RemoveWhatWasRead(const Preparation& prepared, Observations& observations,
                       const std::string& job, const Verdict& verdict) {
  if (verdict.verdict() == "anomaly" || prepared.shares_job) return;
  if (RunningDaemon(observations.places().segment_dir).has_value()) return;
  RemoveReadSegments(observations, job);
}

void SayWhyNothing(const Preparation& prepared, const std::string& job, const Verdict& nothing) {
  const std::string elsewhere = JobInAnotherPlace(prepared.places.segment_dir, job);
  if (nothing.unwatched().empty() && !elsewhere.empty()) {
    Say("nothing was observed here: the command ran in its own container, and its segments "
        "are in " +
        elsewhere + "; start 'nanwatch run' inside that container");
    return;
  }
  const UnknownText text = TextOfUnknown(nothing);
  Say("unknown: " + Unglued(text.what + "; " + text.remedy));
}

// Launchers that share a job take turns from reading to writing, so that the last document was also
// the last to be read for. Lets go when it is destroyed, or the process ends.
UniqueFd TakeTurn(const Preparation& prepared) {
  if (!prepared.shares_job) return UniqueFd();
  UniqueFd directory(open(prepared.places.segment_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (directory.valid() && flock(directory.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return directory;
}

int LiveRunsOf(Observations& observations, const std::string& job) {
  const std::vector<SeenRun> runs = observations.RunsOfJob(job);
  return static_cast<int>(
      std::count_if(runs.begin(), runs.end(), [](const SeenRun& run) { return run.live; }));
}

std::string ProcessesStillRun(int live, const std::string& job) {
  return std::to_string(live) + (live == 1 ? " process of job " : " processes of job ") + job +
         (live == 1 ? " still runs" : " still run");
}

// Concludes from what was read.
Verdict Judge(const RunOptions& options, const Preparation& prepared, Observations& observations,
              const JobExit& exit) {
  const std::vector<UnwatchedProcess> unwatched = UnwatchedOfJob(prepared.places, exit.job);
  KeepUnwatched(prepared.places, exit.job, unwatched);
  const std::vector<RunFacts> facts = observations.FactsOfJob(exit.job);
  if (facts.empty()) return NothingSeen(options, exit.job, exit, unwatched);
  Verdict verdict = VerdictOfJob(facts, exit, unwatched);
  const Status database = observations.DatabaseStatus();
  if (!database.ok()) Say(database.message());
  RemoveWhatWasRead(prepared, observations, exit.job, verdict);
  return verdict;
}

// Waits until all that has ended was read.
void AwaitReading(SignalGate& gate, const Preparation& prepared, Observations& observations,
                  const JobExit& exit, const CommandEnd& end) {
  if (observations.RunsOfJob(exit.job).empty()) return;
  const Status written =
      WriteJobExit(prepared.places.segment_dir, exit.job, exit.pid, end, exit.ended_real_ns);
  if (!written.ok()) Say(written.message());
  const JobEndWait waited = AwaitJobEnd(gate, observations, exit.job, end.asked_to_stop);
  if (waited == JobEndWait::kGaveUp)
    Say("the daemon has not read everything yet; reading the rest from the segments");
}

void WriteVerdict(const Verdict& verdict, Preparation& prepared) {
  const std::string problem = prepared.verdict_file.Write(JsonReport(verdict));
  if (!problem.empty()) Say(problem);
}

void Show(const RunOptions& options, const Verdict& verdict) {
  if (options.json) {
    WriteAll(STDERR_FILENO, JsonReport(verdict));
  } else if (verdict.runs_size() > 0) {
    WriteAll(STDERR_FILENO, TextReport(verdict, {.color = WantsColor(STDERR_FILENO),
                                                 .width_columns = ReportColumns(STDERR_FILENO),
                                                 .source_path = SourcePathOf(verdict)}));
  }
}

// One report a job: the launcher that ends last prints it. The others are silent, unless something
// is wrong already and the rest of the job goes on.
void ShowOnce(const RunOptions& options, const Preparation& prepared, const Verdict& verdict,
              bool is_last, int live) {
  const std::string& job = prepared.launch.job;
  if (is_last) {
    if (verdict.runs_size() == 0) SayWhyNothing(prepared, job, verdict);
    if (live > 0) Say(ProcessesStillRun(live, job) + ": this is the report so far");
    Show(options, verdict);
  } else if (live > 0 && verdict.verdict() == "anomaly") {
    Say("an anomaly was found, and " + ProcessesStillRun(live, job) + ": 'nanwatch report " + job +
        "' shows it now, and the last rank to end prints it");
  }
}

// The command ran without us. It is a process of its job that nobody watched.
void ConcludeUnobserved(const RunOptions& options, Preparation& prepared, const JobExit& exit) {
  UnwatchedProcess command;
  command.set_pid(exit.pid);
  command.set_reason(prepared.launch.reason);
  command.set_detail(prepared.launch.detail);
  const Verdict nothing = NothingSeen(options, exit.job, exit, {command});
  KeepUnseen(prepared.places, prepared.started_real_ns, nothing);
  if (prepared.shares_job) {
    std::vector<UnwatchedProcess> unwatched = UnwatchedOfJob(prepared.places, exit.job);
    unwatched.push_back(command);
    KeepUnwatched(prepared.places, exit.job, unwatched);
  }
  WriteVerdict(nothing, prepared);
  SayWhyNothing(prepared, exit.job, nothing);
  Show(options, nothing);
}

void SettleAndAdd(const std::string& state_dir, Verdict& verdict) {
  const std::string directory = CapsuleDirectory(state_dir);
  for (const std::string& problem : SettleCapsules(directory, verdict)) Say(problem);
  AddCapsules(directory, verdict);
}

void Conclude(const RunOptions& options, SignalGate& gate, Preparation& prepared,
              const JobExit& exit, const CommandEnd& end) {
  if (!prepared.launch.observed) {
    ConcludeUnobserved(options, prepared, exit);
    return;
  }
  Observations observations(prepared.places);
  AwaitReading(gate, prepared, observations, exit, end);
  std::optional<UniqueFd> turn = TakeTurn(prepared);
  const bool is_last = prepared.mark.OthersLive() == 0;
  const int live = prepared.shares_job ? LiveRunsOf(observations, exit.job) : 0;
  Verdict verdict = Judge(options, prepared, observations, exit);
  if (prepared.keeps_capsules && live == 0) SettleAndAdd(prepared.places.state_dir, verdict);
  if (verdict.runs_size() == 0) KeepUnseen(prepared.places, prepared.started_real_ns, verdict);
  if (is_last || options.verdict_path != "-") WriteVerdict(verdict, prepared);
  prepared.mark.Leave();
  turn.reset();
  ShowOnce(options, prepared, verdict, is_last, live);
}

}  // namespace

int RunCommand(const RunOptions& options) {
  Preparation prepared = Prepare(options);
  if (prepared.exit_code != kExitOk) return prepared.exit_code;
  Announce(options, prepared);
  prepared.started_real_ns = SystemClock().real_ns();
  // Processes leave their segments for us, also when nothing was found.
  prepared.launch.environment.Set(wire::kEnvRun, std::to_string(getpid()));
  if (prepared.launch.observed)
    prepared.launch.environment.Set(wire::kEnvRunDir, prepared.places.segment_dir);
  SignalGate gate;
  const StartedProcess start =
      StartCommand(gate, options.command, prepared.launch.environment.Assignments());
  if (start.error != 0) {
    const CommandLookup failure = ExplainExecFailure(options.command[0], start.error);
    Say(failure.message);
    return failure.exit_code;
  }
  // A reader of stderr that has gone must not keep the command's status from its parent.
  signal(SIGPIPE, SIG_IGN);
  const CommandEnd end = WaitForCommand(gate, start.pid);
  const JobExit exit = DescribeExit(prepared.launch.job, start.pid, end);
  Conclude(options, gate, prepared, exit, end);
  EndLike(end);
}

}  // namespace nanwatch
