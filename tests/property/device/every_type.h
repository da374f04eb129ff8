// SPDX-License-Identifier: Apache-2.0
// Runs a property for every element type, and makes words of that type.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/property/check/reference.h"

namespace nanwatch::device {

// Words of one type, drawn from a seed.
class Values {
 public:
  Values(wire::ElementType type, uint64_t seed)
      : type_(type),
        part_bytes_(static_cast<size_t>(reference::PartBytes(type))),
        bad_(reference::BadWords(type)),
        random_(seed) {
    // Mostly any word that is finite, now and then a delicate one. A page of them, because finding
    // them is slow.
    const auto delicate = reference::DelicateFiniteWords(type);
    for (uint64_t& word : finite_) {
      word = random_();
      if (part_bytes_ < 8) word &= (uint64_t{1} << (8 * part_bytes_)) - 1;
      const bool is_finite = reference::Decode(type, word).kind == reference::Kind::kFinite;
      if (!is_finite || random_() % 8 == 0) word = delicate[random_() % delicate.size()];
    }
  }

  [[nodiscard]] wire::ElementType type() const { return type_; }
  [[nodiscard]] size_t part_bytes() const { return part_bytes_; }
  [[nodiscard]] size_t element_bytes() const {
    return part_bytes_ * static_cast<size_t>(reference::Parts(type_));
  }

  void FillFinite(char* at, size_t bytes) {
    size_t next = random_();
    for (size_t done = 0; done < bytes; done += part_bytes_) {
      std::memcpy(at + done, &finite_[next++ % std::size(finite_)], part_bytes_);
    }
  }

  // Bad throughout, so that reading beside the elements is a false alarm.
  void FillBad(char* at, size_t bytes) {
    for (size_t done = 0; done + part_bytes_ <= bytes; done += part_bytes_) {
      std::memcpy(at + done, bad_.data(), part_bytes_);
    }
  }

  void PutBad(char* at) { std::memcpy(at, &bad_[random_() % bad_.size()], part_bytes_); }

 private:
  wire::ElementType type_;
  size_t part_bytes_;
  std::vector<uint64_t> bad_;
  std::mt19937_64 random_;
  uint64_t finite_[509];
};

class EveryType : public testing::TestWithParam<wire::ElementType> {
 protected:
  std::mt19937_64 random_{20240607};
  Values values_{GetParam(), 20240608};
};

}  // namespace nanwatch::device

#define NANWATCH_EVERY_TYPE(suite)                                       \
  INSTANTIATE_TEST_SUITE_P(                                              \
      Every, suite, testing::ValuesIn(::nanwatch::reference::kAllTypes), \
      [](const auto& tested) { return ::nanwatch::reference::Name(tested.param); })
