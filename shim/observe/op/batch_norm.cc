// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/batch_norm.h"

#include <sys/mman.h>

#include "shim/observe/finding/findings.h"
#include "shim/observe/python/names/named_reading.h"

namespace nanwatch {
namespace {

constexpr uint32_t kBuffersMax = 4;

// The floating-point buffers of one layer, found once: names are never freed.
struct LayerBuffers {
  const NamedTensor* buffers[kBuffersMax];
  uint32_t count;
};

std::atomic<const LayerBuffers*>* SideTable() {
  // Touched only where a layer has batch normalisation.
  static auto* table = static_cast<std::atomic<const LayerBuffers*>*>(
      mmap(nullptr, kLayersMax * sizeof(std::atomic<const LayerBuffers*>), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return table == MAP_FAILED ? nullptr : table;
}

const LayerBuffers* BuffersOf(const PythonNames& names, const Layer* layer) {
  std::atomic<const LayerBuffers*>* table = SideTable();
  if (table == nullptr || layer->index >= kLayersMax) return nullptr;
  const LayerBuffers* known = table[layer->index].load(std::memory_order_acquire);
  if (known != nullptr) return known;
  auto* found = new (std::nothrow) LayerBuffers{};
  if (found == nullptr) return nullptr;
  names.ForEachOwnedBy(layer, [found](const NamedTensor& tensor) {
    if (tensor.kind == NamedTensorKind::kBuffer && found->count < kBuffersMax) {
      found->buffers[found->count++] = &tensor;
    }
  });
  const LayerBuffers* expected = nullptr;
  if (table[layer->index].compare_exchange_strong(expected, found)) return found;
  delete found;
  return expected;
}

}  // namespace

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
  const Layer* layer = CurrentLayer();
  if (layer == nullptr || thread->nodes_open != 0) return;
  const LayerBuffers* known = BuffersOf(names_, layer);
  if (known == nullptr) return;
  for (uint32_t i = 0; i < known->count; ++i) {
    // Outputs 3 and 4 of the op's arguments are the running mean and variance.
    CheckBuffer(thread, frame, *known->buffers[i], static_cast<uint8_t>(3 + i));
  }
} catch (...) {
}

}  // namespace nanwatch
