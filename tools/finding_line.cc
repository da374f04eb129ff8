// SPDX-License-Identifier: Apache-2.0
#include "tools/finding_line.h"

#include <nlohmann/json.hpp>

#include "daemon/base/clock.h"
#include "daemon/correlate/kernels.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/report/json_report.h"
#include "daemon/report/kernel_text.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kIdShown = 8;

uint64_t RealTimeOf(const Run& run, uint64_t monotonic_ns) {
  return run.started_real_ns() + (monotonic_ns - run.started_monotonic_ns());
}

std::string TimeOfDay(uint64_t real_ns) {
  const std::string utc = FormatUtc(real_ns);  // 2026-11-21T10:39:06.123Z
  return utc.size() > 23 ? utc.substr(11, 12) : utc;
}

std::string CountsAsText(const FindingLine& line) {
  std::string text;
  const auto add = [&](const char* kind, uint64_t count) {
    if (count == 0) return;
    text += (text.empty() ? "" : ", ") + std::string(kind) + " " + std::to_string(count);
  };
  add("NaN", line.nan);
  add("+Inf", line.pos_inf);
  add("-Inf", line.neg_inf);
  if (!text.empty()) text += " of " + std::to_string(line.numel);
  return text;
}

void AddWord(std::string& text, const std::string& word) {
  if (!word.empty()) text += "  " + word;
}

// The place of a value, as far as it is known.
void SetPlace(const std::map<uint32_t, const Site*>& sites, uint32_t id, FindingLine& line) {
  const auto site = sites.find(id);
  if (site == sites.end()) return;
  line.phase = PhaseName(site->second->phase());
  line.layer = site->second->layer();
  line.op = site->second->op();
  line.finding_class = FindingClassName(site->second->finding_class());
  line.source = site->second->source();
}

std::string KernelsOf(const KernelsFact& fact) {
  Finding finding;
  AddKernels(fact, finding);
  return KernelsText(finding);
}

}  // namespace

std::vector<FindingLine> FindingsAfter(const RunFacts& facts, uint64_t after) {
  const StepClock clock(facts);
  std::map<uint32_t, const Site*> sites;
  for (const Site& site : facts.sites()) sites[site.id()] = &site;
  std::map<uint64_t, uint32_t> site_of;
  std::vector<FindingLine> lines;
  for (const Record& record : facts.records()) {
    if (record.has_value()) site_of[record.ticket()] = record.value().site();
    if (record.ticket() <= after || !(record.has_value() || record.has_kernels())) continue;
    if (record.has_kernels() && record.kernels().kernels().empty())
      continue;  // the report says why
    FindingLine line;
    line.run = RunId(facts.run());
    line.rank = facts.run().rank();
    line.ticket = record.ticket();
    line.real_ns = RealTimeOf(facts.run(), record.time_ns());
    const StepReading reading = clock.Read(record.clocks(), record.time_ns());
    line.step = reading.step;
    line.training = reading.training;
    if (record.has_kernels()) {
      const auto known = site_of.find(record.kernels().value());
      if (known != site_of.end()) SetPlace(sites, known->second, line);
      line.kernels = KernelsOf(record.kernels());
      lines.push_back(std::move(line));
      continue;
    }
    line.param = record.value().param();
    SetPlace(sites, record.value().site(), line);
    if (record.value().outputs_size() > 0) {
      const RecordTensor& output = record.value().outputs(0);
      line.nan = output.nan();
      line.pos_inf = output.pos_inf();
      line.neg_inf = output.neg_inf();
      line.numel = static_cast<uint64_t>(output.numel());
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

namespace {

std::string OfTraining(int training) {
  return training == 0 ? "" : " of training " + std::to_string(training);
}

}  // namespace

std::string LineAsText(const FindingLine& line) {
  std::string text = TimeOfDay(line.real_ns) + "  " + line.run.substr(0, kIdShown) + " rank " +
                     std::to_string(line.rank) + "  step " +
                     (line.step < 0 ? "?" : std::to_string(line.step)) + OfTraining(line.training);
  AddWord(text, line.phase);
  AddWord(text, line.layer);
  AddWord(text, line.op);
  if (!line.kernels.empty()) return text + "  ran " + line.kernels;
  AddWord(text, line.param);
  AddWord(text, line.finding_class);
  AddWord(text, CountsAsText(line));
  AddWord(text, line.source);
  return text;
}

std::string LineAsJson(const FindingLine& line) {
  if (!line.kernels.empty()) {
    const Json object = {{"event", "kernels"},    {"at", FormatUtc(line.real_ns)},
                         {"run", line.run},       {"rank", line.rank},
                         {"ticket", line.ticket}, {"step", line.step},
                         {"phase", line.phase},   {"layer", line.layer},
                         {"op", line.op},         {"kernels", line.kernels}};
    return object.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  Json object = {{"event", "finding"},      {"at", FormatUtc(line.real_ns)}, {"run", line.run},
                 {"rank", line.rank},       {"ticket", line.ticket},         {"step", line.step},
                 {"phase", line.phase},     {"layer", line.layer},           {"op", line.op},
                 {"param", line.param},     {"class", line.finding_class},   {"nan", line.nan},
                 {"pos_inf", line.pos_inf}, {"neg_inf", line.neg_inf},       {"numel", line.numel},
                 {"source", line.source}};
  if (line.training != 0) object["training"] = line.training;
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string WarningAsJson(const Warning& warning) {
  Json object = {{"event", "warning"},
                 {"id", warning.id()},
                 {"severity", warning.severity()},
                 {"run", warning.run()},
                 {"rank", warning.rank()},
                 {"step", warning.step()},
                 {"evidence", warning.evidence()},
                 {"cause", warning.cause()},
                 {"fix", warning.fix()},
                 {"numbers", Json::object()}};
  const std::map<std::string, double> sorted(warning.numbers().begin(), warning.numbers().end());
  for (const auto& [name, number] : sorted) object["numbers"][name] = JsonNumber(number);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string IncidentAsJson(const Verdict& verdict, const Incident& incident) {
  const Finding& origin = incident.origin();
  Json object = {{"event", "incident"},
                 {"verdict", verdict.verdict()},
                 {"severity", incident.severity()},
                 {"job", verdict.run().job()},
                 {"run", origin.run()},
                 {"rank", origin.rank()},
                 {"step", origin.step()},
                 {"phase", origin.phase()},
                 {"layer", origin.layer()},
                 {"op", origin.op()},
                 {"param", origin.param()},
                 {"class", origin.class_()},
                 {"expected_by", incident.expected_by()},
                 {"reach", Json::array()},
                 {"pattern", incident.has_pattern() ? Json(incident.pattern().id()) : Json()},
                 {"count", incident.count()},
                 {"source", origin.source()}};
  for (const std::string& place : incident.reach()) object["reach"].push_back(place);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nanwatch
