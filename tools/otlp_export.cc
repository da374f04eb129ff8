// SPDX-License-Identifier: Apache-2.0
#include "tools/otlp_export.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <optional>

#include "daemon/correlate/run_summary.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/fleet/otlp_attributes.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/report/cell_text.h"
#include "daemon/report/incident_words.h"
#include "tools/run_clock.h"

namespace nanwatch {
namespace {

constexpr int kSeverityInfo = 9;
constexpr int kSeverityWarning = 13;
constexpr int kSeverityError = 17;
constexpr int kSeverityFatal = 21;
constexpr int kCumulative = 2;

// One run, and what each of its requests begins with.
struct Subject {
  const RunFacts& facts;
  const RunSeries& series;
  const OtlpAbout& about;
};

void AddJobText(OtlpAttributes& attributes, const char* key, const std::string& value) {
  if (!value.empty()) AddText(attributes, key, CutToCells(Printable(value), kOtlpTextCellsMax));
}

uint64_t AtOf(uint64_t monotonic_ns, const Run& run) {
  return static_cast<uint64_t>(std::max<int64_t>(RealNs(monotonic_ns, run), 0));
}

// ---- the resource

void DescribeResource(const Run& run, otlp::Resource& resource) {
  OtlpAttributes& attributes = *resource.mutable_attributes();
  AddJobText(attributes, "service.name", run.program().empty() ? "python" : run.program());
  AddText(attributes, "service.instance.id", RunId(run));
  AddJobText(attributes, "host.name", run.host());
  AddNumber(attributes, "process.pid", run.pid());
  AddJobText(attributes, "process.command_line", CommandLine(run.command()));
  AddJobText(attributes, "process.working_directory", run.directory());
  AddText(attributes, "process.runtime.name", "cpython");
  AddJobText(attributes, "process.runtime.version", run.python_version());
  AddJobText(attributes, "nanwatch.job", run.job());
  AddText(attributes, "nanwatch.run", RunId(run));
  AddNumber(attributes, "nanwatch.rank", run.rank());
  AddNumber(attributes, "nanwatch.world_size", run.world_size());
  AddJobText(attributes, "nanwatch.torch", run.torch_version());
}

// Of a request with one resource and one scope, which is empty.
template <typename Scoped, typename Resourced>
Scoped& Begin(const Subject& subject, Resourced& resource, Scoped& scoped) {
  DescribeResource(subject.facts.run(), *resource.mutable_resource());
  scoped.mutable_scope()->set_name("nanwatch");
  scoped.mutable_scope()->set_version(subject.about.version);
  return scoped;
}

// ---- logs

// Adds records, and begins a new request where one is full.
class LogWriter {
 public:
  LogWriter(const Subject& subject, std::vector<otlp::LogsRequest>& requests)
      : subject_(subject), requests_(requests) {}

  otlp::LogRecord& Add(const char* event, int severity, uint64_t time_ns, const std::string& body) {
    if (logs_ == nullptr || static_cast<size_t>(logs_->log_records_size()) == kOtlpRecordsMax) {
      otlp::ResourceLogs& resource = *requests_.emplace_back().add_resource_logs();
      logs_ = &Begin(subject_, resource, *resource.add_scope_logs());
    }
    otlp::LogRecord& record = *logs_->add_log_records();
    record.set_event_name(event);
    record.set_severity_number(severity);
    record.set_time_unix_nano(time_ns);
    record.set_observed_time_unix_nano(subject_.about.now_ns);
    record.mutable_body()->set_string_value(CutToCells(Printable(body), kOtlpTextCellsMax));
    return record;
  }

 private:
  const Subject& subject_;
  std::vector<otlp::LogsRequest>& requests_;
  // Protobuf's messages stay where they are when the vector grows: it moves their owners only.
  otlp::ScopeLogs* logs_ = nullptr;
};

int SeverityOf(const std::string& severity) {
  if (severity == "critical") return kSeverityFatal;
  if (severity == "error") return kSeverityError;
  return severity == "warning" ? kSeverityWarning : kSeverityInfo;
}

void AddBegin(const Subject& subject, LogWriter& logs) {
  const Run& run = subject.facts.run();
  const std::string body = "run " + RunId(run) + " began: " + run.program() + ", rank " +
                           std::to_string(run.rank()) + ", torch " + run.torch_version();
  otlp::LogRecord& record =
      logs.Add("nanwatch.run.begin", kSeverityInfo, run.started_real_ns(), body);
  AddText(*record.mutable_attributes(), "nanwatch.level", LevelName(run.level()));
}

void AddEnd(const Subject& subject, LogWriter& logs) {
  const RunState& state = subject.facts.state();
  if (!state.ended()) return;
  std::string how;
  if (state.has_signal()) how = " by signal " + std::to_string(state.signal());
  if (state.has_exit_code()) how = " with status " + std::to_string(state.exit_code());
  const bool failed = (state.has_signal() && state.signal() != 0) ||
                      (state.has_exit_code() && state.exit_code() != 0);
  otlp::LogRecord& record =
      logs.Add("nanwatch.run.end", failed ? kSeverityError : kSeverityInfo, state.ended_real_ns(),
               "run " + RunId(subject.facts.run()) + " ended" + how);
  OtlpAttributes& attributes = *record.mutable_attributes();
  if (state.has_exit_code()) AddNumber(attributes, "process.exit.code", state.exit_code());
  if (state.has_signal()) AddNumber(attributes, "nanwatch.signal", state.signal());
}

void AddIncidents(const Subject& subject, const Verdict& verdict, LogWriter& logs) {
  const Run& run = subject.facts.run();
  for (const Incident& incident : verdict.incidents()) {
    const Finding& origin = incident.origin();
    if (origin.run() != RunId(run)) continue;
    const uint64_t time_ns = TimeOfRecord(origin.ticket(), subject.facts);
    otlp::LogRecord& record =
        logs.Add("nanwatch.incident", SeverityOf(incident.severity()),
                 time_ns == 0 ? 0 : AtOf(time_ns, run), IncidentLine(verdict, incident));
    record.set_severity_text(incident.severity());
    OtlpAttributes& attributes = *record.mutable_attributes();
    AddText(attributes, "nanwatch.kind", origin.kind());
    AddText(attributes, "nanwatch.class", origin.class_());
    AddFlag(attributes, "nanwatch.exact", origin.exact());
    AddJobText(attributes, "nanwatch.op", origin.op());
    AddText(attributes, "nanwatch.phase", origin.phase());
    AddJobText(attributes, "nanwatch.layer", origin.layer());
    AddJobText(attributes, "nanwatch.param", origin.param());
    AddJobText(attributes, "nanwatch.source", origin.source());
    if (origin.step() >= 0) AddNumber(attributes, "nanwatch.step", origin.step());
    AddNumber(attributes, "nanwatch.findings", static_cast<int64_t>(incident.count()));
    if (!incident.has_pattern()) continue;
    AddText(attributes, "nanwatch.pattern", incident.pattern().id());
    AddJobText(attributes, "nanwatch.cause", incident.pattern().cause());
    AddJobText(attributes, "nanwatch.fix", incident.pattern().fix());
  }
}

// When the step of the run ended; 0 where it is not kept.
uint64_t TimeOfStep(const Subject& subject, int64_t step) {
  for (const StepPoint& point : subject.series.points) {
    if (step >= 0 && point.step == step) return AtOf(point.time_ns, subject.facts.run());
  }
  return 0;
}

void AddWarnings(const Subject& subject, const Verdict& verdict, LogWriter& logs) {
  for (const Warning& warning : verdict.warnings()) {
    if (warning.run() != RunId(subject.facts.run())) continue;
    otlp::LogRecord& record =
        logs.Add("nanwatch.warning", SeverityOf(warning.severity()),
                 TimeOfStep(subject, warning.step()), WarningLine(verdict, warning));
    record.set_severity_text(warning.severity());
    OtlpAttributes& attributes = *record.mutable_attributes();
    AddText(attributes, "nanwatch.warning", warning.id());
    AddJobText(attributes, "nanwatch.param", warning.param());
    AddJobText(attributes, "nanwatch.fix", warning.fix());
    if (warning.step() >= 0) AddNumber(attributes, "nanwatch.step", warning.step());
  }
}

// ---- metrics

struct GaugeOfStep {
  const char* name;
  const char* unit;
  const char* description;
  std::optional<double> StepPoint::*value;
};
constexpr GaugeOfStep kGauges[] = {
    {"nanwatch.loss", "1", "The loss of a step", &StepPoint::loss},
    {"nanwatch.gradient_norm", "1", "2-norm over all gradients", &StepPoint::gradient_norm},
    {"nanwatch.loss_scale", "1", "The GradScaler's scale after the step", &StepPoint::scale},
    {"nanwatch.learning_rate", "1", "Of the optimizer's first group", &StepPoint::learning_rate},
    {"nanwatch.step.overhead", "1",
     "How much longer steps took with checks until then; 0.01 is 1 %", &StepPoint::overhead},
    {"nanwatch.step.duration", "s", "Since the step before", &StepPoint::seconds},
    {"nanwatch.limit_share", "1", "How near a result came to the limit of its type",
     &StepPoint::limit_share},
};

otlp::Metric& AddMetric(otlp::ScopeMetrics& metrics, const char* name, const char* unit,
                        const char* description) {
  otlp::Metric& metric = *metrics.add_metrics();
  metric.set_name(name);
  metric.set_unit(unit);
  metric.set_description(description);
  return metric;
}

void AddGauges(const Subject& subject, size_t from, size_t to, otlp::ScopeMetrics& metrics) {
  for (const GaugeOfStep& gauge : kGauges) {
    otlp::Gauge points;
    for (size_t i = from; i < to; ++i) {
      const StepPoint& point = subject.series.points[i];
      if (!(point.*gauge.value).has_value()) continue;
      otlp::NumberDataPoint& added = *points.add_data_points();
      added.set_time_unix_nano(AtOf(point.time_ns, subject.facts.run()));
      added.set_as_double(*(point.*gauge.value));
      if (point.step >= 0) AddNumber(*added.mutable_attributes(), "nanwatch.step", point.step);
    }
    if (points.data_points_size() == 0) continue;
    AddMetric(metrics, gauge.name, gauge.unit, gauge.description).mutable_gauge()->Swap(&points);
  }
}

// Totals of a run, as they were when it was seen last.
class Totals {
 public:
  Totals(const Subject& subject, otlp::ScopeMetrics& metrics)
      : start_ns_(subject.facts.run().started_real_ns()),
        end_ns_(subject.facts.state().ended() ? subject.facts.state().ended_real_ns()
                                              : subject.about.now_ns),
        metrics_(metrics) {}

  void Begin(const char* name, const char* unit, const char* description) {
    sum_ = AddMetric(metrics_, name, unit, description).mutable_sum();
    sum_->set_aggregation_temporality(kCumulative);
    sum_->set_is_monotonic(true);
  }
  otlp::NumberDataPoint& Add(uint64_t value) {
    otlp::NumberDataPoint& point = *sum_->add_data_points();
    point.set_start_time_unix_nano(start_ns_);
    point.set_time_unix_nano(end_ns_);
    point.set_as_int(static_cast<int64_t>(value));
    return point;
  }

 private:
  uint64_t start_ns_;
  uint64_t end_ns_;
  otlp::ScopeMetrics& metrics_;
  otlp::Sum* sum_ = nullptr;
};

uint64_t AlarmsOf(const Verdict& verdict, const std::string& run) {
  return static_cast<uint64_t>(std::count_if(
      verdict.incidents().begin(), verdict.incidents().end(), [&run](const Incident& incident) {
        return incident.origin().run() == run && incident.severity() != "info";
      }));
}

uint64_t WarningsOf(const Verdict& verdict, const std::string& run) {
  return static_cast<uint64_t>(
      std::count_if(verdict.warnings().begin(), verdict.warnings().end(),
                    [&run](const Warning& warning) { return warning.run() == run; }));
}

void AddTotals(const Subject& subject, const Verdict& verdict, otlp::ScopeMetrics& metrics) {
  const RunState& state = subject.facts.state();
  const std::string run = RunId(subject.facts.run());
  Totals totals(subject, metrics);
  totals.Begin("nanwatch.steps", "{step}", "Steps of the optimizer that closes the cycle");
  totals.Add(std::max(subject.facts.steps(), StepClock(subject.facts).UpdatesSeen()));
  totals.Begin("nanwatch.anomalies", "{incident}", "Incidents that alarm");
  totals.Add(AlarmsOf(verdict, run));
  totals.Begin("nanwatch.warnings", "{warning}", "Early warnings");
  totals.Add(WarningsOf(verdict, run));
  totals.Begin("nanwatch.tensors_checked", "{tensor}", "Tensors that were checked");
  totals.Add(state.tensors_checked());
  totals.Begin("nanwatch.lost_records", "{record}", "Records, steps and snapshots that were lost");
  totals.Add(LostRecords(state) + state.steps_lost() + state.stats_lost());
  totals.Begin("nanwatch.unchecked", "{tensor}", "Tensors that were not checked");
  uint64_t reasons = 0;
  const auto add = [&](const std::string& reason, uint64_t count) {
    if (count == 0) return;
    ++reasons;
    AddText(*totals.Add(count).mutable_attributes(), "nanwatch.reason", reason);
  };
  for (int i = 0; i < state.unchecked_size(); ++i)
    add(UncheckedName(static_cast<uint32_t>(i)), state.unchecked(i));
  add(kUncheckedToMeasure, state.steps_off());
  if (reasons == 0) metrics.mutable_metrics()->RemoveLast();
}

void AddOverhead(const Subject& subject, otlp::ScopeMetrics& metrics) {
  const RunState& state = subject.facts.state();
  if (!state.has_overhead_percent()) return;
  otlp::Metric& metric =
      AddMetric(metrics, "nanwatch.overhead", "1",
                "How much longer a step takes with nanwatch's checks; 0.01 is 1 %");
  otlp::NumberDataPoint& point = *metric.mutable_gauge()->add_data_points();
  point.set_time_unix_nano(state.ended() ? state.ended_real_ns() : subject.about.now_ns);
  point.set_as_double(state.overhead_percent() / 100);
}

void AddMetrics(const Subject& subject, const Verdict& verdict,
                std::vector<otlp::MetricsRequest>& requests) {
  const auto begin = [&]() -> otlp::ScopeMetrics& {
    otlp::ResourceMetrics& resource = *requests.emplace_back().add_resource_metrics();
    return Begin(subject, resource, *resource.add_scope_metrics());
  };
  const size_t count = subject.series.points.size();
  for (size_t from = 0; from < count; from += kOtlpStepsMax)
    AddGauges(subject, from, std::min(count, from + kOtlpStepsMax), begin());
  otlp::ScopeMetrics& last = begin();
  AddOverhead(subject, last);
  AddTotals(subject, verdict, last);
}

std::string JsonLine(const google::protobuf::Message& message) {
  std::string json;
  // Fails for messages of unknown types only.
  const bool ok = google::protobuf::util::MessageToJsonString(message, &json).ok();
  return ok ? json + "\n" : "";
}

}  // namespace

OtlpExport OtlpOf(const std::vector<RunFacts>& facts, const Verdict& verdict,
                  const std::vector<RunSeries>& series, const OtlpAbout& about) {
  OtlpExport exported;
  for (size_t i = 0; i < facts.size() && i < series.size(); ++i) {
    const Subject subject{.facts = facts[i], .series = series[i], .about = about};
    LogWriter logs(subject, exported.logs);
    AddBegin(subject, logs);
    AddWarnings(subject, verdict, logs);
    AddIncidents(subject, verdict, logs);
    AddEnd(subject, logs);
    AddMetrics(subject, verdict, exported.metrics);
  }
  return exported;
}

std::string OtlpJsonLines(const OtlpExport& exported) {
  std::string lines;
  for (const otlp::LogsRequest& request : exported.logs) lines += JsonLine(request);
  for (const otlp::MetricsRequest& request : exported.metrics) lines += JsonLine(request);
  return lines;
}

}  // namespace nanwatch
