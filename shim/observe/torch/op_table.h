// SPDX-License-Identifier: Apache-2.0
// What the observer knows of each op, looked up by the address of its schema: one hash probe per
// op, one cold pass over the schema the first time an op is seen. Addresses are stable: a schema
// lives as long as its registration, and entries are compared by address only.
#pragma once

#include <ATen/core/function_schema.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <string_view>

#include "shim/observe/torch/op_families.h"

namespace nanwatch {

enum AutocastsOn : uint8_t { kAutocastsOnCpu = 1, kAutocastsOnCuda = 2 };

struct OpTraits {
  const c10::FunctionSchema* schema;        // nullptr: a range that is named by a string
  const c10::FunctionSchema* quick_schema;  // the same, unless the begin of the op needs thought
  const char* name;                         // "aten::div", lives as long as the schema
  uint32_t families;                        // OpFamily bits
  // Bit i: argument i is written in place and read before (self of add_), or written only (out=).
  uint64_t updates;
  uint64_t overwrites;
  uint64_t
      rewrites;  // written although the schema does not say so: batch norm's running statistics
  uint16_t arguments;
  uint16_t returns;
  uint16_t non_blocking;  // place of that argument, with kMayNotWait
  bool skip;              // outputs need no look: views, allocations, random values, integers
  bool ends_quietly;      // skip, and nothing else is to be done at its end either
  bool is_view;           // returns memory of an argument
  bool transparent;  // its value is computed by the ops it calls: a composite, or a list op without
                     // returns
  uint8_t autocasts;  // transparent while autocast is on for these devices: AutocastsOn bits
  bool in_place;      // writes an argument
  bool takes_number;  // has a floating-point argument of its own that its result depends on
  bool takes_number_as_tensor;  // Python may hand it one in the place of a tensor
  bool writes_unseen;  // writes arguments and returns no tensor: they are seen only with inputs
  std::atomic<uint32_t> name_id;  // in the segment's name table, 0 not yet interned
};

inline bool TakesNumber(const OpTraits& op) noexcept {
  return op.takes_number || op.takes_number_as_tensor;
}

// The one op by which a fused optimizer updates all parameters.
inline bool IsFusedUpdate(const OpTraits& op) noexcept {
  return op.writes_unseen && std::string_view(op.name).starts_with("aten::_fused_");
}

inline bool IsOfAten(const OpTraits& op) noexcept {
  return std::string_view(op.name).starts_with("aten::");
}

class OpTable {
 public:
  OpTable() noexcept;
  // Never null. Any thread.
  const OpTraits* Find(const c10::FunctionSchema* schema) noexcept {
    uint32_t at = Hash(schema);
    for (;; at = (at + 1) & (kCapacity - 1)) {
      const OpTraits* found = entries_[at].load(std::memory_order_acquire);
      if (__builtin_expect(found != nullptr && found->schema == schema, 1)) return found;
      if (found == nullptr) return Add(schema, at);
    }
  }
  // The traits if they are where the schema's address points to first and the op begins like any
  // other; nullptr otherwise: ask Find.
  const OpTraits* Peek(const c10::FunctionSchema* schema) const noexcept {
    const OpTraits* found = entries_[Hash(schema)].load(std::memory_order_acquire);
    return found != nullptr && found->quick_schema == schema ? found : nullptr;
  }
  // The traits of ranges that are named by a string: autograd nodes, custom functions, compiled
  // regions.
  const OpTraits* Range() const noexcept { return &range_; }

 private:
  // Torch registers about 4,500 schemas; one in four of them is ever called in a process that calls
  // many.
  static constexpr uint32_t kCapacity = 1u << 14;
  // As BadValues::Bucket (shim/classify).
  static uint32_t Hash(const c10::FunctionSchema* schema) noexcept {
    static_assert(std::has_single_bit(kCapacity));
    constexpr int kAlignmentBits = 4;
    constexpr int kTopBits = 32 - std::countr_zero(kCapacity);
    const auto place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(schema) >> kAlignmentBits);
    return (place * 0x9E3779B1u) >> kTopBits;
  }
  const OpTraits* Add(const c10::FunctionSchema* schema, uint32_t at) noexcept;

  std::atomic<const OpTraits*> entries_[kCapacity];
  std::atomic<uint32_t> used_;
  OpTraits range_;
};

}  // namespace nanwatch
