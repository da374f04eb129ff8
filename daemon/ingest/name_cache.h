// SPDX-License-Identifier: Apache-2.0
// The names of one segment by number. A name never changes once it is there, so it is fetched and
// cleaned once. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "proto/wire/name_table.h"

namespace nanwatch {

class NameCache {
 public:
  // `section` is the name section as mapped; it must outlive the cache. A table that cannot be true
  // has no names.
  NameCache(const void* section, size_t bytes) : reader_(wire::NameReader::Open(section, bytes)) {}

  // The clean text of a name id; empty for 0 and for ids that are not there.
  [[nodiscard]] std::string Text(uint32_t id) const;

 private:
  // Ample for honest segments; what goes beyond is fetched anew each time.
  static constexpr size_t kCachedMax = size_t{1} << 15;

  std::optional<wire::NameReader> reader_;
  mutable std::unordered_map<uint32_t, std::string> cached_;
};

}  // namespace nanwatch
