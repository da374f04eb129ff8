// SPDX-License-Identifier: Apache-2.0
// The verb `export`: what is known of a job, or of all runs, in the formats of other programs.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/fleet/otlp_logs.h"
#include "daemon/http/gzip.h"
#include "daemon/http/http_client.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/job_page.h"
#include "tools/job_verdict.h"
#include "tools/observations.h"
#include "tools/otlp_export.h"
#include "tools/otlp_send.h"
#include "tools/output_file.h"
#include "tools/progress.h"
#include "tools/run_export.h"
#include "tools/serve/metrics.h"
#include "tools/tensorboard_export.h"
#include "tools/terminal.h"
#include "tools/trace_export.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr char kExportHelp[] =
    "Formats: csv (a line a step), jsonl (a line for each run, step, incident, warning and "
    "snapshot of\n"
    "  parameters), trace (for Perfetto, on the clock of torch.profiler), tensorboard (a folder: "
    "events of\n"
    "  each run), otlp (OpenTelemetry logs and metrics: JSON lines, or sent to a Collector by "
    "--to),\n"
    "  prometheus (all runs, for node_exporter's textfile collector).\n"
    "RUN is a PID, or the id of a run or job, or its beginning; without it, the job of the newest "
    "run.\n"
    "\n"
    "Examples:\n"
    "  nanwatch export 7f3a --format csv > steps.csv\n"
    "  nanwatch export 7f3a --format jsonl --output job.jsonl\n"
    "  nanwatch export 7f3a --format tensorboard --output runs/\n"
    "  nanwatch export 7f3a --format otlp --to http://127.0.0.1:4318\n"
    "  nanwatch export --format prometheus --textfile "
    "/var/lib/prometheus/node-exporter/nanwatch.prom\n"
    "\n"
    "Exit status: 0; 1 no such run, or the file could not be written (then it is as it was), or "
    "--to did not\n"
    "  take it; 2 wrong use.\n"
    "Environment: NANWATCH_DIR, NANWATCH_STATE_DIR.";

struct ExportOptions {
  std::string run;
  std::string format;
  std::string output = "-";
  HttpClientOptions receiver;  // of format otlp; url "": none
};

int Write(const ExportOptions& options, const std::string& text, Progress& progress) {
  // stdout may be the terminal that the progress is on, and its reader may take its time.
  if (options.output == "-") progress.End();
  progress.Now("writing " + options.output);
  const Status written = WriteOutputFile(options.output, text);
  progress.End();
  if (written.ok()) return kExitOk;
  Say("nothing was exported: " + written.message());
  return kExitFailed;
}

int ExportMetrics(const ExportOptions& options, Observations& observations, Progress& progress) {
  if (!options.run.empty()) {
    Say("format prometheus is of all runs: leave out '" + options.run + "'");
    return kExitUsage;
  }
  RunTable table(observations);
  table.Refresh();
  if (!table.database_status().ok()) Say(table.database_status().message());
  return Write(
      options,
      MetricsText(table.runs(), table.jobs(), table.database_status().ok(), MetricsFormat::kText),
      progress);
}

// One folder a run, as TensorBoard expects it.
int ExportTensorBoard(const ExportOptions& options, const std::vector<RunFacts>& facts,
                      const std::vector<RunSeries>& series, Progress& progress) {
  if (options.output == "-") {
    progress.End();
    Say("format tensorboard is a folder: give --output FOLDER");
    return kExitUsage;
  }
  for (size_t i = 0; i < facts.size(); ++i) {
    progress.Count(i, facts.size(), "runs written");
    const std::string folder = options.output + "/" + series[i].run;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      progress.End();
      Say("nothing was exported: '" + folder + "' could not be made (" + error.message() +
          "): name a folder that you may write to");
      return kExitFailed;
    }
    const Run& run = facts[i].run();
    const Status written = WriteOutputFile(folder + "/" + TensorBoardFileName(run, series[i]),
                                           TensorBoardEvents(run, series[i]));
    if (!written.ok()) {
      progress.End();
      Say("run " + series[i].run + " was not exported: " + written.message());
      return kExitFailed;
    }
  }
  return kExitOk;
}

// To a file, or to who receives it.
int ExportOtlp(const ExportOptions& options, const OtlpExport& exported, Progress& progress) {
  const HttpClientOptions& receiver = options.receiver;
  if (receiver.url.empty()) return Write(options, OtlpJsonLines(exported), progress);
  if (!receiver.token_file.empty() && IsPlainToOthers(receiver.url)) Say(kTokenIsPlain);
  const Result<std::unique_ptr<HttpClient>> client = HttpClient::Make(receiver);
  if (!client.ok()) {
    progress.End();
    Say(client.status().message());
    return client.status().kind() == ErrorKind::kInvalid ? kExitUsage : kExitFailed;
  }
  const size_t all = exported.logs.size() + exported.metrics.size();
  size_t asked = 0;
  const Status sent =
      SendOtlp(exported, receiver.url, [&](const std::string& path, const std::string& body) {
        progress.Count(asked++, all, "requests taken");
        return (*client)->Post(path, kOtlpType, Gzip(body), {});
      });
  progress.End();
  if (sent.ok()) return kExitOk;
  Say(sent.message());
  return kExitFailed;
}

int Export(const ExportOptions& options) {
  if (!options.receiver.url.empty() && options.format != "otlp") {
    Say("--to is for --format otlp: format " + options.format + " goes to --output");
    return kExitUsage;
  }
  Observations observations(FindPlaces(ProcessEnvironment()));
  Progress progress("exporting", Progress::ToStderr());
  progress.Now("reading the runs");
  if (options.format == "prometheus") return ExportMetrics(options, observations, progress);
  const Result<std::string> job = observations.ResolveJob(options.run);
  const Status database = observations.DatabaseStatus();
  if (!database.ok() && job.ok()) Say(database.message());
  if (!job.ok()) {
    progress.End();
    Say(job.status().message());
    return kExitFailed;
  }
  const std::vector<RunFacts> facts = observations.FactsWithStatsOfJob(*job);
  const std::vector<RunSeries> series = SeriesOfRuns(
      facts, observations, [&](size_t done) { progress.Count(done, facts.size(), "runs read"); });
  progress.Now("putting together " + std::to_string(facts.size()) +
               (facts.size() == 1 ? " run" : " runs"));
  if (options.format == "csv") return Write(options, StepsCsv(series), progress);
  if (options.format == "tensorboard") return ExportTensorBoard(options, facts, series, progress);
  const Verdict verdict = VerdictOfJob(facts, observations.ExitOfJob(*job));
  if (options.format == "otlp") {
    return ExportOtlp(options,
                      OtlpOf(facts, verdict, series,
                             {.version = NANWATCH_VERSION, .now_ns = SystemClock().real_ns()}),
                      progress);
  }
  if (options.format == "trace") return Write(options, TraceJson(facts, verdict, series), progress);
  return Write(options, JobJsonLines(*job, facts, verdict, series), progress);
}

}  // namespace

void AddExportVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand(
      "export", "Write steps, incidents and metrics in the formats of other programs.");
  SetHelp(*verb, "nanwatch export [RUN] --format FORMAT [OPTIONS]", kExportHelp);
  auto options = std::make_shared<ExportOptions>();
  verb->add_option("RUN", options->run, "A PID, or the id of a run or job, or its beginning")
      ->type_name("");
  verb->add_option("--format", options->format,
                   "csv, jsonl, trace, tensorboard, otlp or prometheus")
      ->type_name("FORMAT")
      ->required()
      ->check(CLI::IsMember({"csv", "jsonl", "trace", "tensorboard", "otlp", "prometheus"}));
  CLI::Option* output =
      verb->add_option("--output,--textfile", options->output,
                       "Where to; a file is replaced whole, '-' is stdout (the default)")
          ->type_name("FILE");
  HttpClientOptions& receiver = options->receiver;
  CLI::Option* to =
      verb->add_option("--to", receiver.url, "Of otlp: an OpenTelemetry Collector that takes it")
          ->type_name("URL")
          ->excludes(output);
  verb->add_option("--token-file", receiver.token_file, "The token that it asks for")
      ->type_name("FILE")
      ->needs(to);
  verb->add_option("--ca", receiver.ca_file, "Trust these authorities, not those of the system")
      ->type_name("FILE")
      ->needs(to);
  verb->callback([options, &call] { call.chosen = [options] { return Export(*options); }; });
}

}  // namespace nanwatch
