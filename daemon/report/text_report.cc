#include "daemon/report/text_report.h"

#include <algorithm>

#include "daemon/report/coverage_text.h"
#include "daemon/report/incident_text.h"
#include "daemon/report/stats_text.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/warning_text.h"

namespace nanwatch {
namespace {

constexpr int kSummariesMax = 6;
constexpr int kRuleProblemsMax = 3;
constexpr size_t kRuleColumnsMax = 240;

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

// How the process left, when it did not leave well.
std::string EndRow(const Verdict& verdict, int width) {
  const RunInfo& run = verdict.run();
  if (run.has_signal() && run.signal() != 0)
    return Row("ended", "killed by signal " + std::to_string(run.signal()), width);
  if (run.has_exit_code() && run.exit_code() != 0) {
    return Row("ended", "with exit status " + std::to_string(run.exit_code()), width);
  }
  return "";
}

std::string WatchedRows(const Verdict& verdict, const TextOptions& options) {
  std::string rows = EndRow(verdict, options.width_columns) +
                     Row("watched", WatchedText(verdict), options.width_columns);
  if (verdict.run().late()) {
    rows += Row("", "attached to while it ran: step 0 is the one that it was in then",
                options.width_columns);
  }
  for (int i = 0; i < std::min(verdict.rule_problems_size(), kRuleProblemsMax); ++i) {
    rows +=
        Row(i == 0 ? "rules" : "", Shorten(Printable(verdict.rule_problems(i)), kRuleColumnsMax),
            options.width_columns);
  }
  if (verdict.coverage().lost_events() > 0) {
    rows += Row("", "records were lost: there may have been more than is told here",
                options.width_columns);
  }
  return rows;
}

// Other incidents of the same weight, in a line each.
std::string MoreRows(const Verdict& verdict, int width) {
  std::string rows;
  int told = 0;
  int more = 0;
  for (int i = 1; i < verdict.incidents_size(); ++i) {
    if (verdict.incidents(i).severity() == "info") continue;
    if (told == 2) {
      ++more;
      continue;
    }
    rows +=
        Row(told++ == 0 ? "also" : "", Shorten(IncidentSummary(verdict.incidents(i)), 84), width);
  }
  if (more > 0) {
    rows += Row("",
                "and " + std::to_string(more) + " more (nanwatch report " +
                    ShortId(verdict.run().id()) + " --json)",
                width);
  }
  return rows;
}

// What a rule of the user's excuses is told beside what it does not.
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
      excused == 1 ? "" : "; and " + Counted(excused - 1, "more incident") + " by rules";
  return Row("expected", Shorten(IncidentSummary(*first), 84) + "; " + RuleText(*first) + more,
             width);
}

std::string AnomalyText(const Verdict& verdict, const TextOptions& options) {
  const Incident& first = verdict.incidents(0);
  return Title("ANOMALY", RunText(verdict) + ": " + Headline(first), Colour::kRed, options) +
         IncidentRows(first, options.width_columns) +
         RowsBeforeIncident(verdict, options.width_columns) +
         MoreRows(verdict, options.width_columns) + ExcusedRows(verdict, options.width_columns) +
         WatchedRows(verdict, options);
}

std::string ExpectedText(const Verdict& verdict, const TextOptions& options) {
  const int width = options.width_columns;
  if (verdict.incidents().empty()) {
    return Title(
               "CANNOT TELL",
               RunText(verdict) + ": non-finite values were counted, but no record of them is left",
               Colour::kYellow, options) +
           Row("do",
               "run it again under `nanwatch run`, so that a daemon reads the records while they "
               "are made",
               width) +
           WatchedRows(verdict, options);
  }
  int by_rule = 0;
  for (const Incident& incident : verdict.incidents())
    by_rule += incident.expected_by().empty() ? 0 : 1;
  const std::string harm = by_rule == 0 ? ", but none did any harm" : ", expected by your rules";
  std::string text =
      Title("EXPECTED", RunText(verdict) + ": non-finite values" + harm, Colour::kGreen, options);
  int told = 0;
  for (const Incident& incident : verdict.incidents()) {
    if (told == kSummariesMax) break;
    const std::string rule = RuleText(incident);
    text += Row(told++ == 0 ? "seen" : "",
                Shorten(IncidentSummary(incident), 160) + (rule.empty() ? "" : "; " + rule), width);
  }
  const int more = verdict.incidents_size() - told;
  if (more > 0)
    text +=
        Row("", "and " + Counted(static_cast<uint64_t>(more), "more place") + " (--json)", width);
  if (by_rule == verdict.incidents_size()) {
    text += Row("why", "NANWATCH_IGNORE or --ignore says so of all of them", width);
    return text + Row("do", "nothing, as long as the rules are right", width) +
           WarningRows(verdict, width) + StatsRow(verdict, width) + WatchedRows(verdict, options);
  }
  const std::string who = by_rule == 0 ? "none of them" : "of those without a rule none";
  text += Row("why",
              who +
                  " reached the loss, an applied gradient, a parameter or a buffer: masks, "
                  "discarded branches, updates that were skipped",
              width);
  return text + Row("do", "nothing", width) + WarningRows(verdict, width) +
         StatsRow(verdict, width) + WatchedRows(verdict, options);
}

std::string CleanText(const Verdict& verdict, const TextOptions& options) {
  const int width = options.width_columns;
  const Coverage& coverage = verdict.coverage();
  if (coverage.tensors_checked() == 0) {
    return Title("CANNOT TELL",
                 RunText(verdict) + ": nanwatch was there, but no tensor was checked",
                 Colour::kYellow, options) +
           Row("do",
               "use `nanwatch run --level full` (the level was " +
                   (verdict.run().level().empty() ? "unknown" : verdict.run().level()) +
                   "); `nanwatch doctor` says whether this torch is supported",
               width) +
           WatchedRows(verdict, options);
  }
  if (coverage.lost_events() > 0) {
    return Title("CANNOT TELL",
                 RunText(verdict) + ": no non-finite value was seen, but " +
                     Counted(coverage.lost_events(), "record") +
                     (coverage.lost_events() == 1 ? " was" : " were") + " lost",
                 Colour::kYellow, options) +
           Row("do", "run it again with the daemon running from the start", width) +
           WatchedRows(verdict, options);
  }
  return Title("CLEAN", RunText(verdict) + ": no non-finite value", Colour::kGreen, options) +
         WarningRows(verdict, width) + StatsRow(verdict, width) + WatchedRows(verdict, options);
}

std::string NothingText(const TextOptions& options) {
  const int width = options.width_columns;
  return Title("CANNOT TELL",
               "nothing was observed: no process of this job ran torch under nanwatch",
               Colour::kYellow, options) +
         Row("why",
             "the command did not import torch, or its torch has no observer yet, or the preload "
             "did not get there (NANWATCH=0, a static or musl Python, env -i, sudo)",
             width) +
         Row("do",
             Glued("`nanwatch doctor --python PY`") +
                 " with the Python of the job says which of these it is",
             width);
}

}  // namespace

std::string TextReport(const Verdict& verdict, const TextOptions& options) {
  if (verdict.runs().empty()) return NothingText(options);
  if (verdict.verdict() == "anomaly" && !verdict.incidents().empty())
    return AnomalyText(verdict, options);
  if (verdict.verdict() == "expected") return ExpectedText(verdict, options);
  return CleanText(verdict, options);
}

}  // namespace nanwatch
