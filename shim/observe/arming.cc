#include "shim/observe/arming.h"

#include <ATen/record_function.h>

#include "shim/observe/callbacks.h"

namespace nanwatch {
namespace {

using at::RecordFunctionCallback;
using at::RecordScope;

// One callback per scope: no test of the scope on the way of an op. A context is never returned for ops: it
// would cost an allocation each.
at::CallbackHandle Add(RecordFunctionCallback callback, RecordScope scope) {
  return at::addGlobalCallback(callback.scopes({scope}));
}

}  // namespace

void Arming::Register(bool check_ops) noexcept try {
  std::lock_guard<std::mutex> lock(mutex_);
  range_callback_ = Add(RecordFunctionCallback(callbacks::RangeStart, callbacks::RangeEnd),
                        RecordScope::USER_SCOPE);
  if (!check_ops) return;
  op_callback_ = Add(RecordFunctionCallback(callbacks::OpStart, callbacks::OpEnd).needsOutputs(true),
                     RecordScope::FUNCTION);
  node_callback_ = Add(RecordFunctionCallback(callbacks::NodeStart, callbacks::NodeEnd),
                       RecordScope::BACKWARD_FUNCTION);
  input_callback_ = at::addGlobalCallback(
      RecordFunctionCallback(callbacks::InputStart)
          .needsInputs(true)
          .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION}));
  at::disableCallback(input_callback_);
} catch (...) {
}

void Arming::SetBenchMode(int mode) noexcept try {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (uint64_t* callback :
         {&op_callback_, &node_callback_, &range_callback_, &input_callback_, &empty_callback_}) {
      if (*callback != 0) at::removeCallback(*callback);
      *callback = 0;
    }
    enabled_ = false;
    Set(kArmed, false);
    if (mode == 1) {
      empty_callback_ = at::addGlobalCallback(
          RecordFunctionCallback(callbacks::EmptyStart, callbacks::EmptyEnd)
              .needsOutputs(true)
              .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION,
                       RecordScope::USER_SCOPE}));
    }
  }
  if (mode == 2) Register(true);
} catch (...) {
}

void Arming::Inherit(const Arming& parents) noexcept {
  op_callback_ = parents.op_callback_;
  node_callback_ = parents.node_callback_;
  range_callback_ = parents.range_callback_;
  input_callback_ = parents.input_callback_;
  enabled_ = parents.enabled_;
  Set(kArmed, enabled_);
}

void Arming::Switch(bool on) noexcept try {
  if (enabled_ == on || input_callback_ == 0) return;
  if (on) {
    at::reenableCallback(input_callback_);
  } else {
    at::disableCallback(input_callback_);
  }
  enabled_ = on;
  Set(kArmed, on);
} catch (...) {
}

void Arming::Arm() noexcept {
  if (armed()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  Switch(true);
}

void Arming::Disarm() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (holds_ == 0) Switch(false);
}

void Arming::Hold() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  ++holds_;
  Switch(true);
}

void Arming::Release() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (holds_ != 0) --holds_;
}

}  // namespace nanwatch
