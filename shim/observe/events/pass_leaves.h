// SPDX-License-Identifier: Apache-2.0
// Where the leaves lie that the newest backward pass has reached, while no optimizer is known: a
// program that trains by hand may write them through `.data`, which needs no gradient.
//
// Their storages are held weakly, so that an address is not another's. Not the tensors themselves:
// torch exchanges those only where nobody holds them weakly (swap_tensors).
#pragma once

#include <cstdint>
#include <mutex>

#include "shim/classify/bad_values.h"

namespace c10 {
struct StorageImpl;
struct TensorImpl;
}  // namespace c10

namespace nanwatch {

// Threads: any.
class PassLeaves {
 public:
  static constexpr uint32_t kMax = 64;  // of a pass; the rest is not known here

  // A pass begins.
  void Clear() noexcept;
  void Add(const c10::TensorImpl& leaf) noexcept;
  [[nodiscard]] bool Has(const c10::StorageImpl* storage) noexcept;

 private:
  std::mutex mutex_;
  uint32_t count_ = 0;
  WeakStorage storages_[kMax];
};

}  // namespace nanwatch
