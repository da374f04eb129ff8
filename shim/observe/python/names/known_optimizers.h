// SPDX-License-Identifier: Apache-2.0
// Tells an optimizer object from another one that was made where it stood: a program that trains
// one model after another has the next optimizer at the address of the one before as a rule.
//
// Weak references are held, so nothing of the job's lives longer. A class whose objects cannot be
// referred to weakly is known by its address alone, and so is what there is no room for.
//
// GIL held throughout. A step of the optimizer that stepped last costs two comparisons.
#pragma once

#include <cstdint>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class KnownOptimizers {
 public:
  explicit KnownOptimizers(const PythonApi& api) noexcept : api_(api) {}

  // A value that no other object has, nor had before; not to be followed. That of an object for
  // which none was known before is its address. Changes nothing of Python's error indicator.
  [[nodiscard]] const void* IdentityOf(PyObj* optimizer);

 private:
  struct Known {
    PyObj* object = nullptr;
    PyObj* weak = nullptr;  // owned; null where it cannot be had
    const void* identity = nullptr;
  };
  // Jobs with one optimizer for each parameter have hundreds; with more than this, which all live,
  // the others are not told from their successors.
  static constexpr uint32_t kKnownMax = 64;

  [[nodiscard]] bool Alive(const Known& known) const noexcept;
  [[nodiscard]] Known* Find(const PyObj* optimizer) noexcept;
  [[nodiscard]] Known* PlaceForOneMore() noexcept;

  const PythonApi& api_;
  Known known_[kKnownMax];
  uint32_t count_ = 0;
  uint32_t last_ = 0;       // place of the one that stepped last
  uint64_t serial_ = 0;     // of objects that are not told by their address
  bool forgotten_ = false;  // an address that is not in the list may have been
};

}  // namespace nanwatch
