// SPDX-License-Identifier: Apache-2.0
// For checks of many tensors in one launch: tensors of every type, and bad values anywhere in them.
#pragma once

#include <memory>

#include "tests/property/device/shelf.h"

namespace nanwatch::device {

class DrawnTensors : public testing::Test {
 protected:
  explicit DrawnTensors(uint64_t seed) : random_(seed) {}

  // Bad values that are there until this goes.
  class Bad {
   public:
    explicit Bad(std::vector<std::unique_ptr<Planted>> planted) : planted_(std::move(planted)) {}
    Bad(Bad&&) = default;
    Bad& operator=(Bad&&) = delete;
    ~Bad() {
      while (!planted_.empty()) planted_.pop_back();  // the last first: two may be in one place
    }

   private:
    std::vector<std::unique_ptr<Planted>> planted_;
  };

  // `count` tensors of any type, few of them larger than a tile.
  std::vector<JobTensor> DrawTensors(Shelf& shelf, size_t count) {
    std::vector<JobTensor> tensors;
    for (size_t i = 0; i < count; ++i) {
      constexpr size_t kBytesMax[] = {64, 64, 4096, 4096, 4096, 150'000};
      Values& values = values_[random_() % values_.size()];
      const size_t most = kBytesMax[random_() % 6] / values.element_bytes();
      tensors.push_back(shelf.Add(values, random_() % (most + 1), random_() % 16));
      types_.push_back(&values);
    }
    return tensors;
  }

  // At most `count`, as some of `tensors`, which DrawTensors made, may be empty.
  Bad Plant(const std::vector<JobTensor>& tensors, size_t count) {
    std::vector<std::unique_ptr<Planted>> planted;
    for (size_t n = 0; n < count; ++n) {
      const size_t i = random_() % tensors.size();
      const size_t bytes = static_cast<size_t>(tensors[i].sizes[0]) * types_[i]->element_bytes();
      if (bytes == 0) continue;
      const size_t part = types_[i]->part_bytes();
      planted.push_back(
          std::make_unique<Planted>(*types_[i], At(tensors[i], random_() % bytes / part * part)));
    }
    return Bad(std::move(planted));
  }

  // None to three, or many.
  size_t DrawBadCount() { return random_() % 5 == 0 ? 40 : random_() % 4; }

  // A tensor of `count` floats, all of them 1.
  static JobTensor Ones(std::vector<float>& floats, size_t count) {
    floats.assign(count, 1.0f);
    return DenseTensor(wire::ElementType::kFloat32, floats.data(), count);
  }

  std::mt19937_64 random_;

 private:
  static std::vector<Values> AllValues() {
    std::vector<Values> all;
    for (const wire::ElementType type : reference::kAllTypes) all.emplace_back(type, 20240611);
    return all;
  }

  std::vector<Values> values_ = AllValues();
  std::vector<Values*> types_;  // of the tensors drawn
};

}  // namespace nanwatch::device
