// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/read_numbers.h"

#include <cmath>
#include <cstring>

#include "shim/check/scan.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/input_tracking.h"

namespace nanwatch {
namespace {

constexpr int64_t kNumbersMax = 4096;      // in a list
constexpr int64_t kManyDimensionsMax = 8;  // elements of [[x]]

// Of a small tensor that lies in a row: false where it holds no NaN, else the sign of the first.
bool SignOfFirstNan(const PlainTensor& tensor, bool* negative) {
  if (!tensor.IsDense()) return false;
  const auto bytes = static_cast<int64_t>(ElementBytes(tensor.view.type));
  const auto* begin = static_cast<const char*>(tensor.view.data);
  for (int64_t i = 0; i < tensor.view.numel; ++i) {
    const TensorView one{begin + i * bytes, tensor.view.type, 0, nullptr, nullptr, 1};
    if ((NonFiniteKinds(one) & wire::kHasNan) == 0) continue;
    *negative = (begin[(i + 1) * bytes - 1] & 0x80) != 0;
    return true;
  }
  return false;
}

}  // namespace

void ReadNumbers::OnRead(const wire::Source& source, ValueRef value, double number) noexcept {
  if (!std::isnan(number)) return;
  const uint32_t completed = clock_.completed();
  const std::lock_guard<std::mutex> lock(mutex_);
  source_ = source;
  source_.input = 255;
  value_ = value;
  negative_ = std::signbit(number);
  any_.store(true, std::memory_order_relaxed);
  follow_until_ = completed + kStepsFollowed;
  if (holds_inputs_) return;
  holds_inputs_ = true;
  tracking_.Hold();
}

void ReadNumbers::OnStep(uint32_t completed) noexcept {
  if (!HasAny()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!holds_inputs_ || completed <= follow_until_) return;
  holds_inputs_ = false;
  tracking_.Release();
}

bool ReadNumbers::FindLast(wire::Source* source, ValueRef* value) noexcept {
  if (!HasAny()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (source_.kind == static_cast<uint8_t>(wire::SourceKind::kNone)) return false;
  *source = source_;
  *value = value_;
  return true;
}

bool ReadNumbers::MayBeIn(const Frame& frame, const BadOutput& output) noexcept {
  if (!HasAny() || frame.op->name == nullptr ||
      std::strcmp(frame.op->name, "aten::lift_fresh") != 0) {
    return false;
  }
  const PlainTensor& tensor = output.tensor;
  const bool few = tensor.view.ndim <= 1 ? tensor.view.numel <= kNumbersMax
                                         : tensor.view.numel <= kManyDimensionsMax;
  bool negative = false;
  if (!few || tensor.gpu >= 0 || !SignOfFirstNan(tensor, &negative)) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return negative == negative_;
}

}  // namespace nanwatch
