// SPDX-License-Identifier: Apache-2.0
// The leaves that the newest backward pass has reached, while no optimizer is known: a program that
// trains by hand may write them through `.data`, which needs no gradient, or give them another
// tensor (`w.data = w.data - rate * w.grad`), which no op announces.
#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <mutex>

namespace nanwatch {

// Threads: any.
class PassLeaves {
 public:
  static constexpr uint32_t kMax = 64;  // of a pass; the rest is not known here

  // A pass begins.
  void Clear() noexcept;
  void Add(c10::TensorImpl* leaf) noexcept;
  // Whether the storage is that of one of them, as it was in the pass.
  [[nodiscard]] bool Has(const c10::StorageImpl* storage) noexcept;
  // One of them has another storage now; said once a pass.
  [[nodiscard]] bool TakeReplaced() noexcept;

 private:
  struct Leaf {
    c10::weak_intrusive_ptr<c10::TensorImpl> held{
        c10::intrusive_ptr<c10::TensorImpl>()};  // so that its address is not another's
    const c10::StorageImpl* storage = nullptr;   // an identity
  };

  std::mutex mutex_;
  uint32_t count_ = 0;
  bool told_ = false;
  Leaf leaves_[kMax];
};

}  // namespace nanwatch
