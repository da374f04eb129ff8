#include "daemon/correlate/rank_folding.h"

#include <string>
#include <utility>

namespace nanwatch {
namespace {

int64_t IterationOf(const IncidentDraft& draft) {
  return draft.origin->clocks == nullptr
             ? -1
             : draft.lineage->clock().Read(*draft.origin->clocks).iteration_of_run;
}

// The sender's origin for what came in by this collective; null when no run tells.
std::pair<const Lineage*, const Origin*> FindSender(const std::vector<Lineage>& runs,
                                                    const IncidentDraft& received) {
  const RecordSource* source = received.origin->source;
  std::string group = source == nullptr ? "" : source->name();
  uint64_t sequence = source == nullptr ? 0 : source->value();
  for (const Record& record : received.lineage->facts().records()) {
    if (record.has_collective() && record.collective().output_value() == received.origin->ticket) {
      group = record.collective().group();
      sequence = record.collective().sequence();
    }
  }
  for (const Lineage& run : runs) {
    if (&run == received.lineage) continue;
    for (const Sending& sending : run.sendings()) {
      const Origin& origin = run.origins()[static_cast<size_t>(sending.origin)];
      if (sending.sequence == sequence && sending.group == group && !origin.IsReceived()) {
        return {&run, &origin};
      }
    }
  }
  return {nullptr, nullptr};
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

}  // namespace

void FoldReceived(const std::vector<Lineage>& runs, Drafts& drafts) {
  for (auto it = drafts.begin(); it != drafts.end();) {
    if (!it->second.origin->IsReceived()) {
      ++it;
      continue;
    }
    const auto [run, origin] = FindSender(runs, it->second);
    const auto target =
        origin != nullptr ? drafts.find(KeyOf(*origin)) : FindByIteration(drafts, it->second);
    if (target == drafts.end() || target == it) {
      ++it;
      continue;
    }
    target->second.Merge(it->second);
    it = drafts.erase(it);
  }
}

}  // namespace nanwatch
