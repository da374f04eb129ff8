// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/checkpoints.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/correlate/wire_facts.h"
#include "daemon/ingest/run_batch.h"

namespace nanwatch {
namespace {

std::string StateOf(const CheckpointFact& saved) {
  if (saved.failed()) return "failed";
  if (saved.bad() > 0) return "bad";
  return saved.unread() > 0 || saved.left_out() || saved.read() == 0 ? "unread" : "clean";
}

// When the run's monotonic clock stood there.
std::string TimeOf(const Run& run, uint64_t time_ns) {
  if (run.started_real_ns() == 0 || time_ns < run.started_monotonic_ns()) return "";
  return FormatUtc(run.started_real_ns() + (time_ns - run.started_monotonic_ns()));
}

SavedCheckpoint DescribeSaved(const Lineage& run, const Record& record) {
  const CheckpointFact& fact = record.checkpoint();
  const Run& identity = run.facts().run();
  SavedCheckpoint saved;
  saved.set_file(fact.file());
  saved.set_state(StateOf(fact));
  saved.set_step(run.clock().Read(record.clocks(), record.time_ns()).step);
  saved.set_saved_at(TimeOf(identity, record.time_ns()));
  saved.set_tensors(fact.read() + fact.unread());
  saved.set_bad(fact.bad());
  saved.set_unread(fact.unread());
  saved.set_first_bad(fact.first_bad());
  if (Has(fact.kinds(), wire::kHasNan)) saved.add_kinds("nan");
  if (Has(fact.kinds(), wire::kHasPosInf)) saved.add_kinds("pos_inf");
  if (Has(fact.kinds(), wire::kHasNegInf)) saved.add_kinds("neg_inf");
  saved.set_on_gpu(fact.on_gpu());
  saved.set_rank(identity.rank());
  saved.set_run(RunId(identity));
  return saved;
}

// Whether a list that is cut to its newest entries still needs this one.
bool IsToldAnyway(const std::vector<SavedCheckpoint>& all, size_t i) {
  const auto is = [&](size_t at, const char* state) { return all[at].state() == state; };
  const auto before = [&](const char* state) {
    for (size_t j = 0; j < i; ++j) {
      if (is(j, state)) return true;
    }
    return false;
  };
  const auto after = [&](const char* state) {
    for (size_t j = i + 1; j < all.size(); ++j) {
      if (is(j, state)) return true;
    }
    return false;
  };
  return (is(i, "clean") && !after("clean")) || (is(i, "bad") && !before("bad"));
}

}  // namespace

void AddCheckpoints(const std::vector<Lineage>& runs, Verdict& verdict) {
  std::vector<std::pair<uint64_t, SavedCheckpoint>> by_time;
  for (const Lineage& run : runs) {
    for (const Record& record : run.facts().records()) {
      if (record.has_checkpoint())
        by_time.emplace_back(record.time_ns(), DescribeSaved(run, record));
    }
  }
  // Of several hosts the clocks differ; of each the order is kept.
  std::stable_sort(by_time.begin(), by_time.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.second.saved_at(), a.first) <
           std::make_pair(b.second.saved_at(), b.first);
  });
  std::vector<SavedCheckpoint> all;
  for (auto& entry : by_time) all.push_back(std::move(entry.second));
  const size_t first = all.size() - std::min<size_t>(all.size(), kCheckpointsMax);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i >= first || IsToldAnyway(all, i)) *verdict.add_checkpoints() = all[i];
  }
}

}  // namespace nanwatch
