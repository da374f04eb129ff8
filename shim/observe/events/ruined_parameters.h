// SPDX-License-Identifier: Apache-2.0
// What ruined models leave behind. While parameters are bad nothing is followed (poison.h), so that
// of weights that outlive their model (a kept state_dict, an average over clients) nobody knows
// later who made them bad. Here stands what they held when nothing was followed any more.
//
// Of the newest kMax values. Threads: all functions lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "shim/classify/bad_values.h"
#include "shim/observe/events/checked_tensor.h"

namespace nanwatch {

class RuinedParameters {
 public:
  struct Left {
    ValueRef value;
    uint32_t site = 0;
  };

  ~RuinedParameters();

  // Nothing is followed from now on: what is known to be bad until now.
  void Add(BadValues& bad_values) noexcept;
  // Values are followed again, and what was added last is bad still, as far as anyone knows.
  void Restore(BadValues& bad_values) noexcept;

  // The newest value that was known then, of whatever: what is bad in memory of torch's own that was
  // written since comes of it, as far as anyone knows.
  [[nodiscard]] std::optional<Left> Newest() noexcept;

  // What a parameter of the same size held, if it is bad still or is gone: what `tensor`, on the
  // CPU, was computed from, as far as anyone knows. Not where fewer of its elements are bad.
  [[nodiscard]] std::optional<Left> FindAlike(const PlainTensor& tensor) noexcept;

 private:
  static constexpr uint32_t kMax = 1024;

  static void Take(void* self, const BadEntry& entry);
  // The n-th newest.
  [[nodiscard]] const BadEntry& At(size_t n) const {
    return ruined_[(next_ + ruined_.size() - 1 - n) % ruined_.size()];
  }

  std::mutex mutex_;              // covers all below
  std::vector<BadEntry> ruined_;  // kMax at most; from there on a ring
  uint32_t next_ = 0;             // the place of the oldest, where the ring is full
  size_t added_ = 0;              // when nothing was followed last
  Left newest_;
};

}  // namespace nanwatch
