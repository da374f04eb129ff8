// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/awaited_snapshots.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace nanwatch {

void FillGradient(const Moments& moments, uint64_t numel, wire::StatsParameter* told) noexcept {
  told->flags |= wire::StatsParameter::kGradientRead;
  told->gradient_mean = moments.Mean(numel);
  told->gradient_std = moments.StandardDeviation(numel);
  told->gradient_max_abs = moments.max_abs;
  told->gradient_norm = std::sqrt(moments.squares_sum);
  told->gradient_zeros = moments.zeros;
}

void FillUpdate(const Change& change, wire::StatsParameter* told) noexcept {
  told->flags |= wire::StatsParameter::kUpdateRead;
  told->update_norm = std::sqrt(change.change_squares);
  told->weight_norm = std::sqrt(change.before_squares);
}

bool AwaitedSnapshots::HasRoom() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return awaited_.size() < kAwaitedMax;
}

uint64_t AwaitedSnapshots::Await(Snapshot snapshot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  awaited_.push_back({last_number_ + 1, std::move(snapshot)});
  return ++last_number_;
}

wire::StatsParameter* AwaitedSnapshots::Find(uint64_t number, uint32_t place) noexcept {
  for (Awaited& awaited : awaited_) {
    if (awaited.number != number) continue;
    std::vector<wire::StatsParameter>& parameters = awaited.snapshot.parameters;
    return place < parameters.size() ? &parameters[place] : nullptr;
  }
  return nullptr;
}

void AwaitedSnapshots::AddGradient(uint64_t number, uint32_t place,
                                   const Moments& moments) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  wire::StatsParameter* told = Find(number, place);
  if (told != nullptr) FillGradient(moments, told->numel, told);
}

void AwaitedSnapshots::AddUpdate(uint64_t number, uint32_t place, const Change& change) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  wire::StatsParameter* told = Find(number, place);
  if (told != nullptr) FillUpdate(change, told);
}

bool AwaitedSnapshots::Take(uint64_t number, Snapshot* snapshot) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(awaited_.begin(), awaited_.end(),
                                  [number](const Awaited& one) { return one.number == number; });
  if (found == awaited_.end()) return false;
  *snapshot = std::move(found->snapshot);
  awaited_.erase(found);
  return true;
}

bool AwaitedSnapshots::TakeFirst(Snapshot* snapshot) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (awaited_.empty()) return false;
  *snapshot = std::move(awaited_.front().snapshot);
  awaited_.pop_front();
  return true;
}

}  // namespace nanwatch
