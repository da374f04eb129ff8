// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/step_progress.h"

#include <algorithm>

#include "proto/wire/hash.h"
#include "shim/emit/emitter.h"

namespace nanwatch {

wire::Clocks StepProgress::Now() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return clocks_;
}

bool StepProgress::IsNewestRootOlder() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return root_after_plus_one_ != 0 && root_after_plus_one_ - 1 < clocks_.optimizer_ranges;
}

void StepProgress::RecordNewRoot() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  root_after_plus_one_ = clocks_.optimizer_ranges + 1;
}

uint32_t StepProgress::completed() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return clocks_.optimizer_ranges + clocks_.plain_updates + clocks_.scaler_skips;
}

uint32_t StepProgress::NumberOf(const void* identity, std::string_view class_name,
                                Emitter* emitter) noexcept {
  const uint64_t hash = wire::Fnv1a(class_name);
  const std::lock_guard<std::mutex> lock(mutex_);
  bool is_new = false;
  const uint32_t number = counts_.NumberOf(identity, hash, &clocks_, &is_new);
  if (is_new && emitter != nullptr) counts_.set_class_name(number, emitter->Intern(class_name));
  return number;
}

void StepProgress::Begin(uint32_t optimizer) noexcept {
  range_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  counts_.Begin(optimizer);
  newest_ = optimizer;
}

bool StepProgress::HasBegunOnce(uint32_t optimizer) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_.begun(optimizer) == 1;
}

uint32_t StepProgress::ClassOf(uint32_t optimizer) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_.class_name(optimizer);
}

void StepProgress::End(uint32_t optimizer, bool counts, uint32_t thread) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (counts) counts_.Complete(optimizer, &clocks_);
  clocks_.micro_passes = 0;
  if (last_thread_ != 0 && last_thread_ != thread && last_ended_ != optimizer) {
    threads_train_.store(true, std::memory_order_relaxed);
  }
  last_ended_ = optimizer;
  last_thread_ = thread;
}

uint32_t StepProgress::StepsOfNewest() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_.StepsOf(newest_);
}

uint32_t StepProgress::PlaceOf(uint32_t optimizer) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_.IndexOf(optimizer);
}

bool StepProgress::CompletePlain() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (clocks_.optimizer_ranges != 0) return false;
  ++clocks_.plain_updates;
  clocks_.micro_passes = 0;
  return true;
}

void StepProgress::CompleteSkip() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++clocks_.scaler_skips;
  clocks_.micro_passes = 0;
}

void StepProgress::OnPassReachedLeaf() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++clocks_.passes;
  ++clocks_.micro_passes;
}

void StepProgress::CountWatched(wire::Level watched) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++steps_watched_[static_cast<int>(watched) % wire::kWatchedLevels];
}

void StepProgress::StepsWatched(uint64_t* steps) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::copy_n(steps_watched_, wire::kWatchedLevels, steps);
}

}  // namespace nanwatch
