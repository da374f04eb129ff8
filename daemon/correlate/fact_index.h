// SPDX-License-Identifier: Apache-2.0
// The facts of a run, indexed by what they are asked for: sites by number, trails and kernels by
// their value, collectives by the value that they returned or by their sequence.
//
// Keeps pointers into the facts, which must outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// The records of a run, by ticket; of several with the same ticket the first.
[[nodiscard]] std::vector<const Record*> InTicketOrder(const RunFacts& facts);

class FactIndex {
 public:
  // `records` as InTicketOrder gives them.
  FactIndex(const RunFacts& facts, const std::vector<const Record*>& records);

  // Null where there is none.
  [[nodiscard]] const Site* FindSite(uint32_t id) const;
  [[nodiscard]] const TrailFact* FindTrail(uint64_t value) const;
  [[nodiscard]] const KernelsFact* FindKernels(uint64_t value) const;
  [[nodiscard]] const CollectiveFact* FindCollectiveThatGave(uint64_t value) const;
  [[nodiscard]] const CollectiveFact* FindCollective(const std::string& group,
                                                     uint64_t sequence) const;
  // Whether backward passes began at this site.
  [[nodiscard]] bool IsRoot(const Site& site) const;

 private:
  std::unordered_map<uint32_t, const Site*> sites_;
  std::unordered_map<uint64_t, const TrailFact*> trails_;     // by value
  std::unordered_map<uint64_t, const KernelsFact*> kernels_;  // by value
  std::unordered_map<uint64_t, const CollectiveFact*>
      collective_by_output_;  // by the received value
  std::map<std::pair<std::string, uint64_t>, const CollectiveFact*> collective_by_sequence_;
  std::set<std::pair<std::string, std::string>> roots_;  // (op, layer) of every backward root
};

}  // namespace nanwatch
