// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/rank_folding.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/correlate/sender_search.h"

namespace nanwatch {
namespace {

Arrival ArrivalOf(const IncidentDraft& received) { return {received.lineage, received.origin}; }

int64_t IterationOf(const IncidentDraft& draft) { return IterationOf(ArrivalOf(draft)); }

// The sender's origin for what was read from shared memory.
Arrival FindWriter(const std::vector<Lineage>& runs, const IncidentDraft& read) {
  Arrival writer;
  const Origin& origin = *read.origin;
  uint64_t written_ns = 0;
  for (const Lineage& run : runs) {
    const std::string& boot = run.facts().run().boot_id();
    if (&run == read.lineage || boot.empty() || boot != read.lineage->facts().run().boot_id()) {
      continue;
    }
    for (const Sending& sending : run.sendings()) {
      if (sending.sequence != origin.source->value() || sending.group != wire::kSharedMemory ||
          sending.time_ns < written_ns ||
          (origin.record != nullptr && sending.time_ns > origin.record->time_ns())) {
        continue;
      }
      const Origin& written = run.origins()[static_cast<size_t>(sending.origin)];
      const uint32_t kinds = sending.kinds != 0 ? sending.kinds : written.kinds;
      if (written.IsMask() || (kinds & origin.kinds) == 0) continue;
      written_ns = sending.time_ns;
      writer = {&run, &written};
    }
  }
  return writer;
}

bool IsOfSharedMemory(const Origin& origin) {
  return origin.IsExternal() && origin.source != nullptr && origin.source->value() != 0;
}

// Incidents of ranks by themselves, which those that received may belong to.
std::vector<IncidentKey> KeysOfMakers(const Drafts& drafts) {
  std::vector<IncidentKey> keys;
  for (const auto& [key, draft] : drafts) {
    if (!draft.origin->IsReceived()) keys.push_back(key);
  }
  return keys;
}

// Without the collective's number: what another rank did in the same iteration, or the one before.
// A number that was only shown harmed no training there, and so none here.
Drafts::iterator FindByIteration(const std::vector<IncidentKey>& makers, Drafts& drafts,
                                 const IncidentDraft& received) {
  const int64_t iteration = IterationOf(received);
  auto best = drafts.end();
  for (const IncidentKey& key : makers) {
    const auto it = drafts.find(key);
    if (it == drafts.end()) continue;
    const IncidentDraft& draft = it->second;
    if (!draft.anomalous || draft.lineage == received.lineage || ReachedMetricsAlone(draft))
      continue;
    const int64_t at = IterationOf(draft);
    if (at > iteration || at < iteration - 1) continue;
    if (best == drafts.end() || at < IterationOf(best->second)) best = it;
  }
  return best;
}

// The incident that this one is a part of by now.
IncidentKey NowIn(IncidentKey key, const std::map<IncidentKey, IncidentKey>& folded) {
  for (auto into = folded.find(key); into != folded.end(); into = folded.find(key)) {
    key = into->second;
  }
  return key;
}

// The collective call that delivered it, by what all ranks know of it.
std::string CollectiveOf(const SenderSearch& search, const IncidentDraft& received) {
  const auto [group, sequence] = search.NumberOf(ArrivalOf(received));
  return KeyOf(*received.origin) + "\n" + group + "\n" + std::to_string(sequence) + "\n" +
         std::to_string(IterationOf(received));
}

// What came back to the rank that had given it, without a record of that: it is of what the others
// received by the same call.
void JoinOwnShares(const SenderSearch& search,
                   const std::map<std::string, IncidentKey>& by_collective,
                   const std::map<IncidentKey, IncidentKey>& folded, Drafts& drafts) {
  for (auto it = drafts.begin(); it != drafts.end();) {
    auto target = drafts.end();
    if (it->second.origin->IsReceived()) {
      const auto others = by_collective.find(CollectiveOf(search, it->second));
      if (others != by_collective.end()) target = drafts.find(NowIn(others->second, folded));
    }
    if (target == drafts.end() || target == it) {
      ++it;
      continue;
    }
    target->second.Merge(it->second);
    it = drafts.erase(it);
  }
}

// An earlier one that mattered as much explains it better.
bool ExplainsBetter(const IncidentDraft& a, const IncidentDraft& b) {
  if (a.anomalous != b.anomalous) return a.anomalous;
  const auto order = [](const IncidentDraft& draft) {
    return std::make_pair(IterationOf(draft), draft.lineage->facts().run().rank());
  };
  return order(a) < order(b);
}

// What several ranks received by the same op is one incident where no sender is known.
void JoinWithoutSender(Drafts& drafts) {
  std::map<IncidentKey, Drafts::iterator> by_place;
  for (auto it = drafts.begin(); it != drafts.end();) {
    if (!it->second.origin->IsReceived()) {
      ++it;
      continue;
    }
    const auto [known, is_first] = by_place.try_emplace(KeyOf(*it->second.origin), it);
    if (is_first) {
      ++it;
      continue;
    }
    IncidentDraft& kept = known->second->second;
    if (ExplainsBetter(it->second, kept)) std::swap(it->second, kept);
    kept.Merge(it->second);
    it = drafts.erase(it);
  }
}

}  // namespace

void FoldReceived(const std::vector<Lineage>& runs, Drafts& drafts) {
  SenderSearch search(runs);
  const std::vector<IncidentKey> makers = KeysOfMakers(drafts);
  std::map<IncidentKey, IncidentKey> folded;         // into which
  std::map<std::string, IncidentKey> by_collective;  // what others received by the same one
  for (auto it = drafts.begin(); it != drafts.end();) {
    const bool shared = IsOfSharedMemory(*it->second.origin);
    if (!it->second.origin->IsReceived() && !shared) {
      ++it;
      continue;
    }
    const Origin* const origin =
        shared ? FindWriter(runs, it->second).origin : search.Find(ArrivalOf(it->second));
    auto target = drafts.end();
    if (origin != nullptr) {
      target = drafts.find(NowIn(KeyOf(*origin), folded));
    } else if (!shared) {
      target = FindByIteration(makers, drafts, it->second);
    }
    if (target == drafts.end() || target == it) {
      ++it;
      continue;
    }
    if (!shared) by_collective.emplace(CollectiveOf(search, it->second), target->first);
    target->second.Merge(it->second);
    folded.emplace(it->first, target->first);
    it = drafts.erase(it);
  }
  JoinOwnShares(search, by_collective, folded, drafts);
  JoinWithoutSender(drafts);
}

}  // namespace nanwatch
