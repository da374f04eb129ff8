// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/text_report.h"

#include <algorithm>

#include "daemon/report/checkpoint_text.h"
#include "daemon/report/coverage_text.h"
#include "daemon/report/incident_text.h"
#include "daemon/report/incident_words.h"
#include "daemon/report/stats_text.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/training_text.h"
#include "daemon/report/verdict_words.h"
#include "daemon/report/warning_text.h"

namespace nanwatch {
namespace {

constexpr int kSummariesMax = 6;
constexpr int kRuleProblemsMax = 3;
constexpr size_t kRuleProblemColumnsMax = 240;
constexpr size_t kCommandColumnsMax = 200;

enum class Colour { kRed, kYellow, kGreen };

std::string Coloured(std::string text, std::string_view word, Colour colour,
                     const TextOptions& options) {
  if (!options.color) return text;
  const char* code = colour == Colour::kRed      ? "\033[1;31m"
                     : colour == Colour::kYellow ? "\033[1;33m"
                                                 : "\033[1;32m";
  return text.replace(0, word.size(), code + std::string(word) + "\033[0m");
}

std::string RunText(const Verdict& verdict) {
  const RunInfo& run = verdict.run();
  std::string text = run.program().empty() ? "pid " + std::to_string(run.pid())
                                           : Shorten(Printable(run.program()), 40);
  text += ", run " + ShortId(run.id());
  const bool ranks = run.world_size() > 1;
  if (ranks)
    text += ", rank " + std::to_string(run.rank()) + " of " + std::to_string(run.world_size());
  if (!ranks && verdict.runs_size() > 1)
    text += ", one of " + std::to_string(verdict.runs_size()) + " processes";
  if (!run.torch().empty()) text += ", torch " + Printable(run.torch());
  if (!run.device().empty()) text += ", " + Printable(run.device());
  return text;
}

std::string Title(std::string_view word, const std::string& text, Colour colour,
                  const TextOptions& options) {
  return Coloured(Row(word, text, options.width_columns), word, colour, options) + "\n";
}

// How the process ended, unless it exited with status 0.
std::string EndRow(const Verdict& verdict, int width) {
  const RunInfo& run = verdict.run();
  if (run.has_signal() && run.signal() != 0)
    return Row("ended", "killed by signal " + std::to_string(run.signal()), width);
  if (run.has_exit_code() && run.exit_code() != 0) {
    return Row("ended", "with exit status " + std::to_string(run.exit_code()), width);
  }
  return "";
}

// Where, when and as what the process ran.
std::string RanRow(const Verdict& verdict, const TextOptions& options) {
  const RunInfo& run = verdict.run();
  std::string text = run.host().empty() ? "" : "on " + Printable(run.host());
  const std::string started = DayAndTime(run.started_at());
  if (!started.empty()) {
    text += (text.empty() ? "" : ", ") + std::string(options.live ? "since " : "") + started;
    const std::string ended = run.has_ended_at() ? DayAndTime(run.ended_at()) : "";
    const bool same_day = ended.substr(0, 10) == started.substr(0, 10) && ended.size() > 11;
    if (!ended.empty()) text += " to " + (same_day ? ended.substr(11) : ended);
    text += " UTC";
  }
  std::string command;
  for (const std::string& word : run.command())
    command += (command.empty() ? "" : " ") + Printable(word);
  if (!command.empty()) text += (text.empty() ? "" : ": ") + Shorten(command, kCommandColumnsMax);
  if (!run.directory().empty())
    text +=
        (text.empty() ? "in " : ", in ") + Shorten(Printable(run.directory()), kCommandColumnsMax);
  return text.empty() ? "" : Row(options.live ? "runs" : "ran", text, options.width_columns);
}

std::string WatchedRows(const Verdict& verdict, const TextOptions& options) {
  std::string rows = CheckpointRows(verdict, options.width_columns) +
                     TrainingRows(verdict, options.width_columns) + RanRow(verdict, options) +
                     EndRow(verdict, options.width_columns) +
                     Row("watched", WatchedText(verdict), options.width_columns);
  if (verdict.run().late()) {
    rows += Row("", "attached while it was running: step 0 is the step that was running then",
                options.width_columns);
  }
  for (int i = 0; i < std::min(verdict.rule_problems_size(), kRuleProblemsMax); ++i) {
    rows += Row(i == 0 ? "rules" : "",
                Shorten(Printable(verdict.rule_problems(i)), kRuleProblemColumnsMax),
                options.width_columns);
  }
  if (verdict.coverage().lost_events() > 0) {
    rows += Row("", "records were lost, so there may have been more than this report shows",
                options.width_columns);
  }
  if (verdict.coverage().records_thinned() > 0) {
    rows += Row("", "there were more records than a verdict takes: the first and the newest count",
                options.width_columns);
  }
  return rows;
}

// The other incidents that are not expected, a line each.
std::string MoreRows(const Verdict& verdict, int width) {
  const Incident& first = verdict.incidents(0);
  std::string rows = first.ranks_size() > 1 ? Row("ranks", RanksText(first), width) : "";
  int shown = 0;
  int more = 0;
  for (int i = 1; i < verdict.incidents_size(); ++i) {
    if (verdict.incidents(i).severity() == "info") continue;
    if (shown == 2) {
      ++more;
      continue;
    }
    rows += Row(shown++ == 0 ? "also" : "", IncidentSummary(verdict.incidents(i), 84), width);
  }
  if (more > 0) {
    rows += Row("",
                "and " + std::to_string(more) + " more (nanwatch report " +
                    ShortId(verdict.run().id()) + " --json)",
                width);
  }
  return rows;
}

// What the user's rules expect is shown next to what they do not.
std::string ExcusedRows(const Verdict& verdict, int width) {
  uint64_t excused = 0;
  const Incident* first = nullptr;
  for (const Incident& incident : verdict.incidents()) {
    if (incident.expected_by().empty()) continue;
    if (first == nullptr) first = &incident;
    ++excused;
  }
  if (first == nullptr) return "";
  const std::string more =
      excused == 1 ? ""
                   : "; and " + Counted(excused - 1, "more incident") + " expected by your rules";
  return Row("expected", IncidentSummary(*first, 84) + "; " + RuleText(*first) + more, width);
}

// A notebook cell that was fixed and run again has a title of its own, above that of the training
// before it.
std::string BetterTitle(const Verdict& verdict, const TextOptions& options) {
  const TrainingSummary* const training = BetterTraining(verdict);
  if (training == nullptr) return "";
  const std::string text = TrainingText(verdict, *training);
  if (training->verdict() == "clean")
    return Title("CLEAN", text + ": no non-finite value", Colour::kGreen, options);
  if (training->verdict() == "expected")
    return Title("EXPECTED", text + ": non-finite values, but none did any harm", Colour::kGreen,
                 options);
  return Title("UNKNOWN", text + ": not all of its steps were checked", Colour::kYellow, options);
}

std::string AnomalyText(const Verdict& verdict, const TextOptions& options) {
  const Incident& first = verdict.incidents(0);
  return BetterTitle(verdict, options) +
         Title("ANOMALY", RunText(verdict) + ": " + WordsOf(verdict).sentence, Colour::kRed,
               options) +
         IncidentRows(first, options.width_columns, Printable(options.source_path)) +
         RowsBeforeIncident(verdict, options.width_columns) +
         MoreRows(verdict, options.width_columns) + ExcusedRows(verdict, options.width_columns) +
         WatchedRows(verdict, options);
}

// The incidents of a job without an anomaly, a line each.
std::string SeenRows(const Verdict& verdict, int width) {
  std::string rows;
  int shown = 0;
  for (const Incident& incident : verdict.incidents()) {
    if (shown == kSummariesMax) break;
    const std::string rule = RuleText(incident);
    rows += Row(shown++ == 0 ? "seen" : "",
                IncidentSummary(incident, 160) + (rule.empty() ? "" : "; " + rule), width);
  }
  const int more = verdict.incidents_size() - shown;
  if (more == 0) return rows;
  return rows + Row("",
                    "and " + Counted(static_cast<uint64_t>(more), "more incident") + " (--json)",
                    width);
}

// What stands below title, incidents, why and what to do.
std::string RestText(const Verdict& verdict, const TextOptions& options) {
  return WarningRows(verdict, options.width_columns) + StatsRow(verdict, options.width_columns) +
         WatchedRows(verdict, options);
}

std::string ExpectedText(const Verdict& verdict, const TextOptions& options) {
  const VerdictWords words = WordsOf(verdict);
  return Title(words.word, RunText(verdict) + ": " + words.sentence, Colour::kGreen, options) +
         SeenRows(verdict, options.width_columns) + Row("why", words.why, options.width_columns) +
         Row("do", words.remedy, options.width_columns) + RestText(verdict, options);
}

std::string CleanText(const Verdict& verdict, const TextOptions& options) {
  const VerdictWords words = WordsOf(verdict);
  const std::string so_far = options.live ? " so far" : "";
  return Title(words.word, RunText(verdict) + ": " + words.sentence + so_far, Colour::kGreen,
               options) +
         RestText(verdict, options);
}

std::string UnknownReport(const Verdict& verdict, const TextOptions& options) {
  const VerdictWords words = WordsOf(verdict);
  const bool is_described = !verdict.runs().empty();
  std::string report =
      Title(words.word, (is_described ? RunText(verdict) + ": " : "") + words.sentence,
            Colour::kYellow, options) +
      SeenRows(verdict, options.width_columns) + Row("do", words.remedy, options.width_columns);
  return is_described ? report + RestText(verdict, options) : report;
}

}  // namespace

std::string TextReport(const Verdict& verdict, const TextOptions& options) {
  if (verdict.runs().empty() || verdict.verdict() == "unknown")
    return UnknownReport(verdict, options);
  if (verdict.verdict() == "anomaly" && !verdict.incidents().empty())
    return AnomalyText(verdict, options);
  if (verdict.verdict() == "expected") return ExpectedText(verdict, options);
  return CleanText(verdict, options);
}

}  // namespace nanwatch
