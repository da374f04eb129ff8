// SPDX-License-Identifier: Apache-2.0
// told_pages FOLDER: writes pages about runs that never were, for a browser to open.
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/explain/explain.h"
#include "daemon/report/page/html_page.h"
#include "daemon/report/page/page_document.h"
#include "daemon/report/text_report.h"
#include "tests/daemon/correlate/run_builder.h"
#include "tests/daemon/report/masked_row.h"

namespace nanwatch {
namespace {

constexpr size_t kLongName = 10'000'000;

// Deterministic, and uneven enough to look like a training.
double Noise(int64_t i) {
  return std::sin(12.9898 * static_cast<double>(i)) * std::sin(78.233 * static_cast<double>(i));
}

RunSeries Training(const std::string& run, int rank, int64_t steps, int64_t bad_from) {
  RunSeries series{.run = run, .rank = rank, .points = {}};
  for (int64_t i = 0; i < steps; ++i) {
    StepPoint point;
    point.step = point.x = i;
    point.level = i % 97 == 96 ? "idle" : "full";
    point.bad = i >= bad_from;
    point.skipped = i % 211 == 210;
    const auto t = static_cast<double>(i);
    point.loss = point.bad ? NAN : 4 / (1 + t / 60) + 0.2 * Noise(i + rank) + 0.6;
    point.gradient_norm =
        point.bad
            ? INFINITY
            : std::exp(0.4 * Noise(3 * i + rank)) *
                  (i > bad_from - 30 ? std::exp((t - static_cast<double>(bad_from) + 30) / 3) : 1);
    point.scale = std::ldexp(65536, static_cast<int>(i / 500 % 3));
    if (point.level == "full") point.learning_rate = 3e-4 * std::min(1.0, (t + 1) / 100);
    if (i > 20) point.overhead = 0.05 + 0.01 * Noise(i / 16);
    point.seconds = 0.03 + 0.004 * std::abs(Noise(7 * i));
    if (i % 5 == 0) point.limit_share = 0.02 + 0.9 * t / static_cast<double>(steps);
    point.nearest_layer = "encoder.layers.1.self_attn";
    series.points.push_back(point);
  }
  return series;
}

StatsReport Snapshots(const std::string& run, int64_t steps, int count, int layers) {
  StatsReport report;
  for (int s = 0; s < count; ++s) {
    SnapshotReport& snapshot = *report.add_snapshots();
    snapshot.set_run(run);
    snapshot.set_optimizer("AdamW");
    snapshot.set_step(s * steps / count);
    for (int i = 0; i < layers; ++i) {
      const std::string layer = "encoder.layers." + std::to_string(i / 4) +
                                (i % 4 == 0   ? ".self_attn"
                                 : i % 4 == 1 ? ".linear1"
                                 : i % 4 == 2 ? ".linear2"
                                              : ".norm");
      LayerReport& row = *snapshot.add_layers();
      row.set_layer(layer);
      row.set_dtype("float16");
      row.set_largest(10 * std::exp2(8 * std::abs(Noise(i)) + 4.0 * s / count));
      row.set_headroom(65504 / row.largest());
      ParameterReport& parameter = *snapshot.add_parameters();
      parameter.set_name(layer + ".weight");
      parameter.set_dtype("float32");
      parameter.set_numel(589'824);
      parameter.set_gradient(i % 17 == 16 ? "none" : "read");
      if (i % 17 == 16) continue;
      parameter.set_gradient_norm(std::exp(2 * Noise(i)));
      parameter.set_gradient_max_abs(0.1 * std::abs(Noise(i)));
      parameter.set_gradient_zero_share(i % 9 == 0 ? 0.5 : 0);
      parameter.set_update_ratio(0.001 * std::abs(Noise(i + 1)));
    }
  }
  return report;
}

// A fully masked row of attention, with what came of it.
Verdict MaskedRow(const std::string& name) {
  RunBuilder run;
  TellMaskedRow(run, name);
  Verdict verdict = Diagnose({run.Build()});
  verdict.mutable_run()->set_program("train.py");
  verdict.mutable_run()->set_host("node7");
  verdict.mutable_run()->set_started_at("2026-11-26T11:40:02.120Z");
  for (const char* word : {"python", "train.py", "--epochs", "3"})
    verdict.mutable_run()->add_command(word);
  Incident& incident = *verdict.mutable_incidents(0);
  for (const char* op : {"aten::native_layer_norm", "aten::_unsafe_view", "aten::embedding",
                         "aten::convolution", "aten::addcdiv_", "aten::mul_", "aten::mm"}) {
    TrailOp& before = *incident.add_trail();
    before.set_op(op);
    before.set_layer(name);
    before.set_phase("forward");
    before.set_dtype("float32");
    before.set_largest(0.00007812);
    before.set_at_least(true);
    incident.add_losses_before(2.5);
  }
  Warning& warning = *verdict.add_warnings();
  warning.set_id("gradient-exploding");
  warning.set_severity("warning");
  warning.set_step(95);
  warning.set_iteration(95);
  warning.set_evidence("gradient norm 3.2e+06 at step 95, median 1.8 over the 100 steps before");
  warning.set_cause("the updates overshoot");
  warning.set_fix("clip the gradient, or lower the learning rate");
  (*verdict.mutable_coverage()->mutable_unchecked())["quantized"] = 12;
  return verdict;
}

PageFacts FactsOf(Verdict verdict) {
  PageFacts facts;
  facts.job = verdict.run().job();
  facts.verdict = std::move(verdict);
  facts.made_at = "2026-11-26T12:00:00.000Z";
  facts.version = "1.2.3";
  return facts;
}

void AddCheckpoint(Verdict& verdict, const std::string& file, int64_t step, uint32_t bad) {
  SavedCheckpoint& saved = *verdict.add_checkpoints();
  saved.set_file(file);
  saved.set_state(bad > 0 ? "bad" : "clean");
  saved.set_step(step);
  saved.set_saved_at("2026-11-26T11:58:00.000Z");
  saved.set_tensors(48);
  saved.set_bad(bad);
  if (bad > 0) saved.set_first_bad("model.encoder.layers.1.linear1.weight");
}

PageFacts Anomaly() {
  PageFacts facts = FactsOf(MaskedRow("encoder.layers.1.self_attn"));
  AddCheckpoint(facts.verdict, "ckpt/300.pt", 300, 0);
  AddCheckpoint(facts.verdict, "ckpt/400.pt", 400, 31);
  const std::string& run = facts.verdict.run().id();
  facts.series = {Training(run, 0, 130, 117)};
  facts.stats = Snapshots(run, 130, 12, 24);
  facts.source =
      SourceLines{.path = "/home/user/model.py",
                  .first = 86,
                  .marked = 88,
                  .lines = {"    def forward(self, scores, mask):",
                            "        scores = scores.masked_fill(mask, float('-inf'))",
                            "        return scores.softmax(-1)", "", "class Head(nn.Module):"}};
  return facts;
}

PageFacts Long() {
  PageFacts facts = FactsOf(MaskedRow("encoder.layers.1.self_attn"));
  const std::string& run = facts.verdict.run().id();
  facts.series = {Training(run, 0, 10'000, 9'990)};
  facts.stats = Snapshots(run, 10'000, 300, 200);
  return facts;
}

PageFacts Clean() {
  Verdict verdict = Diagnose({RunBuilder().Build()});
  verdict.set_verdict("clean");
  verdict.clear_unknown_because();
  verdict.mutable_run()->set_program("train.py");
  verdict.mutable_coverage()->set_steps(300);
  PageFacts facts = FactsOf(verdict);
  facts.series = {Training(facts.verdict.run().id(), 0, 300, 1'000)};
  facts.stats = Snapshots(facts.verdict.run().id(), 300, 3, 12);
  return facts;
}

PageFacts Ranks() {
  PageFacts facts = FactsOf(MaskedRow("encoder.layers.1.self_attn"));
  facts.verdict.mutable_run()->set_world_size(64);
  facts.verdict.mutable_incidents(0)->clear_ranks();
  for (int rank = 0; rank < 8; ++rank) facts.verdict.mutable_incidents(0)->add_ranks(rank);
  for (int rank = 0; rank < 64; ++rank)
    facts.series.push_back(
        Training(rank == 0 ? facts.verdict.run().id() : "run" + std::to_string(rank), rank, 400,
                 rank == 5 ? 360 : 365 + rank % 7));
  return facts;
}

// A page in which all names are these: of the same elements, whatever they are.
PageFacts Named(const std::string& markup, const std::string& turned) {
  PageFacts facts = FactsOf(MaskedRow(markup));
  facts.job = facts.verdict.mutable_run()->mutable_job()->assign(markup);
  facts.verdict.mutable_run()->set_program(markup + turned);
  facts.verdict.mutable_run()->add_command(std::string(kLongName, 'A') + markup);
  facts.verdict.mutable_run()->set_host(turned);
  facts.verdict.mutable_incidents(0)->mutable_origin()->set_source(markup);
  facts.verdict.mutable_warnings(0)->set_param(markup + turned);
  AddCheckpoint(facts.verdict, markup + turned, 7, 1);
  facts.verdict.mutable_checkpoints(0)->set_first_bad(markup);
  facts.verdict.add_rule_problems(markup);
  (*facts.verdict.mutable_coverage()->mutable_unchecked())[markup] = 3;
  facts.series = {Training(facts.verdict.run().id(), 0, 130, 117)};
  facts.stats = Snapshots(facts.verdict.run().id(), 130, 4, 3);
  for (SnapshotReport& snapshot : *facts.stats.mutable_snapshots()) {
    snapshot.set_optimizer(markup);
    snapshot.mutable_layers(0)->set_layer(markup);
    snapshot.mutable_parameters(0)->set_name(turned + markup);
  }
  facts.source = SourceLines{.path = markup, .first = 1, .marked = 2, .lines = {markup, turned}};
  return facts;
}

// Names that would be markup, turn the direction of text, or fill the page.
PageFacts Hostile() {
  return Named("</script><img src=x onerror=\"window.broken=1\"><script>window.broken=1</script>",
               "\u202e]-->'\"`{{7*7}}\u2066\u2028\u2029\x01\xff");
}

PageFacts Harmless() { return Named("encoder", "decoder"); }

}  // namespace
}  // namespace nanwatch

int main(int argc, char** argv) {
  using namespace nanwatch;
  if (argc != 2) return 2;
  const std::pair<const char*, PageFacts> pages[] = {
      {"anomaly", Anomaly()}, {"long", Long()},       {"clean", Clean()},
      {"ranks", Ranks()},     {"hostile", Hostile()}, {"harmless", Harmless()}};
  for (const auto& [name, facts] : pages) {
    const std::string page =
        HtmlPage(PageDocument(facts),
                 {.nonce = NewNonce(), .plain_text = TextReport(facts.verdict, TextOptions())});
    std::ofstream file(std::string(argv[1]) + "/" + name + ".html", std::ios::binary);
    if (!(file << page).flush()) return 1;
  }
  return 0;
}
