// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/input_tracking.h"

#include <ATen/record_function.h>

#include "shim/observe/torch/callback_table.h"

namespace nanwatch {
namespace {

using at::RecordFunctionCallback;
using at::RecordScope;

}  // namespace

// One callback for all scopes: autograd sets up its threads' callbacks anew for every node, which
// takes it the longer the more callbacks there are. A context is never returned for ops: it would
// cost an allocation each.
uint64_t InputTracking::AddOutputsCallback() const {
  return at::addGlobalCallback(RecordFunctionCallback(callbacks_.start, callbacks_.end)
                                   .needsOutputs(true)
                                   .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION,
                                            RecordScope::USER_SCOPE}));
}

uint64_t InputTracking::AddRangeCallback() const {
  return at::addGlobalCallback(RecordFunctionCallback(callbacks_.range_start, callbacks_.range_end)
                                   .scopes({RecordScope::USER_SCOPE}));
}

uint64_t InputTracking::AddInputCallback() const {
  return at::addGlobalCallback(
      RecordFunctionCallback(callbacks_.input_start)
          .needsInputs(true)
          .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION}));
}

void InputTracking::Register(bool check_ops) noexcept try {
  const std::lock_guard<std::mutex> lock(mutex_);
  registered_ = true;
  everywhere_ = check_ops;
  Watch();
} catch (...) {
}

InputTracking::Sees InputTracking::Wanted() const noexcept {
  if (!registered_) return Sees::kNothing;
  if (!suspended_ && (everywhere_ || watched_ranges_ > 0)) return Sees::kOps;
  return ranges_ ? Sees::kRanges : Sees::kNothing;
}

bool InputTracking::MayChange() const noexcept { return !inherited_ || callback_table::IsFree(); }

// Removed first: a range would otherwise begin twice. One that begins on another thread in between
// goes unseen.
void InputTracking::Watch() noexcept try {
  const Sees wanted = Wanted();
  const bool stays = sees_ != wanted && !MayChange();
  behind_.store(stays && wanted == Sees::kOps, std::memory_order_relaxed);
  if (sees_ == wanted || stays) return;
  if (wanted != Sees::kOps) Switch(false);
  if (callback_ != 0) at::removeCallback(callback_);
  callback_ = 0;
  sees_ = wanted;
  if (wanted == Sees::kOps) callback_ = AddOutputsCallback();
  if (wanted == Sees::kRanges) callback_ = AddRangeCallback();
  if (wanted == Sees::kOps && holds_ != 0) Switch(true);
} catch (...) {
}

void InputTracking::WatchEverywhere(bool on) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  everywhere_ = on;
  Watch();
}

void InputTracking::WatchRanges(bool on) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ranges_ = on;
  Watch();
}

void InputTracking::Suspend(bool on) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  suspended_ = on;
  Watch();
}

void InputTracking::BeginWatchedRange() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++watched_ranges_;
  Watch();
}

bool InputTracking::EndWatchedRange() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (watched_ranges_ != 0) --watched_ranges_;
  Watch();
  return !checks_ops();
}

void InputTracking::Unregister() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  registered_ = false;
  Watch();
}

void InputTracking::Inherit(const InputTracking& parents) noexcept {
  inherited_ = true;
  registered_ = parents.registered_;
  sees_ = parents.sees_;
  everywhere_ = parents.checks_ops();
  ranges_ = parents.ranges_;
  callback_ = parents.callback_;
  input_callback_ = parents.input_callback_;
  armed_.store(input_callback_ != 0, std::memory_order_relaxed);
}

void InputTracking::Switch(bool on) noexcept try {
  if (on == (input_callback_ != 0) || !checks_ops()) return;
  if (!MayChange()) {
    if (on) refused_.store(true, std::memory_order_relaxed);
    return;
  }
  if (on) {
    input_callback_ = AddInputCallback();
  } else {
    at::removeCallback(input_callback_);
    input_callback_ = 0;
  }
  armed_.store(on, std::memory_order_relaxed);
} catch (...) {
}

void InputTracking::Arm() noexcept {
  if (armed()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Switch(true);
}

bool InputTracking::TakeRefused() noexcept {
  const bool taken = refused();
  if (armed()) refused_.store(false, std::memory_order_relaxed);
  return taken;
}

void InputTracking::Disarm() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (behind_.load(std::memory_order_relaxed)) Watch();
  if (holds_ != 0) return;
  Switch(false);
  refused_.store(false, std::memory_order_relaxed);
}

void InputTracking::Hold() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++holds_;
  Switch(true);
}

void InputTracking::Release() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (holds_ != 0) --holds_;
}

}  // namespace nanwatch
