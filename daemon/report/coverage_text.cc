// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/coverage_text.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <map>

#include "daemon/correlate/unknown_rule.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/text_report.h"

namespace nanwatch {
namespace {

struct Reason {
  std::string_view name;
  std::string_view meaning;
};
constexpr std::array<Reason, 17> kReasons = {{
    {"sparse", "compressed sparse tensors (CSR and the like): their values are not read yet"},
    {"quantized", "quantized tensors: they hold integers"},
    {"nested", "nested (jagged) tensors"},
    {"meta", "meta tensors: they have no memory"},
    {"fake", "fake tensors and wrapper subclasses without memory of their own"},
    {"functorch", "tensors inside vmap, grad or functionalization"},
    {"other_device", "tensors neither on the CPU nor on a CUDA device that is checked"},
    {"uninitialised", "freshly allocated memory that nothing has written yet"},
    {"async", "receive buffers that were not filled yet"},
    {"auxiliary", "outputs that hold non-finite values by definition"},
    {"written_unseen",
     "arguments written by ops that return nothing; they are checked after the update"},
    {"too_deep", "calls nested deeper than nanwatch follows"},
    {"opaque", "tensors in an opaque layout (mkldnn), or misaligned on a GPU"},
    {"after_poisoned", "steps, not tensors: parameters were already bad, so nothing was checked"},
    {"gpu_not_ready", "tensors on a GPU before checking started there, or after it ended"},
    {"gpu_busy", "tensors on a GPU while all slots for checks were in use"},
    {kUncheckedToMeasure,
     "steps, not tensors: nanwatch had switched its checks off to measure its own cost"},
}};

std::string Line(std::string_view name, const std::string& value, std::string_view meaning = "") {
  std::string line(name);
  line.resize(20, ' ');
  line += std::string(value.size() < 16 ? 16 - value.size() : 0, ' ') + value;
  if (!meaning.empty()) line += "   " + std::string(meaning);
  return line + "\n";
}

// " (12 full, 100 canary, 18 idle)"; "" where all steps were watched in one way. The steps of several
// processes are counted together, so there are more of them than the job has steps.
std::string ByLevel(const Verdict& verdict) {
  const Coverage& coverage = verdict.coverage();
  if (coverage.steps_watched().size() < 2) return "";
  std::string text;
  uint64_t sum = 0;
  for (const char* level : {"full", "sampled", "canary", "idle"}) {
    const uint64_t steps = StepsAtLevel(coverage, level);
    if (steps != 0) text += (text.empty() ? "" : ", ") + Glued(Grouped(steps) + " " + level);
    sum += steps;
  }
  if (const uint64_t off = StepsOffToMeasure(coverage); off != 0)
    text += ", " + Glued(Grouped(off) + " unchecked") + " to measure the overhead";
  const bool is_of_all = verdict.runs_size() > 1 && sum > coverage.steps();
  const std::string of_all =
      is_of_all ? "in " + std::to_string(verdict.runs_size()) + " processes: " : "";
  return " (" + of_all + text + ")";
}

// "3 summaries of steps lost".
std::string SummariesLost(const Coverage& coverage) {
  const uint64_t lost = coverage.step_summaries_lost();
  return Glued(Grouped(lost) + (lost == 1 ? " summary" : " summaries") + " of steps lost");
}

}  // namespace

std::string_view MeaningOfUnchecked(const std::string& name) {
  for (const Reason& reason : kReasons) {
    if (reason.name == name) return reason.meaning;
  }
  return "a reason that this version of nanwatch does not know";
}

std::string OverheadText(const Coverage& coverage) {
  if (!coverage.has_overhead_percent()) {
    return StepsOffToMeasure(coverage) > 0 ? "overhead not measured: too few comparisons"
                                           : "overhead not measured";
  }
  const std::string text = fmt::format("overhead {:.1f} %", coverage.overhead_percent());
  if (coverage.overhead_interval_size() != 2) return text;
  return fmt::format("{} ({:.1f} .. {:.1f})", text, coverage.overhead_interval(0),
                     coverage.overhead_interval(1));
}

uint64_t StepsAtLevel(const Coverage& coverage, const std::string& level) {
  const auto found = coverage.steps_watched().find(level);
  const uint64_t steps = found == coverage.steps_watched().end() ? 0 : found->second;
  if (level != "idle") return steps;
  return steps - std::min(steps, StepsOffToMeasure(coverage));
}

std::string WatchedText(const Verdict& verdict) {
  const Coverage& coverage = verdict.coverage();
  std::string text = Counted(coverage.steps(), "step") + ByLevel(verdict) + ", " +
                     Counted(coverage.tensors_checked(), "tensor") + ", " +
                     Counted(coverage.lost_events(), "record") + " lost";
  if (coverage.records_thinned() > 0) {
    text += ", " + Glued(Grouped(coverage.records_thinned()) + " left out") + " of this verdict";
  }
  if (coverage.step_summaries_lost() > 0) text += ", " + SummariesLost(coverage);
  const size_t kinds =
      coverage.unchecked().size() - coverage.unchecked().count(kUncheckedToMeasure);
  if (kinds != 0) {
    text += ", " + Counted(kinds, "kind") + " of tensor unchecked " +
            Glued("(nanwatch report " + ShortId(verdict.run().id()) + " --coverage)");
  }
  return text + "; " + Glued(OverheadText(coverage));
}

std::string ShortId(const std::string& id) { return Printable(id.substr(0, 8)); }

std::string CoverageReport(const Verdict& verdict) {
  const Coverage& coverage = verdict.coverage();
  std::string text = Line("steps", Grouped(coverage.steps()));
  for (const char* level : {"full", "sampled", "canary", "idle"}) {
    const uint64_t steps = StepsAtLevel(coverage, level);
    if (steps != 0) text += Line("  at level " + std::string(level), Grouped(steps));
  }
  text += Line("ops seen", Grouped(coverage.ops_seen()));
  text += Line("tensors checked", Grouped(coverage.tensors_checked()));
  text += Line("bytes checked", Grouped(coverage.bytes_checked()));
  text += Line(
      "records lost", Grouped(coverage.lost_events()),
      coverage.lost_events() > 0 ? "dropped, torn or damaged: the verdict may be incomplete" : "");
  if (coverage.records_thinned() > 0) {
    text += Line("records left out", Grouped(coverage.records_thinned()),
                 "to bound the cost of a verdict, which may be incomplete");
  }
  if (coverage.step_summaries_lost() > 0)
    text += Line("step summaries lost", Grouped(coverage.step_summaries_lost()), kSummariesLost);
  const std::string overhead = OverheadText(coverage);
  text += Line("overhead", overhead.substr(overhead.find(' ') + 1));
  if (coverage.unchecked().empty()) {
    return text + (coverage.tensors_checked() > 0 ? "every tensor was checked\n"
                                                  : "no tensor was checked\n");
  }
  text += "\ntensors not checked:\n";
  const std::map<std::string, uint64_t> sorted(coverage.unchecked().begin(),
                                               coverage.unchecked().end());
  for (const auto& [name, count] : sorted)
    text += Line("  " + Printable(name), Grouped(count), MeaningOfUnchecked(name));
  return text;
}

}  // namespace nanwatch
