// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "daemon/correlate/run_summary.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/report/text_layout.h"
#include "tools/run_words.h"

namespace nanwatch {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

constexpr char kOtherLayer[] = "(other)";

std::string LabelText(const std::string& value) {
  std::string escaped;
  for (const char c : Shorten(Printable(value), kMetricLabelMax)) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string ValueText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// One family after another: its lines of comment, then its samples.
class Exposition {
 public:
  explicit Exposition(MetricsFormat format) : format_(format) {}

  void Counter(const std::string& name, const char* help) {
    Begin(name, "counter", "_total", help);
  }
  void Gauge(const std::string& name, const char* help) { Begin(name, "gauge", "", help); }
  void Info(const std::string& name, const char* help) {
    Begin(name, format_ == MetricsFormat::kOpenMetrics ? "info" : "gauge", "_info", help);
  }

  void Sample(const Labels& labels, double value) {
    text_ += sample_;
    for (size_t i = 0; i < labels.size(); ++i) {
      text_ += (i == 0 ? "{" : ",") + std::string(labels[i].first) + "=\"" +
               LabelText(labels[i].second) + "\"";
    }
    text_ += (labels.empty() ? " " : "} ") + ValueText(value) + "\n";
  }

  [[nodiscard]] std::string Take() {
    if (format_ == MetricsFormat::kOpenMetrics) text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  // OpenMetrics names the family, the older text its samples.
  void Begin(const std::string& name, const char* type, const char* suffix, const char* help) {
    sample_ = name + suffix;
    const std::string& named = format_ == MetricsFormat::kOpenMetrics ? name : sample_;
    text_ += "# HELP " + named + " " + help + "\n# TYPE " + named + " " + type + "\n";
  }

  MetricsFormat format_;
  std::string sample_;
  std::string text_;
};

Labels OfRun(const TableRun& run) {
  return {{"job", run.job}, {"rank", std::to_string(run.run.rank())}, {"run", run.id}};
}

void AddGauge(const char* name, const char* help, const std::vector<TableRun>& runs,
              std::optional<double> TableRun::*value, Exposition& out) {
  out.Gauge(name, help);
  for (const TableRun& run : runs) {
    if ((run.*value).has_value()) out.Sample(OfRun(run), *(run.*value));
  }
}

void AddUnchecked(const std::vector<TableRun>& runs, Exposition& out) {
  out.Counter("nanwatch_unchecked",
              "Tensors that were not checked, by reason; steps for measuring and after_poisoned");
  for (const TableRun& run : runs) {
    const auto add = [&](const std::string& reason, uint64_t count) {
      if (count == 0) return;
      Labels labels = OfRun(run);
      labels.emplace_back("reason", reason);
      out.Sample(labels, static_cast<double>(count));
    };
    const auto& counts = run.state.unchecked();
    for (int i = 0; i < counts.size() && i < static_cast<int>(kMetricReasonsMax) - 1; ++i)
      add(UncheckedName(static_cast<uint32_t>(i)), counts[i]);
    add(kUncheckedToMeasure, run.state.steps_off());
  }
}

void AddRuns(const std::vector<TableRun>& runs, Exposition& out) {
  out.Info("nanwatch_run", "A run, by what it was started as");
  for (const TableRun& run : runs) {
    Labels labels = OfRun(run);
    labels.insert(labels.end(), {{"world_size", std::to_string(run.run.world_size())},
                                 {"program", run.run.program()},
                                 {"host", run.run.host()},
                                 {"torch", run.run.torch_version()},
                                 {"level", LevelName(run.state.level())}});
    out.Sample(labels, 1);
  }
  out.Gauge("nanwatch_run_live", "1 while the process of the run lives");
  for (const TableRun& run : runs) out.Sample(OfRun(run), run.live ? 1 : 0);
  out.Counter("nanwatch_steps", "Steps of the optimizer that closes the cycle");
  for (const TableRun& run : runs) {
    if (run.step >= 0) out.Sample(OfRun(run), static_cast<double>(run.step));
  }
  AddGauge("nanwatch_loss", "The newest loss that was seen", runs, &TableRun::loss, out);
  AddGauge("nanwatch_gradient_norm", "2-norm over all gradients in the newest step of a live run",
           runs, &TableRun::gradient_norm, out);
  AddGauge("nanwatch_loss_scale", "The GradScaler's scale after the newest step of a live run",
           runs, &TableRun::scale, out);
  out.Gauge(
      "nanwatch_overhead_ratio",
      "How much longer a step takes with nanwatch's checks, measured in the job; 0.01 is 1 %");
  for (const TableRun& run : runs) {
    if (run.state.has_overhead_percent())
      out.Sample(OfRun(run), run.state.overhead_percent() / 100);
  }
  out.Counter("nanwatch_lost_records", "Records, steps and snapshots that were lost");
  for (const TableRun& run : runs)
    out.Sample(OfRun(run), static_cast<double>(LostRecords(run.state) + run.state.steps_lost() +
                                               run.state.stats_lost()));
  AddUnchecked(runs, out);
}

// Incidents that alarm, by their labels; those beyond the bound are one series.
std::map<Labels, double> AnomalySeriesOf(const std::string& job, const TableJob& known) {
  std::map<Labels, double> series;
  double other = 0;
  for (const Incident& incident : known.incidents) {
    if (incident.severity() == "info") continue;
    const Finding& origin = incident.origin();
    const Labels labels = {{"job", job},
                           {"rank", std::to_string(origin.rank())},
                           {"class", origin.class_()},
                           {"phase", origin.phase()},
                           {"layer", origin.layer()}};
    if (const auto found = series.find(labels); found != series.end()) {
      ++found->second;
    } else if (series.size() + 1 < kMetricAnomaliesMax) {
      series[labels] = 1;
    } else {
      ++other;
    }
  }
  if (other > 0)
    series[{{"job", job}, {"rank", ""}, {"class", ""}, {"phase", ""}, {"layer", kOtherLayer}}] =
        other;
  return series;
}

std::map<Labels, double> WarningSeriesOf(const std::string& job, const TableJob& known) {
  std::map<Labels, double> series;
  for (const Warning& warning : known.warnings) {
    const Labels labels = {
        {"job", job}, {"rank", std::to_string(warning.rank())}, {"kind", warning.id()}};
    if (series.size() < kMetricWarningsMax || series.contains(labels)) ++series[labels];
  }
  return series;
}

template <typename SeriesOf>
void AddJobs(const std::map<std::string, TableJob>& jobs, SeriesOf series_of, Exposition& out) {
  for (const auto& [job, known] : jobs) {
    for (const auto& [labels, count] : series_of(job, known)) out.Sample(labels, count);
  }
}

}  // namespace

const char* MetricsType(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

MetricsFormat FormatFor(std::string_view accept) {
  return accept.find("application/openmetrics-text") != std::string_view::npos
             ? MetricsFormat::kOpenMetrics
             : MetricsFormat::kText;
}

std::string MetricsText(const std::vector<TableRun>& runs,
                        const std::map<std::string, TableJob>& jobs, bool database_readable,
                        MetricsFormat format) {
  Exposition out(format);
  out.Gauge("nanwatch_database_readable",
            "1 where the daemon's database can be read, or there is none yet");
  out.Sample({}, database_readable ? 1 : 0);
  AddRuns(runs, out);
  out.Counter("nanwatch_anomalies", "Incidents that alarm, by their origin");
  AddJobs(jobs, AnomalySeriesOf, out);
  out.Counter("nanwatch_warnings", "Early warnings, by kind");
  AddJobs(jobs, WarningSeriesOf, out);
  return out.Take();
}

}  // namespace nanwatch
