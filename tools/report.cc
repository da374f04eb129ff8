// SPDX-License-Identifier: Apache-2.0
// The verb `report`: the verdict for a job, for people, programs and CI.
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/explain/parameter_reports.h"
#include "daemon/report/cell_text.h"
#include "daemon/report/explanation_text.h"
#include "daemon/report/json_report.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/text_report.h"
#include "tools/capsule/capsule.h"
#include "tools/capsule/job_capsules.h"
#include "tools/environment_block.h"
#include "tools/exit_codes.h"
#include "tools/fleet_options.h"
#include "tools/fleet_page.h"
#include "tools/fleet_question.h"
#include "tools/help_layout.h"
#include "tools/ignore_option.h"
#include "tools/job_leftovers.h"
#include "tools/job_page.h"
#include "tools/job_verdict.h"
#include "tools/observations.h"
#include "tools/output_file.h"
#include "tools/source_lines.h"
#include "tools/start_process.h"
#include "tools/stats_table.h"
#include "tools/terminal.h"
#include "tools/unseen_job.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr char kReportHelp[] =
    "RUN is a PID, or the id of a run or job, or its beginning ('nanwatch ps'). Without it, the "
    "job of the\n"
    "  newest run is reported, or the newest 'nanwatch run' in which nothing was observed. A job "
    "that still\n"
    "  runs is reported as far as it has got.\n"
    "\n"
    "Examples:\n"
    "  nanwatch report\n"
    "  nanwatch report 7f3a --coverage\n"
    "  nanwatch report 7f3a --explain 1\n"
    "  nanwatch report 7f3a --stats\n"
    "  nanwatch report 7f3a --html report.html --open\n"
    "  nanwatch report --ignore 'op=aten::log layer=encoder.mask*'     ('nanwatch run --help' has "
    "the rules)\n"
    "  nanwatch report JOB --fleet https://gather.example.org --token-file TOKEN\n"
    "  nanwatch report --check --json > verdict.json || echo 'check verdict.json'\n"
    "\n"
    "Exit status: 0; with --check 0 clean or expected, 2 anomaly, 3 unknown (too little was "
    "watched to say);\n"
    "  1 no such run; 64 wrong use.\n"
    "Environment: NANWATCH_DIR, NANWATCH_STATE_DIR, NO_COLOR.";

struct ReportOptions {
  std::string run;
  std::vector<std::string> ignore;
  uint32_t explain = 0;
  bool check = false;
  bool coverage = false;
  bool stats = false;
  bool json = false;
  std::string html;  // file; "" no page
  bool open = false;
  HttpClientOptions fleet;  // url "": this host
};

std::string Render(const ReportOptions& options, const Diagnosed& diagnosed, bool live = false) {
  const Verdict& verdict = diagnosed.verdict;
  if (options.explain > 0) {
    return options.json ? JsonExplanation(diagnosed.explanation)
                        : ExplanationText(diagnosed.explanation, ReportColumns(STDOUT_FILENO));
  }
  if (options.json) return JsonReport(verdict);
  if (options.coverage) return CoverageReport(verdict);
  return TextReport(verdict,
                    {.color = WantsColor(STDOUT_FILENO),
                     .width_columns = ReportColumns(STDOUT_FILENO),
                     .live = live,
                     .source_path = AsksFleet(options.fleet) ? "" : SourcePathOf(verdict)});
}

// Shows a file by the desktop's own program for it.
void OpenFile(const std::string& path) {
  const ProcessStart start = {.argv = {"xdg-open", path},
                              .environment = EnvironmentBlock::OfThisProcess().Assignments(),
                              .looks_in_path = true,
                              .in = ProcessStart::kNothing,
                              .out = ProcessStart::kNothing,
                              .err = ProcessStart::kNothing,
                              .only_these_descriptors = true};
  const StartedProcess opened = StartProcess(start);
  const std::optional<int> status =
      opened.error == 0 ? AwaitProcess(opened.pid) : std::optional<int>();
  if (opened.error != 0 || status.value_or(0) != 0)
    Say("no browser could be opened: open '" + path + "' in one");
}

int WritePageText(const ReportOptions& options, const std::string& page) {
  const Status written = WriteOutputFile(options.html, page);
  if (!written.ok()) {
    Say("the page was not written: " + written.message());
    return kExitFailed;
  }
  if (options.html == "-") return kExitOk;
  Say("wrote " + options.html + " (" + Grouped((page.size() + 1023) / 1024) + " KiB)");
  if (options.open) OpenFile(options.html);
  return kExitOk;
}

int WritePage(const ReportOptions& options, const PageFacts& facts) {
  return WritePageText(options, PageFile(facts));
}

int ReportParameters(const ReportOptions& options, const std::string& job,
                     Observations& observations) {
  const StatsReport report = ReportStats(observations.FactsWithStatsOfJob(job), job);
  if (report.snapshots().empty()) {
    Say("there is no snapshot of the parameters: 'nanwatch run --stats N' takes one every N steps "
        "of a torch optimizer, at every level but idle");
    return kExitFailed;
  }
  return PrintAndExit(options.json ? JsonStats(report) : StatsTables(report), kExitOk);
}

// The kept document of the job that `report` was asked for, where nothing was observed in it: it is
// newer than every run, or no run has this name.
std::optional<Verdict> UnseenVerdict(const ReportOptions& options, const Result<std::string>& job,
                                     Observations& observations) {
  const std::optional<UnseenJob> unseen = FindUnseen(observations.places(), options.run);
  if (!unseen.has_value()) return std::nullopt;
  if (!job.ok()) {
    if (job.status().kind() == ErrorKind::kAmbiguous) return std::nullopt;
    return ReadUnseen(*unseen);
  }
  if (!options.run.empty() && unseen->job != *job) return std::nullopt;
  for (const SeenRun& run : observations.Runs()) {
    if (run.job != unseen->job && !options.run.empty()) continue;
    if (run.run.started_real_ns() > unseen->started_real_ns) return std::nullopt;
    // Others of the job were watched at the time: its verdict is made of both.
    const bool ended_before =
        run.state.ended_real_ns() != 0 && run.state.ended_real_ns() < unseen->started_real_ns;
    if (run.job == unseen->job && !ended_before) return std::nullopt;
  }
  return ReadUnseen(*unseen);
}

int ReportUnseen(const ReportOptions& options, const Verdict& verdict,
                 const Result<std::string>& watched) {
  const int printed =
      options.html.empty()
          ? PrintAndExit(Render(options, {.verdict = verdict, .explanation = {}}), kExitOk)
          : WritePage(options, {.verdict = verdict,
                                .stats = {},
                                .series = {},
                                .job = verdict.run().job(),
                                .made_at = FormatUtc(SystemClock().real_ns()),
                                .version = NANWATCH_VERSION});
  if (watched.ok() && options.run.empty())
    Say("the newest job that was watched is " + *watched + ": 'nanwatch report " + *watched +
        "' shows it");
  return options.check && printed == kExitOk ? CheckExitCode(verdict) : printed;
}

int WriteFleetPage(const ReportOptions& options, const std::string& job,
                   const FleetVerdict& fleet) {
  const Result<std::string> page = FleetPageFile(options.fleet, job, fleet, {});
  if (!page.ok()) {
    Say(page.status().message());
    return kExitFailed;
  }
  return WritePageText(options, *page);
}

int ReportFleet(const ReportOptions& options) {
  if (options.stats || options.explain > 0 || !options.ignore.empty()) {
    Say("--stats, --explain and --ignore are for jobs of this host: add '--fleet none'");
    return kExitUsage;
  }
  if (!MayAskFleet(options.fleet)) return kExitUsage;
  const Result<std::string> job = FleetJobOf(options.fleet, options.run);
  const Result<FleetVerdict> fleet =
      job.ok() ? AskFleetVerdict(options.fleet, *job) : Result<FleetVerdict>(job.status());
  if (!fleet.ok()) {
    Say(fleet.status().message());
    return kExitFailed;
  }
  for (const std::string& remark : RemarksOn(*fleet, *job)) Say(Printable(remark));
  const int printed =
      options.html.empty()
          ? PrintAndExit(Render(options, {.verdict = fleet->verdict(), .explanation = {}}), kExitOk)
          : WriteFleetPage(options, *job, *fleet);
  return options.check && printed == kExitOk ? CheckExitCode(fleet->verdict()) : printed;
}

int Report(const ReportOptions& options) {
  if (AsksFleet(options.fleet)) return ReportFleet(options);
  Observations observations(FindPlaces(ProcessEnvironment()));
  if (!observations.places().note.empty()) Say(observations.places().note);
  const Result<std::string> job = observations.ResolveJob(options.run);
  const Status database = observations.DatabaseStatus();
  const std::optional<Verdict> unseen = UnseenVerdict(options, job, observations);
  const bool is_unseen = unseen.has_value() && options.explain == 0 && !options.stats;
  if (!database.ok() && (job.ok() || is_unseen)) Say(database.message());
  if (is_unseen) return ReportUnseen(options, *unseen, job);
  if (!job.ok()) {
    Say(job.status().message());
    return options.check && options.run.empty() ? kExitCannotTell : kExitFailed;
  }
  if (options.stats) return ReportParameters(options, *job, observations);
  const IgnoreText rules = ReadIgnoreOptions(options.ignore);
  for (const std::string& problem : rules.problems) Say(problem);
  const std::vector<RunFacts> facts =
      options.html.empty() ? observations.FactsOfJob(*job) : observations.FactsWithStatsOfJob(*job);
  Diagnosed diagnosed = DiagnosisOfJob(facts, observations.ExitOfJob(*job),
                                       {.further_rules = rules.text,
                                        .explained = options.explain,
                                        .unwatched = UnwatchedOfJob(observations.places(), *job)});
  Verdict& verdict = diagnosed.verdict;
  AddCapsules(CapsuleDirectory(observations.places().state_dir), verdict);
  if (options.explain > 0 && diagnosed.explanation.steps().empty()) {
    Say("there is no incident " + std::to_string(options.explain) + ": the verdict is " +
        verdict.verdict() + ", with " + std::to_string(verdict.incidents_size()) +
        (verdict.incidents_size() == 1 ? " incident" : " incidents"));
    return kExitFailed;
  }
  const int printed = options.html.empty()
                          ? PrintAndExit(Render(options, diagnosed, StillRuns(facts)), kExitOk)
                          : WritePage(options, PageFactsOf(*job, facts, verdict, observations));
  if (!options.html.empty() && printed != kExitOk) return printed;
  return options.check ? CheckExitCode(verdict) : printed;
}

}  // namespace

void AddReportVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand(
      "report", "Report which op went wrong first, in which layer and step, why, and what to do.");
  SetHelp(*verb, "nanwatch report [RUN] [OPTIONS]", kReportHelp);
  auto options = std::make_shared<ReportOptions>();
  verb->add_option("RUN", options->run, "A PID, or the id of a run or job, or its beginning")
      ->type_name("");
  verb->add_flag("--check", options->check,
                 "Exit with 0, 2 or 3, depending on the verdict: for scripts and CI");
  verb->add_flag("--coverage", options->coverage, "Show what was watched, what was not, and why");
  verb->add_flag("--stats", options->stats,
                 "Show each parameter's gradient and update ('nanwatch run --stats N')")
      ->excludes("--check", "--coverage");
  verb->add_option("--explain", options->explain,
                   "Show step by step how incident N followed from the records")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  verb->add_option("--ignore", options->ignore,
                   "A rule for incidents that you expect, in addition to the job's own rules")
      ->type_name("RULE|@FILE")
      ->allow_extra_args(false);
  CLI::Option* html =
      verb->add_option("--html", options->html,
                       "Write a page for browsers that needs no network; '-' is stdout")
          ->type_name("FILE")
          ->excludes("--stats", "--explain", "--coverage");
  verb->add_flag("--open", options->open, "Show the page in a browser")->needs(html);
  AddFleetOptions(*verb, options->fleet);
  verb->add_flag("--json", options->json, "Print the verdict document (nanwatch.verdict/1)")
      ->excludes(html);
  verb->callback([options, &call] { call.chosen = [options] { return Report(*options); }; });
}

}  // namespace nanwatch
