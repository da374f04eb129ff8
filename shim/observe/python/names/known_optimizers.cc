// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/known_optimizers.h"

namespace nanwatch {
namespace {

// Addresses of user space have 47 bits (x86-64) or 48.
constexpr int kAddressBits = 48;

const void* Tagged(const PyObj* object, uint64_t serial) noexcept {
  return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(object) |
                                       (serial << kAddressBits));
}

}  // namespace

bool KnownOptimizers::Alive(const Known& known) const noexcept {
  return known.weak == nullptr || PythonApi::WeakReferent(known.weak) == known.object;
}

KnownOptimizers::Known* KnownOptimizers::Find(const PyObj* optimizer) noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    if (known_[i].object == optimizer) {
      last_ = i;
      return &known_[i];
    }
  }
  return nullptr;
}

// Null when all live.
KnownOptimizers::Known* KnownOptimizers::PlaceForOneMore() noexcept {
  if (count_ < kKnownMax) return &known_[count_++];
  for (Known& known : known_) {
    if (Alive(known)) continue;
    forgotten_ = true;
    return &known;
  }
  return nullptr;
}

const void* KnownOptimizers::IdentityOf(PyObj* optimizer) {
  if (last_ < count_ && known_[last_].object == optimizer && Alive(known_[last_]))
    return known_[last_].identity;
  Known* known = Find(optimizer);
  if (known != nullptr && Alive(*known)) return known->identity;
  const bool is_other = known != nullptr;
  if (known == nullptr) known = PlaceForOneMore();
  if (known == nullptr) return optimizer;
  if (known->weak != nullptr) api_.Py_DecRef(known->weak);
  known->object = optimizer;
  known->weak = api_.PyWeakref_NewRef(optimizer, nullptr);
  if (known->weak == nullptr) api_.PyErr_Clear();
  known->identity = is_other || forgotten_ ? Tagged(optimizer, ++serial_) : optimizer;
  last_ = static_cast<uint32_t>(known - known_);
  return known->identity;
}

}  // namespace nanwatch
