#include "shim/observe/arming.h"

#include <ATen/record_function.h>

#include "shim/observe/callbacks.h"

namespace nanwatch {
namespace {

using at::RecordFunctionCallback;
using at::RecordScope;

// One callback for all scopes: autograd sets up its threads' callbacks anew for every node, which
// takes it the longer the more callbacks there are. A context is never returned for ops: it would
// cost an allocation each.
at::CallbackHandle AddOutputsCallback(RecordFunctionCallback::StartCallback start,
                                      RecordFunctionCallback::EndCallback end) {
  return at::addGlobalCallback(RecordFunctionCallback(start, end)
                                   .needsOutputs(true)
                                   .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION,
                                            RecordScope::USER_SCOPE}));
}

at::CallbackHandle AddRangeCallback() {
  return at::addGlobalCallback(RecordFunctionCallback(callbacks::RangeStart, callbacks::RangeEnd)
                                   .scopes({RecordScope::USER_SCOPE}));
}

at::CallbackHandle AddInputCallback() {
  return at::addGlobalCallback(
      RecordFunctionCallback(callbacks::InputStart)
          .needsInputs(true)
          .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION}));
}

}  // namespace

void Arming::Register(bool check_ops) noexcept try {
  const std::lock_guard<std::mutex> lock(mutex_);
  checks_ops_ = everywhere_ = check_ops;
  callback_ = check_ops ? AddOutputsCallback(callbacks::Start, callbacks::End) : AddRangeCallback();
} catch (...) {
}

// Removed first: a range would otherwise begin twice. One that begins on another thread in between
// goes unseen.
void Arming::WatchOps() noexcept try {
  const bool on = everywhere_ || watched_ranges_ > 0;
  if (checks_ops_ == on || callback_ == 0) return;
  if (!on) Switch(false);
  checks_ops_ = on;
  at::removeCallback(callback_);
  callback_ = 0;
  callback_ = on ? AddOutputsCallback(callbacks::Start, callbacks::End) : AddRangeCallback();
  if (on && holds_ != 0) Switch(true);
} catch (...) {
}

void Arming::WatchEverywhere(bool on) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  everywhere_ = on;
  WatchOps();
}

void Arming::BeginWatchedRange() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++watched_ranges_;
  WatchOps();
}

bool Arming::EndWatchedRange() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (watched_ranges_ != 0) --watched_ranges_;
  WatchOps();
  return !checks_ops_;
}

void Arming::SetBenchMode(int mode) noexcept try {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Switch(false);
    if (callback_ != 0) at::removeCallback(callback_);
    callback_ = mode == 1 ? AddOutputsCallback(callbacks::EmptyStart, callbacks::EmptyEnd) : 0;
  }
  if (mode >= 2) Register(mode == 2);
} catch (...) {
}

void Arming::Inherit(const Arming& parents) noexcept {
  checks_ops_ = everywhere_ = parents.checks_ops_;
  callback_ = parents.callback_;
  input_callback_ = parents.input_callback_;
  Set(kArmed, input_callback_ != 0);
}

void Arming::Switch(bool on) noexcept try {
  if (on == (input_callback_ != 0) || !checks_ops_) return;
  if (on) {
    input_callback_ = AddInputCallback();
  } else {
    at::removeCallback(input_callback_);
    input_callback_ = 0;
  }
  Set(kArmed, on);
} catch (...) {
}

void Arming::Arm() noexcept {
  if (armed()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Switch(true);
}

void Arming::Disarm() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (holds_ == 0) Switch(false);
}

void Arming::Hold() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++holds_;
  Switch(true);
}

void Arming::Release() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (holds_ != 0) --holds_;
}

}  // namespace nanwatch
