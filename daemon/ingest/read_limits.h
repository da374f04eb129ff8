// SPDX-License-Identifier: Apache-2.0
// What bounds one read of a segment, whatever its writer does meanwhile: the slots that are passed
// (time) and the bytes that are decoded (memory). Value types, one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace nanwatch {

// A full ring of honest findings decodes to about as much.
inline constexpr uint64_t kReadBytesMax = uint64_t{16} << 20;

// One read passes one lap of a ring at most. A writer that runs ahead of the reader would otherwise
// keep it for as many laps as the ring has slots. The first move is free, because it may be an
// honest jump: a segment that was created again begins where the removed one ended.
class LapLimit {
 public:
  LapLimit(uint64_t capacity, uint64_t cursor) : capacity_(capacity), begin_(cursor) {}

  // Whether reading ends here. Asked before each step of the reader, with its cursor.
  [[nodiscard]] bool IsReached(uint64_t cursor) {
    if (!moved_ && cursor != begin_) {
      moved_ = true;
      begin_ = cursor;
    }
    return cursor - begin_ >= capacity_;
  }

 private:
  uint64_t capacity_;
  uint64_t begin_;
  bool moved_ = false;
};

// Messages of one read may serialize to so many bytes; in memory they take about three times that.
class ReadBudget {
 public:
  explicit ReadBudget(uint64_t bytes_max) : left_(bytes_max) {}

  template <typename Message>
  void Take(const Message& message) {
    left_ -= std::min<uint64_t>(left_, kBytesPerMessage + message.ByteSizeLong());
  }
  [[nodiscard]] bool is_spent() const { return left_ == 0; }

 private:
  static constexpr uint64_t kBytesPerMessage = 128;  // of memory, whatever it holds

  uint64_t left_;
};

}  // namespace nanwatch
