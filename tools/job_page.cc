// SPDX-License-Identifier: Apache-2.0
#include "tools/job_page.h"

#include <map>
#include <nlohmann/json.hpp>

#include "daemon/base/clock.h"
#include "daemon/explain/parameter_reports.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/report/page/html_page.h"
#include "daemon/report/text_report.h"
#include "tools/job_verdict.h"
#include "tools/source_lines.h"

namespace nanwatch {

std::vector<RunSeries> SeriesOfRuns(const std::vector<RunFacts>& facts, Observations& observations,
                                    const std::function<void(size_t done)>& before_each) {
  std::vector<RunSeries> series;
  for (const RunFacts& run : facts) {
    if (before_each) before_each(series.size());
    std::map<uint64_t, StepSummary> by_index;
    for (StepSummary& step : observations.StepsOfRun(RunId(run.run())))
      by_index[step.index()] = std::move(step);
    for (const StepSummary& step : run.steps_read()) by_index[step.index()] = step;
    std::vector<StepSummary> steps;
    steps.reserve(by_index.size());
    for (auto& [index, step] : by_index) steps.push_back(std::move(step));
    series.push_back(SeriesOf(run, steps));
  }
  return series;
}

PageFacts PageFactsOf(const std::string& job, const std::vector<RunFacts>& facts,
                      const Verdict& verdict, Observations& observations) {
  return {.verdict = verdict,
          .stats = ReportStats(facts, job),
          .series = SeriesOfRuns(facts, observations),
          .source = SourceLinesOf(verdict),
          .job = job,
          .made_at = FormatUtc(SystemClock().real_ns()),
          .version = NANWATCH_VERSION,
          .live = StillRuns(facts)};
}

std::string PageFile(const PageFacts& facts) {
  return HtmlPage(
      PageDocument(facts),
      {.nonce = NewNonce(), .plain_text = TextReport(facts.verdict, {.live = facts.live})});
}

}  // namespace nanwatch
