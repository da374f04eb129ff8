#include "daemon/correlate/correlate.h"

#include "daemon/correlate/run_summary.h"

namespace nanwatch {

Verdict Correlate(const std::vector<RunFacts>& runs) {
  Verdict verdict;
  verdict.set_schema("nanwatch.verdict/1");
  verdict.set_verdict("clean");
  for (const RunFacts& facts : runs) *verdict.add_runs() = DescribeRun(facts);
  if (!runs.empty()) {
    *verdict.mutable_run() = verdict.runs(0);
    *verdict.mutable_coverage() = SumCoverage(runs);
  }
  return verdict;
}

}  // namespace nanwatch
