// SPDX-License-Identifier: Apache-2.0
// Whatever rows a database holds, a verdict is made of them: facts of two runs, as messages, which
// no decoder of ours has seen. A libFuzzer target.
#include <cstdint>
#include <vector>

#include "daemon/explain/explain.h"
#include "daemon/explain/parameter_reports.h"
#include "verdict.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<nanwatch::RunFacts> runs(2);
  const size_t half = size / 2;
  (void)runs[0].ParsePartialFromArray(data, static_cast<int>(half));
  (void)runs[1].ParsePartialFromArray(data + half, static_cast<int>(size - half));
  (void)nanwatch::Diagnose(runs);
  (void)nanwatch::ReportStats(runs, "job");
  return 0;
}
