// SPDX-License-Identifier: Apache-2.0
// Values that are known to be bad, with their storages held, so that their memory can be compared
// with a result.
//
// Threads: any. Called only where something is bad.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>

#include "shim/classify/bad_values.h"

namespace nanwatch {

class HeldValues {
 public:
  // Those that `fits(context, entry)` picks, `limit` (at most kMax) of them. Storages are taken
  // under the table's lock, so that `fits` must not call back, and let go without it: what frees a
  // storage may wait for the GIL.
  HeldValues(BadValues& values, int limit, bool (*fits)(const void* context, const BadEntry& entry),
             const void* context);

  [[nodiscard]] int count() const noexcept { return count_; }
  // None was left out for want of room.
  [[nodiscard]] bool all() const noexcept { return all_; }
  [[nodiscard]] const BadEntry& entry(int i) const noexcept { return entries_[i]; }
  // The first byte of the entry. Null: it is not to be read here, or not any more.
  [[nodiscard]] const unsigned char* MemoryOf(int i) const noexcept;

  static constexpr int kMax = 256;

 private:
  static void Take(void* held, const BadEntry& entry);

  const int limit_;
  bool (*const fits_)(const void* context, const BadEntry& entry);
  const void* const context_;
  int count_ = 0;
  bool all_ = true;
  BadEntry entries_[kMax];
  c10::intrusive_ptr<c10::StorageImpl> storages_[kMax];
};

}  // namespace nanwatch
