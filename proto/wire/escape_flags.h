// SPDX-License-Identifier: Apache-2.0
// What EscapeRecord.flags says of a number that was read (record.h).
#pragma once

#include <cstdint>

namespace nanwatch::wire {

enum EscapeFlag : uint32_t {
  // It was made by the op and layer of an earlier backward root, and needs a gradient.
  kMayBeLoss = 1,
  // One of several numbers that were read together, by Tensor.numpy() or Tensor.tolist(): the site
  // is one of op aten::resolve_neg, with which these end.
  kReadWithOthers = 2,
  // It was only asked what is finite in it (isnan, isfinite): a gradient, or the norm of all.
  kAskedOnly = 4,
};

}  // namespace nanwatch::wire
