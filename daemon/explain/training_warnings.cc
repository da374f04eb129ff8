// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/training_warnings.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "daemon/correlate/step_clock.h"
#include "daemon/explain/warnings_text.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/watch/training_watch.h"

namespace nanwatch {
namespace {

using nlohmann::json;

// Ranks that share their gradients show the same within a step or two; one of them may be behind
// when its steps are read.
constexpr int64_t kSameWithinIterations = 50;

// Two digits are enough for a level; counts are whole numbers.
std::string AsText(double number) {
  const bool whole = number == std::floor(number) && std::abs(number) < 1e6;
  return whole ? fmt::format("{:.0f}", number) : fmt::format("{:.2g}", number);
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

// A sentence, or the first of several of which all is known, else the last.
std::string FirstKnown(const json& sentences, const Warning& warning) {
  if (sentences.is_string()) return FillIn(sentences, warning).sentence;
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
    warning.set_cause(FirstKnown(entry.at("cause"), warning));
    warning.set_fix(FirstKnown(entry.at("fix"), warning));
    warning.set_evidence(FirstKnown(entry.at("evidence"), warning));
    return;
  }
}

const json& Book() {
  static const json book = json::parse(kWarningsText);
  return book;
}

// A warning and when it was raised: StepReading.iteration_of_run, which grows where a process
// trains one thing after another and begins to count its steps anew.
struct RaisedWarning {
  Warning warning;
  int64_t iteration_of_run = -1;
};

RaisedWarning WarningFrom(const TrainingAlarm& alarm, const RunFacts& facts,
                          const StepClock& clock) {
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
  return {.warning = std::move(warning), .iteration_of_run = raised.iteration_of_run};
}

// The iteration of its run in which an incident began; that of its optimizer where no record of it
// is left.
int64_t BeginOf(const Incident& incident, const std::vector<RunFacts>& runs) {
  const Finding& origin = incident.origin();
  for (const RunFacts& facts : runs) {
    if (origin.ticket() == 0 || RunId(facts.run()) != origin.run()) continue;
    for (const Record& record : facts.records()) {
      if (record.ticket() == origin.ticket())
        return StepClock(facts).Read(record.clocks()).iteration_of_run;
    }
  }
  return origin.iteration();
}

// The iteration in which the first incident that alarms began.
std::optional<int64_t> FirstAlarm(const Verdict& verdict, const std::vector<RunFacts>& runs) {
  std::optional<int64_t> first;
  for (const Incident& incident : verdict.incidents()) {
    if (incident.severity() == "info" || incident.origin().iteration() < 0) continue;
    const int64_t began = BeginOf(incident, runs);
    first = std::min(first.value_or(began), began);
  }
  return first;
}

bool IsSame(const RaisedWarning& a, const RaisedWarning& b) {
  return a.warning.family() == b.warning.family() && a.warning.run() != b.warning.run() &&
         std::abs(a.iteration_of_run - b.iteration_of_run) <= kSameWithinIterations;
}

std::vector<RaisedWarning> RaisedIn(const RunFacts& facts) {
  TrainingHistory training = facts.training();
  WatchAll(facts.steps_read(), facts.stats_read(), training);
  std::vector<RaisedWarning> warnings;
  if (training.alarms().empty()) return warnings;
  const StepClock clock(facts);
  for (const TrainingAlarm& alarm : training.alarms())
    warnings.push_back(WarningFrom(alarm, facts, clock));
  return warnings;
}

}  // namespace

std::vector<Warning> WarningsOf(const RunFacts& facts) {
  std::vector<Warning> warnings;
  for (RaisedWarning& raised : RaisedIn(facts)) warnings.push_back(std::move(raised.warning));
  return warnings;
}

void AddWarnings(const std::vector<RunFacts>& runs, Verdict& verdict) {
  std::vector<RaisedWarning> all;
  for (const RunFacts& facts : runs) {
    for (RaisedWarning& raised : RaisedIn(facts)) all.push_back(std::move(raised));
  }
  if (all.empty()) return;
  std::stable_sort(all.begin(), all.end(), [](const RaisedWarning& a, const RaisedWarning& b) {
    return std::make_tuple(a.iteration_of_run, a.warning.rank()) <
           std::make_tuple(b.iteration_of_run, b.warning.rank());
  });
  const std::optional<int64_t> first_alarm = FirstAlarm(verdict, runs);
  std::vector<RaisedWarning> kept;
  for (RaisedWarning& raised : all) {
    const auto same = std::find_if(kept.begin(), kept.end(), [&raised](const RaisedWarning& known) {
      return IsSame(known, raised);
    });
    if (same != kept.end()) {
      same->warning.set_processes(same->warning.processes() + 1);
      continue;
    }
    const int64_t at = raised.iteration_of_run;
    if (first_alarm && at >= 0 && at <= *first_alarm)
      raised.warning.set_steps_before(*first_alarm - at);
    kept.push_back(std::move(raised));
  }
  for (RaisedWarning& raised : kept) *verdict.add_warnings() = std::move(raised.warning);
}

}  // namespace nanwatch
