#include "daemon/explain/training_warnings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>

#include "daemon/correlate/run_summary.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/explain/warnings_text.h"
#include "daemon/watch/training_watch.h"

namespace nanwatch {
namespace {

using nlohmann::json;

// Ranks that share their gradients show the same within a step or two; one of them may be behind
// when its steps are looked at.
constexpr int64_t kSameWithinIterations = 50;

// Two digits tell as much as there is to know of a level; counts are whole.
std::string AsText(double number) {
  char text[32];
  const bool whole = number == std::floor(number) && std::abs(number) < 1e6;
  std::snprintf(text, sizeof text, whole ? "%.0f" : "%.2g", number);
  return text;
}

// What {name} stands for; "" where it is not known.
std::string Known(const std::string& name, const Warning& warning) {
  if (name == "step") return warning.step() >= 0 ? std::to_string(warning.step()) : "";
  if (name == "param") return warning.param();
  const auto number = warning.numbers().find(name);
  return number == warning.numbers().end() ? "" : AsText(number->second);
}

struct Filled {
  std::string sentence;  // "?" where a name is not known
  bool whole = true;     // all were
};

Filled FillIn(std::string sentence, const Warning& warning) {
  Filled filled;
  for (size_t open = sentence.find('{'); open != std::string::npos;
       open = sentence.find('{', open)) {
    const size_t close = sentence.find('}', open);
    if (close == std::string::npos) break;
    std::string text = Known(sentence.substr(open + 1, close - open - 1), warning);
    if (text.empty()) {
      text = "?";
      filled.whole = false;
    }
    sentence.replace(open, close + 1 - open, text);
    open += text.size();
  }
  filled.sentence = std::move(sentence);
  return filled;
}

// The first of the sentences of which all is known, else the last.
std::string Evidence(const json& sentences, const Warning& warning) {
  Filled filled;
  for (const json& sentence : sentences) {
    filled = FillIn(sentence, warning);
    if (filled.whole) break;
  }
  return filled.sentence;
}

// Entries that cannot be read are none: the test reads the same text.
void Describe(const json& book, Warning& warning) {
  for (const json& entry : book) {
    if (entry.value("id", "") != warning.id()) continue;
    warning.set_cause(entry.value("cause", ""));
    warning.set_fix(entry.value("fix", ""));
    warning.set_evidence(Evidence(entry.at("evidence"), warning));
    return;
  }
}

const json& Book() {
  static const json book = json::parse(kWarningsText);
  return book;
}

Warning WarningFrom(const TrainingAlarm& alarm, const RunFacts& facts, const StepClock& clock) {
  const StepReading raised = clock.Read(alarm.clocks());
  Warning warning;
  warning.set_id(alarm.id());
  warning.set_family(alarm.family());
  warning.set_severity(alarm.severity());
  warning.set_step(raised.step);
  warning.set_iteration(raised.iteration);
  if (alarm.has_ended()) warning.set_ended_step(clock.Read(alarm.ended()).step);
  *warning.mutable_numbers() = alarm.numbers();
  warning.set_param(alarm.param());
  warning.set_run(RunId(facts.run()));
  warning.set_rank(facts.run().rank());
  warning.set_processes(1);
  Describe(Book(), warning);
  return warning;
}

// The iteration in which the first incident that alarms began.
std::optional<int64_t> FirstAlarm(const Verdict& verdict) {
  std::optional<int64_t> first;
  for (const Incident& incident : verdict.incidents()) {
    if (incident.severity() == "info" || incident.origin().iteration() < 0) continue;
    first = std::min(first.value_or(incident.origin().iteration()), incident.origin().iteration());
  }
  return first;
}

bool IsSame(const Warning& a, const Warning& b) {
  return a.family() == b.family() && a.run() != b.run() &&
         std::abs(a.iteration() - b.iteration()) <= kSameWithinIterations;
}

}  // namespace

std::vector<Warning> WarningsOf(const RunFacts& facts) {
  TrainingHistory training = facts.training();
  WatchAll(facts.steps_read(), facts.stats_read(), training);
  std::vector<Warning> warnings;
  if (training.alarms().empty()) return warnings;
  const StepClock clock(facts);
  for (const TrainingAlarm& alarm : training.alarms())
    warnings.push_back(WarningFrom(alarm, facts, clock));
  return warnings;
}

void AddWarnings(const std::vector<RunFacts>& runs, Verdict& verdict) {
  std::vector<Warning> all;
  for (const RunFacts& facts : runs) {
    for (Warning& warning : WarningsOf(facts)) all.push_back(std::move(warning));
  }
  std::stable_sort(all.begin(), all.end(), [](const Warning& a, const Warning& b) {
    return std::make_tuple(a.iteration(), a.rank()) < std::make_tuple(b.iteration(), b.rank());
  });
  const std::optional<int64_t> first_alarm = FirstAlarm(verdict);
  for (Warning& warning : all) {
    const auto same =
        std::find_if(verdict.mutable_warnings()->begin(), verdict.mutable_warnings()->end(),
                     [&warning](const Warning& told) { return IsSame(told, warning); });
    if (same != verdict.mutable_warnings()->end()) {
      same->set_processes(same->processes() + 1);
      continue;
    }
    if (first_alarm && warning.iteration() >= 0 && warning.iteration() <= *first_alarm)
      warning.set_steps_before(*first_alarm - warning.iteration());
    *verdict.add_warnings() = std::move(warning);
  }
}

}  // namespace nanwatch
