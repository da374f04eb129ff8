// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/memory_wanted.h"

#include <atomic>

#include "shim/observe/torch/free_memory.h"

namespace nanwatch {
namespace {

std::atomic<bool (*)()> asked{nullptr};

class Asked final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override { return asked.load(std::memory_order_acquire)(); }
};

}  // namespace

void CallWhenMemoryIsWanted(bool (*let_go)()) noexcept try {
  bool (*nobody)() = nullptr;
  if (!asked.compare_exchange_strong(nobody, let_go)) return;
  // libtorch ends the process where a name is registered twice.
  constexpr char kName[] = "nanwatch";
  FreeMemoryRegistry* registry = FindFreeMemoryRegistry();
  if (registry == nullptr || registry->Has(kName)) return;
  registry->Register(kName, [] { return std::make_unique<Asked>(); });
} catch (...) {  // no memory: then nothing is let go
}

}  // namespace nanwatch
