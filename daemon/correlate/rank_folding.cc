// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/rank_folding.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace nanwatch {
namespace {

// What a rank received, and as what.
struct Arrival {
  const Lineage* lineage = nullptr;
  const Origin* origin = nullptr;
};

Arrival ArrivalOf(const IncidentDraft& received) { return {received.lineage, received.origin}; }

int64_t IterationOf(const Arrival& received) {
  return received.origin->clocks == nullptr
             ? -1
             : received.lineage->clock().Read(*received.origin->clocks).iteration_of_run;
}

int64_t IterationOf(const IncidentDraft& draft) { return IterationOf(ArrivalOf(draft)); }

// Ranks that take their steps together: what one receives, another gave in the same step or the one
// before. Otherwise, as with an actor and a learner, steps say nothing.
bool InLockstep(const Lineage& a, const Lineage& b) {
  const uint64_t steps_of_a = a.clock().UpdatesSeen();
  const uint64_t steps_of_b = b.clock().UpdatesSeen();
  return std::max(steps_of_a, steps_of_b) - std::min(steps_of_a, steps_of_b) <= 1;
}

// Steps between the sending and what was received; nothing when it cannot be the same collective.
std::optional<int64_t> StepsBetween(const Lineage& sender, const Sending& sending,
                                    const Arrival& received) {
  const int64_t at = IterationOf(received);
  const int64_t sent =
      sending.clocks == nullptr ? -1 : sender.clock().Read(*sending.clocks).iteration_of_run;
  if (at < 0 || sent < 0) return 0;
  const int64_t between = std::abs(at - sent);
  if (between > 1 && InLockstep(sender, *received.lineage)) return std::nullopt;
  return between;
}

// The collective that it came by, as this process numbers it.
std::pair<std::string, uint64_t> NumberOf(const Arrival& received) {
  const RecordSource* source = received.origin->source;
  std::pair<std::string, uint64_t> number(source == nullptr ? "" : source->name(),
                                          source == nullptr ? 0 : source->value());
  for (const Record& record : received.lineage->facts().records()) {
    if (record.has_collective() && record.collective().output_value() == received.origin->ticket) {
      number = {record.collective().group(), record.collective().sequence()};
    }
  }
  return number;
}

// Finds the origin of what ranks gave each other, on the rank that made it.
class SenderSearch {
 public:
  explicit SenderSearch(const std::vector<Lineage>& runs) : runs_(runs) {}

  // The sender's origin for what came in by a collective; null if no run has it. What all senders
  // have received themselves is followed to the rank before, which may be the receiver: a broadcast
  // value comes back in a sum of gradients.
  Arrival Find(const Arrival& received) {
    if (!asked_.insert(received.origin).second) return {};
    const Arrival maker = Nearest(received, /*received_too=*/false);
    return maker.origin != nullptr ? maker : Nearest(received, /*received_too=*/true);
  }

 private:
  // A number counts the collectives of one process, so ranks that are in several groups, each of a
  // pace of its own, may give the same number to different ones. The sending nearest by step is
  // taken.
  Arrival Nearest(const Arrival& received, bool received_too) {
    const std::pair<std::string, uint64_t> number = NumberOf(received);
    Arrival sender;
    int64_t nearest = INT64_MAX;
    for (const Lineage& run : runs_) {
      if (&run == received.lineage) continue;
      for (const Sending& sending : run.sendings()) {
        if (std::pair(sending.group, sending.sequence) != number) continue;
        const std::optional<int64_t> between = StepsBetween(run, sending, received);
        if (!between.has_value() || *between >= nearest) continue;
        Arrival made{&run, &run.origins()[static_cast<size_t>(sending.origin)]};
        if (made.origin->IsReceived()) made = received_too ? Find(made) : Arrival();
        if (made.origin == nullptr) continue;
        nearest = *between;
        sender = made;
      }
    }
    return sender;
  }

  const std::vector<Lineage>& runs_;
  std::set<const Origin*> asked_;  // each once: ranks may have given each other in a circle
};

// The same for what was read from shared memory.
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

// Without the collective's number: what another rank did in the same iteration, or the one before.
Drafts::iterator FindByIteration(Drafts& drafts, const IncidentDraft& received) {
  const int64_t iteration = IterationOf(received);
  auto best = drafts.end();
  for (auto it = drafts.begin(); it != drafts.end(); ++it) {
    const IncidentDraft& draft = it->second;
    if (draft.origin->IsReceived() || !draft.anomalous || draft.lineage == received.lineage)
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
std::string CollectiveOf(const IncidentDraft& received) {
  const auto [group, sequence] = NumberOf(ArrivalOf(received));
  return KeyOf(*received.origin) + "\n" + group + "\n" + std::to_string(sequence) + "\n" +
         std::to_string(IterationOf(received));
}

// What came back to the rank that had given it, without a record of that: it is of what the others
// received by the same call.
void JoinOwnShares(const std::map<std::string, IncidentKey>& by_collective,
                   const std::map<IncidentKey, IncidentKey>& folded, Drafts& drafts) {
  for (auto it = drafts.begin(); it != drafts.end();) {
    auto target = drafts.end();
    if (it->second.origin->IsReceived()) {
      const auto others = by_collective.find(CollectiveOf(it->second));
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
  std::map<IncidentKey, IncidentKey> folded;         // into which
  std::map<std::string, IncidentKey> by_collective;  // what others received by the same one
  for (auto it = drafts.begin(); it != drafts.end();) {
    const bool shared = IsOfSharedMemory(*it->second.origin);
    if (!it->second.origin->IsReceived() && !shared) {
      ++it;
      continue;
    }
    const Origin* const origin = shared ? FindWriter(runs, it->second).origin
                                        : SenderSearch(runs).Find(ArrivalOf(it->second)).origin;
    auto target = drafts.end();
    if (origin != nullptr) {
      target = drafts.find(NowIn(KeyOf(*origin), folded));
    } else if (!shared) {
      target = FindByIteration(drafts, it->second);
    }
    if (target == drafts.end() || target == it) {
      ++it;
      continue;
    }
    if (!shared) by_collective.emplace(CollectiveOf(it->second), target->first);
    target->second.Merge(it->second);
    folded.emplace(it->first, target->first);
    it = drafts.erase(it);
  }
  JoinOwnShares(by_collective, folded, drafts);
  JoinWithoutSender(drafts);
}

}  // namespace nanwatch
