// SPDX-License-Identifier: Apache-2.0
// Whom libtorch's CUDA allocator asks to let go of memory, before it asks the driver for more: each
// time when no block that it has kept fits, on the thread that allocates, with the lock of that
// device's allocator held (c10/cuda/CUDACachingAllocator.cpp, trigger_free_memory_callbacks).
#pragma once

#include <c10/util/Registry.h>
#include <dlfcn.h>

#include <memory>
#include <string>

namespace c10 {

// As c10/cuda/CUDACachingAllocator.h declares it, which cannot be included without CUDA's headers.
class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  // True: something was given back, and it is worth looking for a block again.
  virtual bool Execute() = 0;
};

}  // namespace c10

namespace nanwatch {

using FreeMemoryRegistry = c10::Registry<std::string, std::unique_ptr<c10::FreeMemoryCallback>>;

// c10::FreeCudaMemoryCallbacksRegistry(). Null: this process has no such library.
inline FreeMemoryRegistry* FindFreeMemoryRegistry() noexcept {
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI
  constexpr char kName[] = "_ZN3c1031FreeCudaMemoryCallbacksRegistryB5cxx11Ev";
#else
  constexpr char kName[] = "_ZN3c1031FreeCudaMemoryCallbacksRegistryEv";
#endif
  void* library = dlopen("libc10_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return nullptr;
  const auto find = reinterpret_cast<FreeMemoryRegistry* (*)()>(dlsym(library, kName));
  return find != nullptr ? find() : nullptr;
}

}  // namespace nanwatch
