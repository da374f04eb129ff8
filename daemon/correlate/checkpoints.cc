// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/checkpoints.h"

#include <algorithm>
#include <string>
#include <unordered_map>
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

// Of the shares of one checkpoint, the worst tells what it is.
int Badness(const SavedCheckpoint& saved) {
  if (saved.state() == "bad") return 3;
  if (saved.state() == "failed") return 2;
  return saved.state() == "unread" ? 1 : 0;
}

// Another rank has saved its share of the same.
void AddShare(const SavedCheckpoint& share, SavedCheckpoint& whole) {
  const uint32_t tensors = whole.tensors() + share.tensors();
  const uint32_t bad = whole.bad() + share.bad();
  const uint32_t unread = whole.unread() + share.unread();
  const bool on_gpu = whole.on_gpu() || share.on_gpu();
  if (Badness(share) > Badness(whole)) whole = share;
  whole.set_tensors(tensors);
  whole.set_bad(bad);
  whole.set_unread(unread);
  whole.set_on_gpu(on_gpu);
}

// By time, one entry a file: what a file held before somebody wrote it again is gone.
std::vector<SavedCheckpoint> OnePerFile(std::vector<SavedCheckpoint> by_time) {
  std::vector<SavedCheckpoint> all;
  all.reserve(by_time.size());
  std::unordered_map<std::string, size_t> places;  // by file
  std::vector<bool> replaced(by_time.size(), false);
  for (SavedCheckpoint& saved : by_time) {
    const auto [known, is_new] = places.try_emplace(saved.file(), all.size());
    if (!saved.file().empty() && !is_new) {
      SavedCheckpoint& before = all[known->second];
      if (before.run() != saved.run() && before.step() == saved.step()) {
        AddShare(saved, before);
        continue;
      }
      replaced[known->second] = true;
      known->second = all.size();
    }
    all.push_back(std::move(saved));
  }
  size_t kept = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (replaced[i]) continue;
    if (kept != i) all[kept] = std::move(all[i]);
    ++kept;
  }
  all.resize(kept);
  return all;
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
  std::vector<SavedCheckpoint> ordered;
  ordered.reserve(by_time.size());
  for (auto& entry : by_time) ordered.push_back(std::move(entry.second));
  const std::vector<SavedCheckpoint> all = OnePerFile(std::move(ordered));
  size_t first_bad = all.size();
  size_t last_clean = all.size();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].state() == "bad") first_bad = std::min(first_bad, i);
    if (all[i].state() == "clean") last_clean = i;
  }
  const size_t first = all.size() - std::min<size_t>(all.size(), kCheckpointsMax);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i >= first || i == first_bad || i == last_clean) *verdict.add_checkpoints() = all[i];
  }
}

}  // namespace nanwatch
