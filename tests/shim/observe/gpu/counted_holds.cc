// SPDX-License-Identifier: Apache-2.0
// In place of the observer's: a storage here is a number that nobody looks into.
#include "tests/shim/observe/gpu/counted_holds.h"

#include <c10/core/StorageImpl.h>

#include "shim/classify/bad_values.h"

namespace nanwatch {
namespace {

int taken = 0;
int dropped = 0;

}  // namespace

int HoldsTaken() { return taken; }
int HoldsDropped() { return dropped; }

WeakStorage HoldWeakly(const c10::StorageImpl* storage) noexcept {
  ++taken;
  return {storage, &taken};
}

WeakStorageOps TorchWeakStorageOps() noexcept {
  return {[](void*) noexcept { return false; }, [](void*) noexcept { ++dropped; }};
}

}  // namespace nanwatch
