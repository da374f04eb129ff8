// SPDX-License-Identifier: Apache-2.0
// How a request that is too large for one launch is divided.
#include <algorithm>

#include "shim/device/checked_device.h"

namespace nanwatch::device {
namespace {

// As many of the `i`-th `each` as there are.
template <class T>
std::span<const T> Slice(std::span<const T> all, uint32_t i, size_t each) {
  const auto rest = all.subspan(std::min(all.size(), i * each));
  return rest.first(std::min(rest.size(), each));
}

}  // namespace

uint32_t CheckedDevice::Parts::Count() const noexcept {
  if (batch != nullptr) return 1;
  const auto launches = [](size_t all, size_t each) {
    return static_cast<uint32_t>((all + each - 1) / each);
  };
  if (!others.empty()) return launches(others.size(), kListMax - gate.size());
  if (!gate.empty()) return launches(gate.size(), measures ? kMeasuredMax : kListMax);
  return outputs.empty() ? 1 : launches(outputs.size(), kOutputsMax);
}

CheckedDevice::Part CheckedDevice::Parts::At(uint32_t i, uint64_t first_ticket) const noexcept {
  Part part = {
      Slice(outputs, i, kOutputsMax), inputs, gate, others, first_ticket + i, stream, step_word};
  part.sums = sums && (others.empty() || i == 0);
  part.kinds_only = kinds_only;
  part.measures = measures;
  part.samples = Slice(samples, i, kMeasuredMax);
  part.batch = batch;
  part.tiles = gate.size() <= size_t{kListMax} ? tiles : 0;
  if (others.empty()) {
    part.gate = Slice(gate, i, measures ? kMeasuredMax : kListMax);
  } else {
    part.others = Slice(others, i, kListMax - gate.size());
  }
  return part;
}

}  // namespace nanwatch::device
