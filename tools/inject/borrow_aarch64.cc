// SPDX-License-Identifier: Apache-2.0
#include "tools/inject/borrow.h"

namespace nanwatch {

BorrowNeeds ReadBorrowNeeds() { return {}; }

BorrowResult BorrowThread(int, uint64_t, const std::function<bool(uint64_t pc, uint64_t sp)>&) {
  return {.borrowed = Borrowed::kNever, .stopped = std::chrono::nanoseconds(0), .refusal = 0};
}

}  // namespace nanwatch
