// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/batch_norm.h"

#include "shim/check/scan.h"
#include "shim/host/zeroed_memory.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

// Of each layer a pointer to what was found. Touched only where a layer has batch normalization.
std::atomic<void*>* SideTable() {
  static auto* table =
      static_cast<std::atomic<void*>*>(MapZeroed(kLayersMax * sizeof(std::atomic<void*>)));
  return table;
}

// Whether mean and variance of this batch are finite, and of more than one value per channel: of
// one, the unbiased variance is 0 / 0. Then the running ones may overflow, but NaN was there before.
bool HasFiniteStatistics(const std::vector<c10::IValue>& outputs) {
  if (outputs.size() < 3) return false;
  for (const c10::IValue& output : outputs) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (output.isTensor() && ReadTensor(output.toTensor(), &plain, &reason) == Readable::kYes &&
        HasNonFinite(plain.view)) {
      return false;
    }
  }
  return outputs[0].isTensor() && outputs[1].isTensor() &&
         outputs[0].toTensor().numel() > outputs[1].toTensor().numel();
}

}  // namespace

RunningStatistics::LayerBuffers* RunningStatistics::BuffersOf(const PythonNames& names,
                                                              const Layer* layer) {
  std::atomic<void*>* table = SideTable();
  if (table == nullptr || layer->index >= kLayersMax) return nullptr;
  void* known = table[layer->index].load(std::memory_order_acquire);
  if (known != nullptr) return static_cast<LayerBuffers*>(known);
  auto* found = new (std::nothrow) LayerBuffers{};
  if (found == nullptr) return nullptr;
  names.ForEachOwnedBy(layer, [found](const NamedTensor& tensor) {
    if (tensor.kind == NamedTensorKind::kBuffer && found->count < kBuffersMax) {
      found->buffers[found->count++] = &tensor;
    }
  });
  void* expected = nullptr;
  if (table[layer->index].compare_exchange_strong(expected, found)) return found;
  delete found;
  return static_cast<LayerBuffers*>(expected);
}

RunningStatistics::LayerBuffers* RunningStatistics::BuffersOfLayer(
    const ThreadState* thread) const {
  const Layer* layer = CurrentLayer();
  return layer != nullptr && thread->nodes_open == 0 ? BuffersOf(names_, layer) : nullptr;
}

void RunningStatistics::CheckBuffer(ThreadState* thread, Frame& frame, LayerBuffers& buffers,
                                    uint32_t i, const std::vector<c10::IValue>& outputs) {
  const NamedReading reading(names_, *buffers.buffers[i]);
  if (!reading) return;
  ++thread->counters.tensors_checked;
  thread->counters.bytes_checked += reading.bytes();
  const uint32_t bit = 1u << i;
  const bool was_finite = (buffers.finite.load(std::memory_order_relaxed) & bit) != 0;
  if (!reading.IsBad()) {
    if (!was_finite) buffers.finite.fetch_or(bit, std::memory_order_relaxed);
    return;
  }
  buffers.finite.fetch_and(~bit, std::memory_order_relaxed);
  const PlainTensor& plain = reading.tensor();
  BadEntry known;
  const bool is_known = bad_values_.Find(plain.storage, plain.byte_begin, plain.byte_end, &known);
  // Reported when it went bad; it stays so at every step from then on. What it was given from
  // outside, as a checkpoint's, is of this op once the op has written it anew.
  if (is_known && !known.IsExternal()) return;
  BusyScope busy(thread);
  const bool has_nan = (NonFiniteKinds(plain.view) & wire::kHasNan) != 0;
  const bool made_finite = !is_known && has_nan && HasFiniteStatistics(outputs);
  // A momentum that is no number leaves nothing of either.
  const bool of_number = made_finite && was_finite && IsAllNan(plain.view);
  const BadOutput output{plain, static_cast<uint8_t>(kFirstIndex + i), false,
                         made_finite && !of_number, of_number};
  findings_.OnBadOutputs(thread, frame, &output, 1);
}

void RunningStatistics::Check(ThreadState* thread, Frame& frame,
                              const std::vector<c10::IValue>& outputs) noexcept try {
  LayerBuffers* known = BuffersOfLayer(thread);
  for (uint32_t i = 0; known != nullptr && i < known->count; ++i) {
    CheckBuffer(thread, frame, *known, i, outputs);
  }
} catch (...) {
}

}  // namespace nanwatch
