// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/sender_search.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>

namespace nanwatch {
namespace {

// From rank to rank. Each takes stack, and records that nobody can trust may lead on for ever.
constexpr int kHopsMax = 1'024;

int64_t IterationOf(const Lineage& run, const Clocks* clocks) {
  return clocks == nullptr ? -1 : run.clock().Read(*clocks).iteration_of_run;
}

// Ranks that take their steps together: what one receives, another gave in the same step or the one
// before. Otherwise, as with an actor and a learner, steps say nothing.
bool InLockstep(uint64_t steps_of_a, uint64_t steps_of_b) {
  return std::max(steps_of_a, steps_of_b) - std::min(steps_of_a, steps_of_b) <= 1;
}

// Steps between what was given and what was received; nothing when it cannot be the same call.
std::optional<int64_t> StepsBetween(int64_t sent, uint64_t updates_of_sender, int64_t at,
                                    uint64_t updates) {
  if (at < 0 || sent < 0) return 0;
  const int64_t between = std::abs(at - sent);
  if (between > 1 && InLockstep(updates_of_sender, updates)) return std::nullopt;
  return between;
}

}  // namespace

int64_t IterationOf(const Arrival& arrival) {
  return IterationOf(*arrival.lineage, arrival.origin->clocks);
}

SenderSearch::SenderSearch(const std::vector<Lineage>& runs) {
  for (const Lineage& run : runs) IndexReturned(run);
  for (const Lineage& run : runs) IndexGiven(run);
}

void SenderSearch::IndexReturned(const Lineage& run) {
  for (const Record& record : run.facts().records()) {
    if (!record.has_collective()) continue;
    const CollectiveFact& fact = record.collective();
    if (fact.output_value() != 0)
      returned_[&run][fact.output_value()] = {fact.group(), fact.sequence()};
  }
}

void SenderSearch::IndexGiven(const Lineage& run) {
  const uint64_t updates = run.clock().UpdatesSeen();
  for (const Sending& sending : run.sendings()) {
    const Arrival given = {&run, &run.origins()[static_cast<size_t>(sending.origin)]};
    const bool is_received = given.origin->IsReceived();
    const int64_t iteration = IterationOf(run, sending.clocks);
    Subject subject(is_received ? "" : KeyOf(*given.origin),
                    is_received ? NumberOf(given) : CollectiveNumber(),
                    is_received ? IterationOf(given) : 0, iteration, updates);
    Call& call = calls_[{sending.group, sending.sequence}];
    const auto [known, is_new] = call.known.try_emplace(std::move(subject), call.given.size());
    if (is_new) {
      call.given.push_back(
          {.iteration = iteration, .updates = updates, .is_received = is_received, .first = given});
      continue;
    }
    Given& group = call.given[known->second];
    if (group.of_another.lineage == nullptr && group.first.lineage != &run)
      group.of_another = given;
  }
}

CollectiveNumber SenderSearch::NumberOf(const Arrival& received) const {
  const auto run = returned_.find(received.lineage);
  if (run != returned_.end()) {
    const auto found = run->second.find(received.origin->ticket);
    if (found != run->second.end()) return found->second;
  }
  const RecordSource* source = received.origin->source;
  return source == nullptr ? CollectiveNumber() : CollectiveNumber(source->name(), source->value());
}

const Origin* SenderSearch::Find(const Arrival& received) {
  asked_.clear();
  return FindOnce(received, kHopsMax);
}

const Origin* SenderSearch::FindOnce(const Arrival& received, int hops_left) {
  if (hops_left == 0 || !asked_.insert(received.origin).second) return nullptr;
  const Origin* const maker = Nearest(received, /*received_too=*/false, hops_left);
  return maker != nullptr ? maker : Nearest(received, /*received_too=*/true, hops_left);
}

// A number counts the collectives of one process, so ranks that are in several groups, each of a
// pace of its own, may give the same number to different ones. The sending nearest by step is
// taken.
const Origin* SenderSearch::Nearest(const Arrival& received, bool received_too, int hops_left) {
  const auto call = calls_.find(NumberOf(received));
  if (call == calls_.end()) return nullptr;
  const int64_t at = IterationOf(received);
  const uint64_t updates = received.lineage->clock().UpdatesSeen();
  const Origin* sender = nullptr;
  int64_t nearest = INT64_MAX;
  for (const Given& given : call->second.given) {
    if (given.is_received && !received_too) continue;
    const Arrival& made = given.first.lineage == received.lineage ? given.of_another : given.first;
    if (made.lineage == nullptr) continue;
    const std::optional<int64_t> between =
        StepsBetween(given.iteration, given.updates, at, updates);
    if (!between.has_value() || *between >= nearest) continue;
    const Origin* const origin = given.is_received ? FindOnce(made, hops_left - 1) : made.origin;
    if (origin == nullptr) continue;
    nearest = *between;
    sender = origin;
  }
  return sender;
}

}  // namespace nanwatch
