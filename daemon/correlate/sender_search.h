// SPDX-License-Identifier: Apache-2.0
// Finds the origin of what ranks gave each other, on the rank that made it: by the collective's
// group and sequence, and the step. Pure.
//
// Of thousands of ranks each has given the same call something: what is the same in all that
// matters is kept once, so that a question takes time for the calls on the way, and not for ranks.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/correlate/incident_key.h"
#include "daemon/correlate/lineage.h"

namespace nanwatch {

// What a rank received, and as what.
struct Arrival {
  const Lineage* lineage = nullptr;
  const Origin* origin = nullptr;
};

// Counted over the trainings of a run; -1 unknown.
[[nodiscard]] int64_t IterationOf(const Arrival& arrival);

// A collective call as one process numbers it: group, sequence.
using CollectiveNumber = std::pair<std::string, uint64_t>;

class SenderSearch {
 public:
  // `runs` must outlive the object.
  explicit SenderSearch(const std::vector<Lineage>& runs);

  // The sender's origin for what came in by a collective; null if no run has it. What all senders
  // have received themselves is followed to the rank before, which may be the receiver: a broadcast
  // value comes back in a sum of gradients.
  [[nodiscard]] const Origin* Find(const Arrival& received);

  [[nodiscard]] CollectiveNumber NumberOf(const Arrival& received) const;

 private:
  // Sendings into one call that differ in nothing but the run: by what was given, when, and how far
  // the run came.
  struct Given {
    int64_t iteration = -1;
    uint64_t updates = 0;
    bool is_received = false;
    Arrival first = {};
    Arrival of_another = {};  // the first of another run: nobody receives what it gave itself
  };
  // Made at which place, or else received by which call and when; when it was given; updates.
  using Subject = std::tuple<IncidentKey, CollectiveNumber, int64_t, int64_t, uint64_t>;
  struct Call {
    std::vector<Given> given;         // in the order of runs
    std::map<Subject, size_t> known;  // indices of them
  };

  void IndexReturned(const Lineage& run);
  void IndexGiven(const Lineage& run);
  [[nodiscard]] const Origin* FindOnce(const Arrival& received, int hops_left);
  [[nodiscard]] const Origin* Nearest(const Arrival& received, bool received_too, int hops_left);

  std::map<CollectiveNumber, Call> calls_;
  // By the value that a collective returned, where there is a record of the call.
  std::unordered_map<const Lineage*, std::unordered_map<uint64_t, CollectiveNumber>> returned_;
  std::set<const Origin*> asked_;  // each once: ranks may have given each other in a circle
};

}  // namespace nanwatch
