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
#include "daemon/ingest/run_batch.h"
#include "daemon/ingest/segment_file.h"
#include "facts.pb.h"

namespace nanwatch {

class SiteChanges {
 public:
  // Those that are new or have changed since the last Acknowledge.
  void Read(const SegmentFile& file, const NameCache& names, RunBatch& batch);
  // What the latest Read brought is not brought again.
  void Acknowledge();

 private:
  struct SiteCount {
    uint64_t count = 0;
    uint64_t last_ticket = 0;
    bool operator==(const SiteCount&) const = default;
  };

  std::unordered_map<uint32_t, SiteCount> done_;
  std::vector<std::pair<uint32_t, SiteCount>> pending_;
};

// As SegmentReader::NewestSites.
[[nodiscard]] std::vector<Site> ReadNewestSites(const SegmentFile& file, const NameCache& names,
                                                size_t count_max);

}  // namespace nanwatch
