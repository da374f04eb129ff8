// SPDX-License-Identifier: Apache-2.0
// The sites of a segment: those that changed since the last read, and those with the newest
// findings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/ingest/name_cache.h"
#include "daemon/ingest/read_limits.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/ingest/segment_file.h"
#include "facts.pb.h"

namespace nanwatch {

class SiteChanges {
 public:
  // Those that are new since the last Acknowledge, and with `counts` those that were counted on, as
  // far as the budget goes. Without, nothing of the known ones is touched: in a storm all of them
  // are counted on all the time.
  void Read(const SegmentFile& file, const NameCache& names, bool counts, ReadBudget& budget,
            RunBatch& batch);
  // What the latest Read brought is not brought again.
  void Acknowledge();
  // Whether counts were left out since they were last read and acknowledged.
  [[nodiscard]] bool has_unread() const { return has_unread_; }

 private:
  struct SiteCount {
    uint64_t count = 0;
    uint64_t last_ticket = 0;
    bool operator==(const SiteCount&) const = default;
  };

  std::unordered_map<uint32_t, SiteCount> done_;
  std::vector<std::pair<uint32_t, SiteCount>> pending_;
  uint32_t first_unknown_ = 1;  // sites below it are all in `done_`
  bool has_unread_ = false;
  bool pending_unread_ = false;
};

// As SegmentReader::NewestSites.
[[nodiscard]] std::vector<Site> ReadNewestSites(const SegmentFile& file, const NameCache& names,
                                                size_t count_max);

}  // namespace nanwatch
