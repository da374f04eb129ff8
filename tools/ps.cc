// SPDX-License-Identifier: Apache-2.0
// The verb `ps`: which runs there are, live and recent.
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "daemon/base/clock.h"
#include "daemon/correlate/run_summary.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/http/http_client.h"
#include "daemon/report/cell_text.h"
#include "daemon/report/json_report.h"
#include "daemon/report/text_layout.h"
#include "tools/exit_codes.h"
#include "tools/fleet_options.h"
#include "tools/fleet_question.h"
#include "tools/help_layout.h"
#include "tools/observations.h"
#include "tools/run_json.h"
#include "tools/run_words.h"
#include "tools/table.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kEndedShown = 10;

constexpr char kPsHelp[] =
    "States: starting, watching, stepped down (nanwatch failed in it and only counts now), "
    "exiting,\n"
    "  ended (with the exit status, where 'nanwatch run' started it).\n"
    "STEP: optimizer steps so far. FINDINGS: op calls that wrote a NaN or Inf, harmless ones "
    "included.\n"
    "  LOST: records that did not fit, or that could not be read.\n"
    "\n"
    "Examples:\n"
    "  nanwatch ps\n"
    "  nanwatch ps --all --json\n"
    "  nanwatch ps --fleet https://gather.example.org --token-file TOKEN\n"
    "\n"
    "silent: of a fleet, not ended and not heard of for three minutes.\n"
    "Exit status: 0; 1 when the database cannot be read (live runs are shown anyway).\n"
    "Environment: NANWATCH_DIR, NANWATCH_STATE_DIR.";

struct PsOptions {
  bool all = false;
  bool json = false;
  HttpClientOptions fleet;
};

std::string LossOf(const RunState& state) { return state.has_loss() ? Brief(state.loss()) : "-"; }

Json RunAsJson(const SeenRun& run) {
  return RunJson({.id = run.id,
                  .job = run.job,
                  .run = run.run,
                  .state = run.state,
                  .state_text = StateOf(run),
                  .live = run.live,
                  .step = StepOf(run),
                  .loss = run.state.has_loss() ? std::optional(run.state.loss()) : std::nullopt});
}

// Of a fleet, its host comes with it.
std::vector<std::string> RunAsRow(const SeenRun& run, uint64_t now_ns) {
  const int64_t step = StepOf(run);
  const uint64_t started = run.run.started_real_ns();
  const std::string rank = run.run.world_size() > 1 ? std::to_string(run.run.rank()) + "/" +
                                                          std::to_string(run.run.world_size())
                                                    : std::to_string(run.run.rank());
  return {run.id.substr(0, 8),
          run.job.substr(0, 12),
          rank,
          std::to_string(run.run.pid()),
          run.run.program(),
          run.run.torch_version(),
          std::string(LevelName(run.state.level())),
          StateOf(run),
          step < 0 ? "-" : std::to_string(step),
          LossOf(run.state),
          Grouped(run.state.values_bad()),
          Grouped(LostRecords(run.state)),
          FormatAge(now_ns > started ? now_ns - started : 0)};
}

std::vector<SeenRun> Choose(std::vector<SeenRun> runs, bool all) {
  if (all) return runs;
  size_t ended = 0;
  std::erase_if(runs, [&](const SeenRun& run) { return !run.live && ++ended > kEndedShown; });
  return runs;
}

// `with_hosts`: they are of several, and a job has to be named in whole.
std::string TableOf(const std::vector<SeenRun>& shown, bool with_hosts) {
  std::vector<std::vector<std::string>> rows;
  std::vector<Column> columns = {{"RUN"},        {"JOB"},        {"RANK"},           {"PID", true},
                                 {"PROGRAM"},    {"TORCH"},      {"LEVEL"},          {"STATE"},
                                 {"STEP", true}, {"LOSS", true}, {"FINDINGS", true}, {"LOST", true},
                                 {"AGE", true}};
  const uint64_t now_ns = SystemClock().real_ns();
  for (const SeenRun& run : shown) {
    rows.push_back(RunAsRow(run, now_ns));
    if (!with_hosts) continue;
    rows.back()[1] = Printable(run.job);
    rows.back()[3] = Printable(run.run.host()) + ":" + rows.back()[3];
  }
  if (with_hosts) columns[3] = {"HOST:PID"};
  return FormatTable(columns, rows);
}

std::string AsText(const std::vector<SeenRun>& shown, size_t known,
                   const std::vector<UnreadableFile>& foreign, const Places& places,
                   bool is_readable) {
  std::string text = shown.empty() ? (is_readable ? NoRunIsKnown(places) : "no run lives") + "\n"
                                   : TableOf(shown, /*with_hosts=*/false);
  if (shown.size() < known) {
    text += std::to_string(known - shown.size()) + " older: nanwatch ps --all\n";
  }
  for (const UnreadableFile& file : foreign)
    text += "not read: " + file.name + ", " + file.reason + "\n";
  return text;
}

std::string AsJson(const std::vector<SeenRun>& shown, const std::vector<UnreadableFile>& foreign) {
  Json document = {
      {"schema", "nanwatch.ps/1"}, {"runs", Json::array()}, {"foreign", Json::array()}};
  for (const SeenRun& run : shown) document["runs"].push_back(RunAsJson(run));
  for (const UnreadableFile& file : foreign) {
    document["foreign"].push_back({{"file", file.name}, {"reason", file.reason}});
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int PsOfFleet(const PsOptions& options) {
  if (!MayAskFleet(options.fleet)) return kExitUsage;
  const Result<FleetListing> listing = AskFleetRuns(options.fleet);
  if (!listing.ok()) {
    Say(listing.status().message());
    return kExitFailed;
  }
  const std::vector<SeenRun> shown = Choose(listing->runs, options.all);
  if (options.json) return PrintAndExit(AsJson(shown, {}), kExitOk);
  std::string text =
      shown.empty() ? "no run was reported to the gatherer\n" : TableOf(shown, /*with_hosts=*/true);
  if (shown.size() < listing->runs.size())
    text += std::to_string(listing->runs.size() - shown.size()) + " older: nanwatch ps --all\n";
  return PrintAndExit(text, kExitOk);
}

int Ps(const PsOptions& options) {
  if (AsksFleet(options.fleet)) return PsOfFleet(options);
  Observations observations(FindPlaces(ProcessEnvironment()));
  if (!observations.places().note.empty()) Say(observations.places().note);
  const Status segments = observations.places().segment_status;
  if (!segments.ok() && segments.kind() != ErrorKind::kNotFound) Say(segments.message());
  const std::vector<SeenRun> runs = observations.Runs();
  const std::vector<SeenRun> shown = Choose(runs, options.all);
  const Status database = observations.DatabaseStatus();
  const int printed = PrintAndExit(options.json ? AsJson(shown, observations.foreign())
                                                : AsText(shown, runs.size(), observations.foreign(),
                                                         observations.places(), database.ok()),
                                   kExitOk);
  if (database.ok()) return printed;
  Say(database.message());
  return kExitFailed;
}

}  // namespace

void AddPsVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand("ps", "List live runs, and the last ones that ended.");
  SetHelp(*verb, "nanwatch ps [OPTIONS]", kPsHelp);
  auto options = std::make_shared<PsOptions>();
  verb->add_flag("--all", options->all, "Show all ended runs, not only the last ten");
  verb->add_flag("--json", options->json, "Print a JSON document (nanwatch.ps/1)");
  AddFleetOptions(*verb, options->fleet);
  verb->callback([options, &call] { call.chosen = [options] { return Ps(*options); }; });
}

}  // namespace nanwatch
