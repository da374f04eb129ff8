// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/name_cache.h"

namespace nanwatch {

std::string NameCache::Text(uint32_t id) const {
  if (id == 0 || !reader_) return {};
  if (const auto known = cached_.find(id); known != cached_.end()) return known->second;
  std::string text = reader_->Get(id);
  if (!text.empty() && cached_.size() < kCachedMax) cached_.emplace(id, text);
  return text;
}

}  // namespace nanwatch
