// SPDX-License-Identifier: Apache-2.0
// In what order a tensor's memory is read: a list of equally large units, found from their number.
//
// A scan asks whether anything is bad and reads each address once: dimensions of stride 0 are taken
// once, windows that overlap are joined, and what lies side by side is read 16 bytes at a time.
//
//   one run of memory        ..hhh|16|16|16|...|16|tt..   units: the aligned middle; head and tail
//                                                         (less than 16 bytes each) part by part
//   rows of a larger tensor  every row begins and ends on 16 bytes: units are those vectors
//   anything else            units are single parts
//
// A count wants each element with its row-major index: units are elements, taken in the order in
// which they lie, and an expanded dimension is a factor, `repeats`.
#pragma once

#include <cstdint>

#include "shim/device/check_launch.h"
#include "shim/device/check_words.h"

namespace nanwatch::device {

inline constexpr uint32_t kVectorBytes = 16;

struct WalkDim {
  uint64_t size;
  int64_t stride;     // bytes
  uint64_t row_step;  // in row-major index
  double inverse;     // 1 / size, see Quotient
};

struct Walk {
  uint64_t base;        // address of unit 0
  uint64_t units;       // 0: nothing to read
  uint64_t repeats;     // elements that each unit of a count stands for
  uint64_t head, tail;  // addresses of the parts before and after the middle of one run
  uint32_t head_parts, tail_parts;
  uint32_t unit_bytes;  // kVectorBytes or those of a part; of a count, of an element
  uint32_t part_bytes;
  uint32_t parts;  // of an element
  uint32_t ndim;
  uint32_t is_one_run;         // unit number i lies at base + i * kVectorBytes
  uint32_t is_narrow;          // unit numbers fit 32 bits, which a GPU divides several times faster
  uint32_t type;               // wire::ElementType
  WordTest test;               // of a scan
  WalkDim dims[kDimsMax + 1];  // by rising distance in memory; one more for the parts of an element
};

NANWATCH_BITS constexpr uint32_t PartBytesOf(wire::ElementType type) noexcept {
  uint32_t bytes = 0;
  WithFormat(type, [&](auto format) { bytes = sizeof(typename decltype(format)::Word); });
  return bytes;
}

// log2 of the bytes of a part, or of an element, of each type, four bits for each: one shift of a
// number known at compile time, where a switch by format would be a chain of branches.
inline constexpr uint64_t kNoType = 15;
NANWATCH_BITS constexpr uint64_t ShiftsOfTypes(bool of_elements) noexcept {
  uint64_t shifts = 0;
  for (uint32_t code = 0; code < 16; ++code) {
    const auto type = static_cast<wire::ElementType>(code);
    uint32_t bytes = PartBytesOf(type);
    if (bytes != 0 && of_elements) bytes *= static_cast<uint32_t>(PartsOf(type));
    shifts |= (bytes == 0 ? kNoType : static_cast<uint64_t>(__builtin_ctz(bytes))) << (4 * code);
  }
  return shifts;
}
inline constexpr uint64_t kPartShifts = ShiftsOfTypes(/*of_elements=*/false);
inline constexpr uint64_t kElementShifts = ShiftsOfTypes(/*of_elements=*/true);
static_assert(wire::kElementTypeCount <= 16);

// Puts `dim` where its distance belongs. The order among equals does not matter: they overlap.
NANWATCH_BITS constexpr void InsertDim(Walk& walk, uint64_t size, int64_t stride,
                                       uint64_t row_step) noexcept {
  const int64_t distance = stride < 0 ? -stride : stride;
  uint32_t at = walk.ndim++;
  NANWATCH_NO_UNROLL
  for (; at > 0; --at) {
    const int64_t before = walk.dims[at - 1].stride;
    if ((before < 0 ? -before : before) <= distance) break;
    walk.dims[at] = walk.dims[at - 1];
  }
  walk.dims[at] = {size, stride, row_step, 0};
}

// The dimensions that matter, strides in bytes. False if there is nothing to read.
NANWATCH_BITS constexpr bool TakeDims(const DeviceTensor& tensor, Walk& walk) noexcept {
  const auto type = static_cast<wire::ElementType>(tensor.type);
  walk.units = 0;
  walk.repeats = 1;
  walk.head_parts = walk.tail_parts = 0;
  walk.ndim = 0;
  walk.is_one_run = 0;
  walk.type = tensor.type;
  walk.part_bytes = PartBytesOf(type);
  walk.parts = static_cast<uint32_t>(PartsOf(type));
  walk.base = tensor.data;
  if (walk.part_bytes == 0 || tensor.data == 0 || tensor.ndim > kDimsMax) return false;
  const int64_t element_bytes = int64_t{walk.part_bytes} * walk.parts;
  if (tensor.ndim == 0) {
    if (tensor.numel > 1) InsertDim(walk, static_cast<uint64_t>(tensor.numel), element_bytes, 1);
    return tensor.numel > 0;
  }
  uint64_t row_step = 1;
  NANWATCH_NO_UNROLL
  for (int d = tensor.ndim - 1; d >= 0; --d) {
    const int64_t size = tensor.sizes[d];
    if (size <= 0) return false;
    if (tensor.strides[d] == 0) {
      walk.repeats *= static_cast<uint64_t>(size);
    } else if (size > 1) {
      InsertDim(walk, static_cast<uint64_t>(size), tensor.strides[d] * element_bytes, row_step);
    }
    row_step *= static_cast<uint64_t>(size);
  }
  return true;
}

NANWATCH_BITS constexpr void DropFirstDim(Walk& walk) noexcept {
  --walk.ndim;
  NANWATCH_NO_UNROLL
  for (uint32_t d = 0; d < walk.ndim; ++d) walk.dims[d] = walk.dims[d + 1];
}

// Two dimensions that are steps of one become one. `by_row`: only if their indices are, too.
NANWATCH_BITS constexpr void JoinDims(Walk& walk, bool by_row) noexcept {
  if (walk.ndim == 0) return;
  uint32_t kept = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t d = 1; d < walk.ndim; ++d) {
    WalkDim& inner = walk.dims[kept];
    const WalkDim& outer = walk.dims[d];
    if (outer.stride == inner.stride * static_cast<int64_t>(inner.size) &&
        (!by_row || outer.row_step == inner.row_step * inner.size)) {
      inner.size *= outer.size;
    } else {
      walk.dims[++kept] = outer;
    }
  }
  walk.ndim = kept + 1;
}

NANWATCH_BITS constexpr void CountUnits(Walk& walk) noexcept {
  walk.units = 1;
  NANWATCH_NO_UNROLL
  for (uint32_t d = 0; d < walk.ndim; ++d) {
    walk.units *= walk.dims[d].size;
    walk.dims[d].inverse = 1.0 / static_cast<double>(walk.dims[d].size);
  }
  walk.is_narrow = walk.units <= UINT32_MAX;
}

// One run of `bytes` from walk.base: the aligned middle, head and tail.
NANWATCH_BITS constexpr void PlanRun(Walk& walk, uint64_t bytes) noexcept {
  const uint64_t begin = walk.base, end = begin + bytes;
  uint64_t middle = (begin + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  if (middle > end) middle = end;
  walk.unit_bytes = kVectorBytes;
  walk.units = (end - middle) / kVectorBytes;
  walk.head = begin;
  const auto part_shift = static_cast<uint32_t>(__builtin_ctz(walk.part_bytes));
  walk.head_parts = static_cast<uint32_t>(middle - begin) >> part_shift;
  walk.base = middle;
  walk.tail = middle + walk.units * kVectorBytes;
  walk.tail_parts = static_cast<uint32_t>(end - walk.tail) >> part_shift;
  walk.is_one_run = 1;
}

// Of what TakeDims has taken, or PlanCountOfDims after it.
NANWATCH_BITS constexpr void PlanScanOfDims(Walk& walk) noexcept {
  WithFormat(static_cast<wire::ElementType>(walk.type),
             [&](auto format) { walk.test = TestOf<decltype(format)>(); });
  NANWATCH_NO_UNROLL
  for (uint32_t d = 0; d < walk.ndim; ++d) {
    WalkDim& dim = walk.dims[d];
    if (dim.stride > 0) continue;
    walk.base += static_cast<uint64_t>(static_cast<int64_t>(dim.size - 1) * dim.stride);
    dim.stride = -dim.stride;
  }
  uint64_t run_bytes = uint64_t{walk.part_bytes} * walk.parts;
  while (walk.ndim > 0 && static_cast<uint64_t>(walk.dims[0].stride) <= run_bytes) {
    run_bytes += (walk.dims[0].size - 1) * static_cast<uint64_t>(walk.dims[0].stride);
    DropFirstDim(walk);
  }
  if (walk.ndim == 0) return PlanRun(walk, run_bytes);

  JoinDims(walk, /*by_row=*/false);
  uint64_t all = walk.base | run_bytes;
  NANWATCH_NO_UNROLL
  for (uint32_t d = 0; d < walk.ndim; ++d) all |= static_cast<uint64_t>(walk.dims[d].stride);
  walk.unit_bytes = all % kVectorBytes == 0 ? kVectorBytes : walk.part_bytes;
  if (run_bytes > walk.unit_bytes) {
    InsertDim(walk, run_bytes / walk.unit_bytes, walk.unit_bytes, 0);
  }
  CountUnits(walk);
}

// The scan of a tensor that is known to be one run, which nearly all are. Until it is planned the
// block waits for this one thread, so that each step of it is a step of every launch.
NANWATCH_BITS constexpr void PlanDense(const DeviceTensor& tensor, Walk& walk) noexcept {
  walk.units = 0;
  walk.head_parts = walk.tail_parts = 0;
  walk.is_one_run = 1;
  const uint32_t shift_at = 4u * (tensor.type & 15u);
  const uint64_t part_shift = kPartShifts >> shift_at & 15;
  if (part_shift == kNoType || tensor.type > 15 || tensor.data == 0 || tensor.numel <= 0) return;
  walk.part_bytes = 1u << part_shift;
  walk.base = tensor.data;
  WithFormat(static_cast<wire::ElementType>(tensor.type),
             [&](auto format) { walk.test = TestOf<decltype(format)>(); });
  PlanRun(walk, static_cast<uint64_t>(tensor.numel) << (kElementShifts >> shift_at & 15));
}

NANWATCH_BITS constexpr void PlanScan(const DeviceTensor& tensor, Walk& walk) noexcept {
  if (tensor.ndim == 0 || tensor.one_run != 0) return PlanDense(tensor, walk);
  if (TakeDims(tensor, walk)) PlanScanOfDims(walk);
}

NANWATCH_BITS constexpr void PlanCountOfDims(Walk& walk) noexcept {
  JoinDims(walk, /*by_row=*/true);
  walk.unit_bytes = walk.part_bytes * walk.parts;
  CountUnits(walk);
}

NANWATCH_BITS constexpr void PlanCount(const DeviceTensor& tensor, Walk& walk) noexcept {
  if (TakeDims(tensor, walk)) PlanCountOfDims(walk);
}

// The unit that a thread reads `turns` after `unit`: in each turn a block's threads read as many as
// they are, side by side.
NANWATCH_BITS constexpr uint64_t UnitAfter(uint64_t unit, uint32_t turns) noexcept {
  return unit + uint64_t{turns} * kThreadsPerBlock;
}

// unit / dim.size, for unit numbers below 2^51. A GPU has no division of 64-bit integers but a
// subroutine, and the registers that its caller would have to clear for it. The product with the
// rounded inverse is wrong by 2^-52 of itself at most: too little to reach the next whole number,
// which is 1 / size away or more, but it may fall short of its own.
NANWATCH_BITS constexpr uint64_t Quotient(uint64_t unit, const WalkDim& dim,
                                          bool is_narrow) noexcept {
  if (is_narrow) return static_cast<uint32_t>(unit) / static_cast<uint32_t>(dim.size);
  auto quotient = static_cast<uint64_t>(static_cast<double>(unit) * dim.inverse);
  if (unit - quotient * dim.size >= dim.size) ++quotient;
  return quotient;
}

// The row-major index of the first element that unit number `unit` stands for.
NANWATCH_BITS constexpr uint64_t RowOf(const Walk& walk, uint64_t unit) noexcept {
  uint64_t row = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t d = 0; d < walk.ndim; ++d) {
    const WalkDim& dim = walk.dims[d];
    const uint64_t rest = d + 1 < walk.ndim ? Quotient(unit, dim, walk.is_narrow != 0) : 0;
    row += (unit - rest * dim.size) * dim.row_step;
    unit = rest;
  }
  return row;
}

// The addresses of several units, dimension by dimension: their divisions overlap.
template <class Memory, uint32_t kCount>
NANWATCH_BITS void FindUnits(const Walk& walk, uint64_t (&units)[kCount],
                             uint64_t (&addresses)[kCount]) noexcept {
  for (uint64_t& address : addresses) address = walk.base;
  NANWATCH_NO_UNROLL
  for (uint32_t d = 0; d < walk.ndim; ++d) {
    Memory::ForgetBlock();
    const WalkDim& dim = walk.dims[d];
    const bool is_last = d + 1 == walk.ndim;
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint64_t rest = is_last ? 0 : Quotient(units[i], dim, walk.is_narrow != 0);
      addresses[i] += (units[i] - rest * dim.size) * static_cast<uint64_t>(dim.stride);
      units[i] = rest;
    }
  }
}

}  // namespace nanwatch::device
