// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/fact_index.h"

#include <algorithm>

namespace nanwatch {
namespace {

template <typename Map, typename Key>
typename Map::mapped_type Find(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : found->second;
}

}  // namespace

std::vector<const Record*> InTicketOrder(const RunFacts& facts) {
  std::vector<const Record*> records;
  records.reserve(static_cast<size_t>(facts.records_size()));
  for (const Record& record : facts.records()) records.push_back(&record);
  const auto by_ticket = [](const Record* a, const Record* b) { return a->ticket() < b->ticket(); };
  std::stable_sort(records.begin(), records.end(), by_ticket);
  const auto same = [](const Record* a, const Record* b) { return a->ticket() == b->ticket(); };
  records.erase(std::unique(records.begin(), records.end(), same), records.end());
  return records;
}

FactIndex::FactIndex(const RunFacts& facts, const std::vector<const Record*>& records) {
  for (const Site& site : facts.sites()) sites_.try_emplace(site.id(), &site);
  for (const Record* record : records) {
    if (record->has_collective()) {
      const CollectiveFact& fact = record->collective();
      if (fact.output_value() != 0) collective_by_output_.try_emplace(fact.output_value(), &fact);
      collective_by_sequence_.try_emplace({fact.group(), fact.sequence()}, &fact);
    } else if (record->has_pass() && !record->pass().root_op().empty()) {
      roots_.insert({record->pass().root_op(), record->pass().root_layer()});
    } else if (record->has_trail()) {
      trails_.try_emplace(record->trail().value(), &record->trail());
    } else if (record->has_kernels()) {
      kernels_.try_emplace(record->kernels().value(), &record->kernels());
    }
  }
}

const Site* FactIndex::FindSite(uint32_t id) const { return Find(sites_, id); }

const TrailFact* FactIndex::FindTrail(uint64_t value) const { return Find(trails_, value); }

const KernelsFact* FactIndex::FindKernels(uint64_t value) const { return Find(kernels_, value); }

const CollectiveFact* FactIndex::FindCollectiveThatGave(uint64_t value) const {
  return Find(collective_by_output_, value);
}

const CollectiveFact* FactIndex::FindCollective(const std::string& group, uint64_t sequence) const {
  return Find(collective_by_sequence_, std::pair(group, sequence));
}

bool FactIndex::IsRoot(const Site& site) const {
  return roots_.contains({site.op(), site.layer()});
}

}  // namespace nanwatch
