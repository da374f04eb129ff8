// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/rank_folding.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace nanwatch {
namespace {

int64_t IterationOf(const IncidentDraft& draft) {
  return draft.origin->clocks == nullptr
             ? -1
             : draft.lineage->clock().Read(*draft.origin->clocks).iteration_of_run;
}

// Ranks that take their steps together: what one receives, another gave in the same step or the one
// before. Otherwise, as with an actor and a learner, steps say nothing.
bool InLockstep(const Lineage& a, const Lineage& b) {
  const uint64_t steps_of_a = a.clock().UpdatesSeen();
  const uint64_t steps_of_b = b.clock().UpdatesSeen();
  return std::max(steps_of_a, steps_of_b) - std::min(steps_of_a, steps_of_b) <= 1;
}

// Steps between the sending and what was received; nothing when it cannot be the same collective.
std::optional<int64_t> StepsBetween(const Lineage& sender, const Sending& sending,
                                    const IncidentDraft& received) {
  const int64_t at = IterationOf(received);
  const int64_t sent =
      sending.clocks == nullptr ? -1 : sender.clock().Read(*sending.clocks).iteration_of_run;
  if (at < 0 || sent < 0) return 0;
  const int64_t between = std::abs(at - sent);
  if (between > 1 && InLockstep(sender, *received.lineage)) return std::nullopt;
  return between;
}

// The collective that it came by, as this process numbers it.
std::pair<std::string, uint64_t> NumberOf(const IncidentDraft& received) {
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

// The sender's origin for what came in by this collective; null if no run has it. A number counts
// the collectives of one process, so ranks that are in several groups, each of a pace of its own,
// may give the same number to different ones. The sending nearest by step is taken.
std::pair<const Lineage*, const Origin*> FindSender(const std::vector<Lineage>& runs,
                                                    const IncidentDraft& received) {
  const std::pair<std::string, uint64_t> number = NumberOf(received);
  std::pair<const Lineage*, const Origin*> sender{nullptr, nullptr};
  int64_t nearest = INT64_MAX;
  for (const Lineage& run : runs) {
    if (&run == received.lineage) continue;
    for (const Sending& sending : run.sendings()) {
      const Origin& origin = run.origins()[static_cast<size_t>(sending.origin)];
      if (std::pair(sending.group, sending.sequence) != number || origin.IsReceived()) continue;
      const std::optional<int64_t> between = StepsBetween(run, sending, received);
      if (!between.has_value() || *between >= nearest) continue;
      nearest = *between;
      sender = {&run, &origin};
    }
  }
  return sender;
}

// The same for what was read from shared memory.
std::pair<const Lineage*, const Origin*> FindWriter(const std::vector<Lineage>& runs,
                                                    const IncidentDraft& read) {
  std::pair<const Lineage*, const Origin*> writer{nullptr, nullptr};
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
      if (written.IsMask() || (written.kinds & origin.kinds) == 0) continue;
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
  const auto [group, sequence] = NumberOf(received);
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
    const auto [run, origin] = shared ? FindWriter(runs, it->second) : FindSender(runs, it->second);
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
