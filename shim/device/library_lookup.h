// The DriverLookup of a library that is loaded.
#pragma once

#include <dlfcn.h>

namespace nanwatch::device {

// `library` is dlopen's handle; null: the library has no such function. Safe from any thread.
[[nodiscard]] inline void* LookUpInLibrary(void* library, const char* name) noexcept {
  return dlsym(library, name);
}

}  // namespace nanwatch::device
