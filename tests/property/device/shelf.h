// SPDX-License-Identifier: Apache-2.0
// Tensors of a list as a job has them: somewhere in memory, with bad values between them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "tests/property/device/checked_launch.h"
#include "tests/property/device/every_type.h"

namespace nanwatch::device {

// Tensors of finite values one behind another, bad values between them.
class Shelf {
 public:
  explicit Shelf(size_t bytes) : memory_(bytes), next_(memory_.begin()) {}

  // The first element stands `off` bytes behind a multiple of 16, or as near as its size allows.
  JobTensor Add(Values& values, size_t count, size_t off) {
    const size_t part = values.part_bytes(), bytes = count * values.element_bytes();
    // Between two tensors stand whole vectors, so that what is bad there belongs to one of them.
    char* const data = next_ + 32 + off / part * part;
    char* const end = data + bytes;
    next_ = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(end) + 47) / 16 * 16);
    EXPECT_LE(next_ + 64, memory_.end()) << "the shelf is too short";
    const size_t before = reinterpret_cast<uintptr_t>(data) % 16;
    values.FillBad(data - before, before);
    values.FillBad(end, static_cast<size_t>(next_ - end) / part * part);
    values.FillFinite(data, bytes);
    return DenseTensor(values.type(), data, count);
  }

 private:
  GuardedMemory memory_;
  char* next_;
};

// Sizes around a vector, a turn of a block and a tile, each at two alignments.
inline std::vector<JobTensor> ManySizes(Shelf& shelf, Values& values) {
  const size_t per_vector = kVectorBytes / values.element_bytes();
  const size_t tile = kTileUnits * per_vector;
  std::vector<JobTensor> tensors;
  for (const size_t count : {size_t{1}, size_t{0}, size_t{2}, per_vector, per_vector + 1,
                             3 * per_vector - 1, 511 * per_vector, 513 * per_vector + 1,
                             tile / 2 + 1, tile - 1, tile, tile + 1, 3 * tile + 1}) {
    for (const size_t off : {0u, 15u}) tensors.push_back(shelf.Add(values, count, off));
  }
  return tensors;
}

inline char* At(const JobTensor& tensor, size_t byte) {
  return const_cast<char*>(static_cast<const char*>(tensor.data)) + byte;
}

// Overwrites a part with a bad one while it lives.
class Planted {
 public:
  Planted(Values& values, char* at) : at_(at), bytes_(values.part_bytes()) {
    std::memcpy(before_, at_, bytes_);
    values.PutBad(at_);
  }
  ~Planted() { std::memcpy(at_, before_, bytes_); }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;

 private:
  char* at_;
  size_t bytes_;
  char before_[8];
};

}  // namespace nanwatch::device
