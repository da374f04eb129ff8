// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/batch_norm.h"

#include "shim/host/zeroed_memory.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/python/names/named_reading.h"

namespace nanwatch {
namespace {

// Of each layer a pointer to what was found. Touched only where a layer has batch normalization.
std::atomic<const void*>* SideTable() {
  static auto* table = static_cast<std::atomic<const void*>*>(
      MapZeroed(kLayersMax * sizeof(std::atomic<const void*>)));
  return table;
}

}  // namespace

const RunningStatistics::LayerBuffers* RunningStatistics::BuffersOf(const PythonNames& names,
                                                                    const Layer* layer) {
  std::atomic<const void*>* table = SideTable();
  if (table == nullptr || layer->index >= kLayersMax) return nullptr;
  const void* known = table[layer->index].load(std::memory_order_acquire);
  if (known != nullptr) return static_cast<const LayerBuffers*>(known);
  auto* found = new (std::nothrow) LayerBuffers{};
  if (found == nullptr) return nullptr;
  names.ForEachOwnedBy(layer, [found](const NamedTensor& tensor) {
    if (tensor.kind == NamedTensorKind::kBuffer && found->count < kBuffersMax) {
      found->buffers[found->count++] = &tensor;
    }
  });
  const void* expected = nullptr;
  if (table[layer->index].compare_exchange_strong(expected, found)) return found;
  delete found;
  return static_cast<const LayerBuffers*>(expected);
}

const RunningStatistics::LayerBuffers* RunningStatistics::BuffersOfLayer(
    const ThreadState* thread) const {
  const Layer* layer = CurrentLayer();
  return layer != nullptr && thread->nodes_open == 0 ? BuffersOf(names_, layer) : nullptr;
}

void RunningStatistics::CheckBuffer(ThreadState* thread, Frame& frame, const NamedTensor& named,
                                    uint8_t index) {
  const NamedReading reading(names_, named);
  if (!reading) return;
  ++thread->counters.tensors_checked;
  thread->counters.bytes_checked += reading.bytes();
  if (!reading.IsBad()) return;
  const PlainTensor& plain = reading.tensor();
  BadEntry known;
  // Reported when it went bad; it stays so at every step from then on.
  if (bad_values_.Find(plain.storage, plain.byte_begin, plain.byte_end, &known)) return;
  BusyScope busy(thread);
  const BadOutput output{plain, index, false};
  findings_.OnBadOutputs(thread, frame, &output, 1);
}

void RunningStatistics::Check(ThreadState* thread, Frame& frame) noexcept try {
  const LayerBuffers* known = BuffersOfLayer(thread);
  for (uint32_t i = 0; known != nullptr && i < known->count; ++i) {
    CheckBuffer(thread, frame, *known->buffers[i], static_cast<uint8_t>(kFirstIndex + i));
  }
} catch (...) {
}

}  // namespace nanwatch
