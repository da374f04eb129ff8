// SPDX-License-Identifier: Apache-2.0
#include "tools/tail_looks.h"

#include <algorithm>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/explain/training_warnings.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/report/incident_words.h"
#include "tools/finding_line.h"

namespace nanwatch {
namespace {

uint64_t EndOf(const RunFacts& facts) {
  return facts.state().ended() && facts.state().ended_real_ns() > 0 ? facts.state().ended_real_ns()
                                                                    : SystemClock().real_ns();
}

// A warning has a step and no time: it comes before the first finding of its run that is not of
// an earlier step, else where the run has got to.
uint64_t TimeOf(const Warning& warning, const RunFacts& facts,
                const std::vector<TailEntry>& entries, size_t first_of_run) {
  for (size_t i = first_of_run; i < entries.size(); ++i) {
    const bool later = entries[i].finding && entries[i].finding->step >= warning.step();
    if (later && entries[i].real_ns > 0) return entries[i].real_ns - 1;
  }
  return EndOf(facts);
}

}  // namespace

std::string TailLooks::Next(const std::set<std::string>& jobs, const std::set<std::string>& ended) {
  missing_ = Status();
  std::vector<TailEntry> entries;
  for (const std::string& job : jobs) {
    // Nothing comes after what was read when it had ended, unless it is started once more.
    if (!ended.contains(job)) {
      settled_.erase(job);
    } else if (settled_.contains(job)) {
      continue;
    }
    const std::vector<RunFacts> facts = source_.FactsOf(job);
    const Status read = source_.missing();
    if (!read.ok()) missing_ = read;
    for (const RunFacts& run : facts) Collect(run, read.ok(), entries);
    if (!read.ok() || !ended.contains(job)) continue;
    settled_.insert(job);
    if (concluded_.insert(job).second) CollectIncidents(job, facts, entries);
  }
  const size_t lines_max =
      first_look_ ? static_cast<size_t>(std::max(lines_first_, 0)) : entries.size();
  first_look_ = false;
  return LastLines(std::move(entries), lines_max, json_);
}

// Adds what is new of its findings and warnings.
void TailLooks::Collect(const RunFacts& facts, bool is_whole, std::vector<TailEntry>& entries) {
  Given& given = given_[RunId(facts.run())];
  const size_t first_of_run = entries.size();
  for (const FindingLine& line : FindingsAfter(facts, given.last_ticket)) {
    const bool is_new =
        is_whole ? !given.ahead.contains(line.ticket) : given.ahead.insert(line.ticket).second;
    if (is_whole) given.last_ticket = std::max(given.last_ticket, line.ticket);
    if (!is_new) continue;
    entries.push_back({.real_ns = line.real_ns,
                       .text = json_ ? LineAsJson(line) : LineAsText(line),
                       .finding = line});
  }
  if (!is_whole) return;
  given.ahead.clear();
  CollectWarnings(facts, first_of_run, given, entries);
}

void TailLooks::CollectWarnings(const RunFacts& facts, size_t first_of_run, Given& given,
                                std::vector<TailEntry>& entries) const {
  const std::vector<Warning> warnings = WarningsOf(facts);
  for (; given.warnings < warnings.size(); ++given.warnings) {
    const Warning& warning = warnings[given.warnings];
    entries.push_back(
        {.real_ns = TimeOf(warning, facts, entries, first_of_run),
         .text = json_ ? WarningAsJson(warning) : WarningLine(facts.run().program(), warning),
         .finding = {}});
  }
}

void TailLooks::CollectIncidents(const std::string& job, const std::vector<RunFacts>& facts,
                                 std::vector<TailEntry>& entries) {
  uint64_t end_ns = 0;
  for (const RunFacts& run : facts) end_ns = std::max(end_ns, EndOf(run));
  for (const TailEntry& entry : entries) {
    const bool of_job = entry.finding && std::any_of(facts.begin(), facts.end(), [&](auto& run) {
                          return RunId(run.run()) == entry.finding->run;
                        });
    if (of_job) end_ns = std::max(end_ns, entry.real_ns);
  }
  const Verdict verdict = source_.VerdictOn(job, facts);
  for (const Incident& incident : verdict.incidents())
    entries.push_back(
        {.real_ns = end_ns,
         .text = json_ ? IncidentAsJson(verdict, incident) : IncidentLine(verdict, incident),
         .finding = {}});
}

}  // namespace nanwatch
