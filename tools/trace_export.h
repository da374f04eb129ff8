// SPDX-License-Identifier: Apache-2.0
// A job as a trace of Chrome's JSON format: steps as slices, loss, gradient norm and scale as
// counters, findings of origins as instants. Perfetto and chrome://tracing show it, and its clock is
// that of torch.profiler's traces, so that the two lie side by side. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/report/page/run_series.h"
#include "verdict.pb.h"

namespace nanwatch {

// `series`: of `facts`, in their order.
[[nodiscard]] std::string TraceJson(const std::vector<RunFacts>& facts, const Verdict& verdict,
                                    const std::vector<RunSeries>& series);

}  // namespace nanwatch
