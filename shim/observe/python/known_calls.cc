// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/known_calls.h"

#include <bit>
#include <new>

#include "proto/wire/hash.h"

namespace nanwatch {

KnownCall KnownCalls::OfThisThread(const PythonBridge& python) noexcept {
  const PythonFrames::UserPlace place = python.UserPlaceNow();
  if (place.code == nullptr) return {};
  // While whole stacks are wanted, the stack is the place.
  const uint64_t key = python.whole_stacks() ? (uint64_t{python.UserCall()} << 20) | 1
                                             : ((reinterpret_cast<uintptr_t>(place.code) << 16) ^
                                                (uint64_t{python.cell_epoch()} << 40) ^
                                                static_cast<uint32_t>(place.offset)) |
                                                   1;
  static_assert(std::has_single_bit(kCapacity));
  constexpr int kTopBits = 64 - std::countr_zero(kCapacity);
  const auto first = static_cast<uint32_t>((key * wire::kGoldenRatio) >> kTopBits);
  for (uint32_t i = 0; i < kProbes; ++i) {
    const Entry& entry = entries_[(first + i) % kCapacity];
    const uint64_t held = entry.key.load(std::memory_order_acquire);
    if (held == key) return entry.known;
    if (held == 0) break;
  }
  KnownCall known;
  known.call = python.UserCall();
  auto* line = new (std::nothrow) SourceLine;
  if (line != nullptr) python.UserSourceLine(line->text, sizeof line->text);
  known.line = line;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < kProbes; ++i) {
    Entry& entry = entries_[(first + i) % kCapacity];
    if (entry.key.load(std::memory_order_relaxed) != 0) continue;
    entry.known = known;
    entry.key.store(key, std::memory_order_release);
    return known;
  }
  delete line;
  return {known.call, nullptr};
}

}  // namespace nanwatch
