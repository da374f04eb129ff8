// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/site_section.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>

#include "daemon/ingest/record_decoder.h"
#include "daemon/ingest/segment_reader.h"
#include "proto/wire/site_table.h"

namespace nanwatch {
namespace {

using wire::SectionType;

bool IsPassedOn(wire::FindingClass finding_class) {
  return finding_class == wire::FindingClass::kPropagate ||
         finding_class == wire::FindingClass::kKilled;
}

}  // namespace

void SiteChanges::Read(const SegmentFile& file, const NameCache& names, bool counts,
                       ReadBudget& budget, RunBatch& batch) {
  pending_.clear();
  const SegmentFile::Section& section = file.section(SectionType::kSites);
  const std::optional<wire::SiteReader> reader =
      wire::SiteReader::Open(section.data, section.bytes);
  if (!reader) return;
  const uint32_t count = std::min(reader->Count(), kSitesMax);
  pending_unread_ = !counts && first_unknown_ > 1;
  for (uint32_t id = counts ? 1 : first_unknown_; id <= count; ++id) {
    const std::optional<wire::Site> site = reader->Get(id);
    if (!site) continue;
    const SiteCount now{site->count, site->last_ticket};
    const auto known = done_.find(id);
    if (known != done_.end() && known->second == now) continue;
    if (budget.is_spent()) {
      pending_unread_ = batch.more = true;
      break;
    }
    if (known == done_.end()) ++batch.sites_new;
    pending_.emplace_back(id, now);
    batch.sites.push_back(DecodeSite(id, *site, names));
    budget.Take(batch.sites.back());
  }
}

void SiteChanges::Acknowledge() {
  for (const auto& [id, count] : pending_) done_[id] = count;
  while (done_.contains(first_unknown_)) ++first_unknown_;
  has_unread_ = pending_unread_;
}

std::vector<Site> ReadNewestSites(const SegmentFile& file, const NameCache& names,
                                  size_t count_max) {
  const SegmentFile::Section& section = file.section(SectionType::kSites);
  const std::optional<wire::SiteReader> reader =
      wire::SiteReader::Open(section.data, section.bytes);
  if (!reader) return {};
  std::vector<std::tuple<bool, uint64_t, uint32_t>> newest;  // not passed on, ticket, id
  const uint32_t count = std::min(reader->Count(), kSitesMax);
  for (uint32_t id = 1; id <= count; ++id) {
    const std::optional<wire::Site> site = reader->Get(id);
    if (!site || site->count == 0) continue;
    newest.emplace_back(!IsPassedOn(site->key.finding_class), site->last_ticket, id);
  }
  const size_t kept = std::min(count_max, newest.size());
  std::partial_sort(newest.begin(), newest.begin() + static_cast<ptrdiff_t>(kept), newest.end(),
                    std::greater<>());
  std::vector<Site> sites;
  for (size_t i = 0; i < kept; ++i) {
    const uint32_t id = std::get<2>(newest[i]);
    const std::optional<wire::Site> site = reader->Get(id);
    if (site) sites.push_back(DecodeSite(id, *site, names));
  }
  return sites;
}

}  // namespace nanwatch
