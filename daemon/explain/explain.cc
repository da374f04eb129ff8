// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/explain.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "daemon/correlate/correlate.h"
#include "daemon/correlate/reasons.h"
#include "daemon/explain/ignore_rules.h"
#include "daemon/explain/parameter_reports.h"
#include "daemon/explain/pattern_book.h"
#include "daemon/explain/steps_before.h"
#include "daemon/explain/training_warnings.h"

namespace nanwatch {
namespace {

// Each round excuses what the rounds before uncovered. Ordinary rules need two; when this many do
// not do, what is left stays an anomaly.
constexpr int kRoundsMax = 16;

// Processes of a job carry the same rules; each text is read once.
IgnoreRules RulesOf(const std::vector<RunFacts>& runs, const std::string& further_rules) {
  std::set<std::string> texts;
  std::set<std::string> problems;
  for (const RunFacts& facts : runs) {
    texts.insert(facts.run().ignore());
    if (!facts.run().ignore_problem().empty()) problems.insert(facts.run().ignore_problem());
  }
  texts.insert(further_rules);
  IgnoreRules all;
  for (const std::string& text : texts) {
    IgnoreRules read = ParseIgnoreRules(text);
    std::move(read.rules.begin(), read.rules.end(), std::back_inserter(all.rules));
    problems.insert(read.problems.begin(), read.problems.end());
  }
  all.problems.assign(problems.begin(), problems.end());
  return all;
}

// Adds the incidents that alarm and fit a rule. False when there was none.
bool Excuse(const Correlation& correlation, const std::vector<IgnoreRule>& rules,
            Excused& excused) {
  bool any = false;
  for (int i = 0; i < correlation.verdict.incidents_size(); ++i) {
    const Incident& incident = correlation.verdict.incidents(i);
    if (incident.severity() == "info") continue;
    if (const IgnoreRule* rule = FindRule(rules, incident)) {
      any |=
          excused.try_emplace(correlation.excuse_keys[static_cast<size_t>(i)], rule->text).second;
    }
  }
  return any;
}

void AddStep(const char* about, std::string text, const Finding& origin, Explanation& explanation) {
  ExplanationStep& step = *explanation.add_steps();
  step.set_about(about);
  step.set_text(std::move(text));
  step.set_ticket(origin.ticket());
  step.set_op(origin.op());
  step.set_layer(origin.layer());
  step.set_step(origin.step());
  step.set_run(origin.run());
}

// What was decided here, not by Correlate().
void AddCauseAndRule(const Verdict& verdict, Explanation& explanation) {
  if (explanation.steps().empty()) return;
  const Incident& incident = verdict.incidents(static_cast<int>(explanation.incident()) - 1);
  const Finding& origin = incident.origin();
  if (incident.has_pattern()) {
    std::string text = NameOf(origin) + " fits the pattern " + incident.pattern().id() + ":";
    for (const std::string& reason : PatternBook::BuiltIn().WhyItFits(incident)) {
      text += (text.ends_with(':') ? " " : ", ") + reason;
    }
    AddStep("pattern", text, origin, explanation);
  } else if (incident.severity() != "info") {
    AddStep("pattern", NameOf(origin) + " fits no known pattern", origin, explanation);
  }
  if (!incident.expected_by().empty()) {
    AddStep("rule",
            NameOf(origin) + " matches your rule '" + incident.expected_by() +
                "', so what would have been an anomaly is expected",
            origin, explanation);
  }
}

}  // namespace

void Explain(Verdict& verdict) {
  if (verdict.incidents().empty()) return;
  const PatternBook& book = PatternBook::BuiltIn();
  for (Incident& incident : *verdict.mutable_incidents()) {
    // What is expected needs no remedy; what a rule says so of keeps its cause, by which the rule
    // may name it.
    if (incident.severity() == "info" && incident.expected_by().empty()) continue;
    if (std::optional<Pattern> pattern = book.Find(incident))
      *incident.mutable_pattern() = *pattern;
  }
}

Verdict Diagnose(const std::vector<RunFacts>& runs) {
  return std::move(DiagnoseAsked(runs, {}).verdict);
}

// Judged again with every excuse, because an excused origin may have stood before another that no
// rule excuses.
Diagnosed DiagnoseAsked(const std::vector<RunFacts>& runs, const DiagnosisRequest& request) {
  const IgnoreRules rules = RulesOf(runs, request.further_rules);
  Excused excused;
  Correlation correlation = Correlate(runs, excused, request.explained, request.unwatched);
  AddStepsBefore(runs, correlation.verdict);
  Explain(correlation.verdict);
  for (int round = 0; round < kRoundsMax && Excuse(correlation, rules.rules, excused); ++round) {
    correlation = Correlate(runs, excused, request.explained, request.unwatched);
    AddStepsBefore(runs, correlation.verdict);
    Explain(correlation.verdict);
  }
  for (const std::string& problem : rules.problems) correlation.verdict.add_rule_problems(problem);
  AddCauseAndRule(correlation.verdict, correlation.explanation);
  AddWarnings(runs, correlation.verdict);
  AddStats(runs, correlation.verdict);
  return {std::move(correlation.verdict), std::move(correlation.explanation)};
}

}  // namespace nanwatch
