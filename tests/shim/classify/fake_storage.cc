// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/classify/fake_storage.h"

namespace nanwatch {

BadEntry FakeStorage::Entry(uint64_t begin, uint64_t end, uint64_t ticket) {
  ++held;
  BadEntry entry;
  entry.storage = {this, this};
  entry.byte_begin = begin;
  entry.byte_end = end;
  entry.value = {ticket, ticket};
  return entry;
}

WeakStorageOps FakeStorageOps() {
  return {[](void* handle) noexcept { return static_cast<FakeStorage*>(handle)->dead; },
          [](void* handle) noexcept { ++static_cast<FakeStorage*>(handle)->dropped; }};
}

}  // namespace nanwatch
