#include "daemon/explain/explain.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "daemon/correlate/correlate.h"
#include "daemon/explain/ignore_rules.h"
#include "daemon/explain/pattern_book.h"

namespace nanwatch {
namespace {

// Each round excuses what the rounds before uncovered. Ordinary rules need two; when this many do not do, what is
// left stays an anomaly.
constexpr int kRoundsMax = 16;

// Processes of a job carry the same rules; each text is read once.
IgnoreRules RulesOf(const std::vector<RunFacts>& runs, std::string_view further_rules) {
  std::set<std::string> texts;
  std::set<std::string> problems;
  for (const RunFacts& facts : runs) {
    texts.insert(facts.run().ignore());
    if (!facts.run().ignore_problem().empty()) problems.insert(facts.run().ignore_problem());
  }
  texts.insert(std::string(further_rules));
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
      any |= excused.try_emplace(correlation.excuse_keys[static_cast<size_t>(i)], rule->text).second;
    }
  }
  return any;
}

}  // namespace

void Explain(Verdict& verdict) {
  if (verdict.incidents().empty()) return;
  const PatternBook book = PatternBook::BuiltIn();
  for (Incident& incident : *verdict.mutable_incidents()) {
    // What is expected needs no remedy; what a rule says so of keeps its cause, by which the rule may name it.
    if (incident.severity() == "info" && incident.expected_by().empty()) continue;
    if (std::optional<Pattern> pattern = book.Find(incident))
      *incident.mutable_pattern() = *pattern;
  }
}

Verdict Diagnose(const std::vector<RunFacts>& runs) { return DiagnoseWithRules(runs, ""); }

// Judged again with every excuse, because an excused origin may have stood before another that no rule excuses.
Verdict DiagnoseWithRules(const std::vector<RunFacts>& runs, std::string_view further_rules) {
  const IgnoreRules rules = RulesOf(runs, further_rules);
  Excused excused;
  Correlation correlation = Correlate(runs, excused);
  Explain(correlation.verdict);
  for (int round = 0; round < kRoundsMax && Excuse(correlation, rules.rules, excused); ++round) {
    correlation = Correlate(runs, excused);
    Explain(correlation.verdict);
  }
  for (const std::string& problem : rules.problems) correlation.verdict.add_rule_problems(problem);
  return std::move(correlation.verdict);
}

}  // namespace nanwatch
