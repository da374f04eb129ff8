// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/state_names.h"

#include <c10/core/StorageImpl.h>

#include "shim/emit/emitter.h"
#include "shim/observe/python/names/optimizer_tensors.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {

void NameStates(PythonBridge& python, Emitter& emitter, const void* optimizer,
                std::span<const void* const> states, uint32_t* names) noexcept try {
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kWritten;
  if (!python.ReadOptimizer(optimizer, &tensors)) return;
  for (const WrittenTensor& written : tensors.written) {
    if (!written.is_state || !written.held.has_storage()) continue;
    const NamedTensor* named = python.names().FindByImpl(written.parameter);
    if (named == nullptr) continue;
    const void* storage = written.held.storage().unsafeGetStorageImpl();
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i] == storage) names[i] = InternText(emitter, named->name);
    }
  }
} catch (...) {
}

}  // namespace nanwatch
