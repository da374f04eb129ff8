// SPDX-License-Identifier: Apache-2.0
// What ruined models leave behind. While parameters are bad nothing is followed (poison.h), so that
// of weights that outlive their model (a kept state_dict, an average over clients) nobody knows
// later who made them bad. Here stands what they held when nothing was followed any more.
//
// Of the newest kMax parameters. Threads: all functions lock.
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

  // The newest value that was known then, of whatever: what is bad in memory of torch's own that was
  // written since comes of it, as far as anyone knows.
  [[nodiscard]] std::optional<Left> Newest() noexcept;

  // What a parameter of the same size held, if it is bad still or is gone: what `tensor`, on the
  // CPU, was computed from, as far as anyone knows.
  [[nodiscard]] std::optional<Left> FindAlike(const PlainTensor& tensor) noexcept;

 private:
  static constexpr uint32_t kMax = 256;
  struct Ruined {
    WeakStorage storage;
    uint64_t byte_begin = 0;
    uint64_t byte_end = 0;
    Left left;
  };

  static void Take(void* self, const BadEntry& entry);

  std::mutex mutex_;            // covers all below
  std::vector<Ruined> ruined_;  // kMax at most; from there on a ring
  uint32_t next_ = 0;           // the place of the oldest, where the ring is full
  Left newest_;
};

}  // namespace nanwatch
