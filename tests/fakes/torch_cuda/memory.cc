// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/torch_cuda/memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "shim/observe/torch/free_memory.h"
#include "tests/fakes/cuda/fake_cuda.h"

namespace nanwatch::fake {
namespace {

std::recursive_mutex mutex;  // recursive as the real one: who is asked gives back under it
size_t in_use = 0;
size_t had = 0;  // from the driver, so far
size_t peak = 0;

size_t Limit() {
  const char* bytes = std::getenv("NANWATCH_FAKE_MEMORY");
  return bytes != nullptr ? std::strtoull(bytes, nullptr, 10) : SIZE_MAX;
}

void AskToLetGo() {
  FreeMemoryRegistry* registry = FindFreeMemoryRegistry();
  if (registry == nullptr) return;
  for (const std::string& name : registry->Keys()) (void)registry->Create(name)->Execute();
}

}  // namespace

void TakeMemory(size_t bytes) {
  static const size_t limit = Limit();
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (in_use + bytes > had) {
    if (limit != SIZE_MAX) fake_cuda_set_memory(limit - had, limit);
    AskToLetGo();
  }
  TORCH_CHECK_WITH(OutOfMemoryError, in_use + bytes <= limit,
                   "CUDA out of memory. Tried to allocate ", bytes, " bytes; the fake device has ",
                   limit, ", of which ", in_use, " are in use");
  in_use += bytes;
  had = std::max(had, in_use);
  peak = std::max(peak, in_use);
}

void GiveMemory(size_t bytes) noexcept {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  in_use -= bytes;
}

}  // namespace nanwatch::fake

// What run.py calls.
extern "C" __attribute__((visibility("default"))) size_t fake_torch_cuda_memory(int which) {
  using namespace nanwatch::fake;
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return which == 0 ? in_use : peak;
}
extern "C" __attribute__((visibility("default"))) void fake_torch_cuda_reset_peak() {
  using namespace nanwatch::fake;
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  peak = in_use;
}
