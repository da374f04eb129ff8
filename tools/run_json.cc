// SPDX-License-Identifier: Apache-2.0
#include "tools/run_json.h"

#include <nlohmann/json.hpp>

#include "daemon/base/clock.h"
#include "daemon/correlate/run_summary.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/report/json_report.h"
#include "tools/run_words.h"

namespace nanwatch {

nlohmann::ordered_json RunJson(const RunFields& row) {
  return {{"id", row.id},
          {"job", row.job},
          {"rank", row.run.rank()},
          {"world_size", row.run.world_size()},
          {"pid", row.run.pid()},
          {"host", row.run.host()},
          {"program", row.run.program()},
          {"torch", row.run.torch_version()},
          {"level", LevelName(row.state.level())},
          {"state", row.state_text},
          {"live", row.live},
          {"step", row.step},
          {"loss", row.loss ? JsonNumber(*row.loss) : nlohmann::ordered_json()},
          {"findings", row.state.values_bad()},
          {"lost", LostRecords(row.state)},
          {"started_at", FormatUtc(row.run.started_real_ns())}};
}

}  // namespace nanwatch
