// SPDX-License-Identifier: Apache-2.0
// The DriverLookup of a library that is loaded, and what the tables of functions have in common.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nanwatch::device {

// `library` is dlopen's handle; null: the library has no such function. Safe from any thread.
[[nodiscard]] inline void* LookUpInLibrary(void* library, const char* name) noexcept {
  return dlsym(library, name);
}

// kInstead: used where the entry before it is absent.
enum class Need : uint8_t { kRequired, kOptional, kInstead };

// A function of a library, and where a table of its functions has the pointer to it.
struct LibraryEntry {
  const char* name;
  size_t offset;
  Need need = Need::kRequired;
};

// Writes the pointer that `lookup` gives for the entry into `table`, and returns it.
template <typename Table>
void* SetEntry(const LibraryEntry& entry, void* (*lookup)(void*, const char*), void* context,
               Table& table) noexcept {
  void* const function = lookup(context, entry.name);
  std::memcpy(reinterpret_cast<char*>(&table) + entry.offset, &function, sizeof function);
  return function;
}

}  // namespace nanwatch::device
