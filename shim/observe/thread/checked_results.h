// SPDX-License-Identifier: Apache-2.0
// Results that have been looked at already. A composite returns what an op that it called has made:
// that is looked at once, where it was made. The composite's frame remembers the last four.
#pragma once

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

// `parent`: the frame of the op that called this one; null: none.
inline void RecordChecked(Frame* parent, const c10::TensorImpl* impl) {
  if (parent == nullptr || !parent->op->transparent) return;
  parent->checked[parent->checked_count & 3] = impl;
  // Saturates at a count that is as good as any for "all four are used".
  if (++parent->checked_count == 252) parent->checked_count = 4;
}

inline bool WasCheckedByChild(const Frame& frame, const c10::TensorImpl* impl) {
  const int kept = frame.checked_count < 4 ? frame.checked_count : 4;
  for (int i = 0; i < kept; ++i) {
    if (frame.checked[i] == impl) return true;
  }
  return false;
}

}  // namespace nanwatch
