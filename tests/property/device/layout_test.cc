// SPDX-License-Identifier: Apache-2.0
// Tensors whose elements do not lie side by side, as the scan's tests lay them out, and rows of
// larger tensors that begin and end on 16 bytes. Those that are one run in another order are told
// as the observer tells them, too.
#include <algorithm>
#include <functional>

#include "shim/observe/gpu/gpu_counts.h"
#include "tests/property/check/layouts.h"
#include "tests/property/device/checked_launch.h"
#include "tests/property/device/every_type.h"

namespace nanwatch::device {
namespace {

// In elements of 16 bytes or less: rows of 64 stand on 16 bytes for every type.
const std::vector<Layout>& LayoutsOfRows() {
  static const std::vector<Layout> kLayouts = {
      {"rows of half the columns", {20, 64}, {128, 1}},
      {"rows of a vector", {40, 16}, {48, 1}},
      {"two dimensions of rows", {3, 5, 32}, {1280, 64, 1}},
      {"rows backwards", {9, 64}, {-128, 1}},
      {"rows of many blocks", {250, 64}, {96, 1}},
      {"rows in permuted order, expanded", {4, 7, 3, 16}, {16, 192, 0, 1}},
      {"single elements of many blocks", {4999}, {3}},
      {"single elements, eight dimensions",
       {2, 3, 2, 3, 2, 3, 2, 3},
       {5184, 1728, 864, 288, 144, 48, 24, 8}},
  };
  return kLayouts;
}

class KernelOnLayouts : public EveryType {
 protected:
  struct Placed {
    JobTensor tensor;
    std::vector<char*> elements;  // by row-major index; repeated where the layout repeats
  };

  // Where a layout lies in guarded memory.
  enum class Edge { kStart, kEnd, kPartFromStart };

  // A layout at one edge, or off the multiples of 16 bytes; what no element covers is bad.
  Placed Place(const Layout& layout, Edge edge) {
    int64_t numel = 1, lowest = 0, highest = 0;
    for (size_t d = 0; d < layout.sizes.size(); ++d) {
      numel *= layout.sizes[d];
      const int64_t reach = std::max<int64_t>(layout.sizes[d] - 1, 0) * layout.strides[d];
      (reach < 0 ? lowest : highest) += reach;
    }
    const auto bytes = static_cast<int64_t>(values_.element_bytes());
    char* data = memory_.begin() - lowest * bytes;
    if (edge == Edge::kEnd) data = memory_.end() - (numel == 0 ? 0 : highest + 1) * bytes;
    if (edge == Edge::kPartFromStart) data += values_.part_bytes();
    values_.FillBad(memory_.begin(), memory_.bytes());
    Placed placed{{values_.type(), data, layout.sizes, layout.strides}, {}};
    for (int64_t row = 0; row < numel; ++row) {
      int64_t offset = 0, rest = row;
      for (size_t d = layout.sizes.size(); d-- > 0;) {
        offset += rest % layout.sizes[d] * layout.strides[d];
        rest /= layout.sizes[d];
      }
      placed.elements.push_back(data + offset * bytes);
      values_.FillFinite(placed.elements.back(), values_.element_bytes());
    }
    return placed;
  }

  // Whether its elements are all of a piece of memory that begins with the first, each once.
  bool FormOneRun(const Placed& placed) const {
    std::vector<char*> elements = placed.elements;
    std::sort(elements.begin(), elements.end());
    for (size_t i = 0; i < elements.size(); ++i) {
      const char* data = static_cast<const char*>(placed.tensor.data);
      if (elements[i] != data + i * values_.element_bytes()) return false;
    }
    return true;
  }

  // A count of a run goes by the dimensions as ever, and so do first bad indices.
  void Expect(const Placed& placed) {
    const bool one_run = IsOneRun(ViewOf(placed.tensor), /*in_any_order=*/true);
    if (!placed.elements.empty()) {
      EXPECT_EQ(one_run, FormOneRun(placed));
    }
    Expect(placed.tensor);
    if (!one_run) return;
    JobTensor told = placed.tensor;
    told.is_one_run = true;
    Expect(told);
    ++runs_;
  }

  void Expect(const JobTensor& tensor) {
    CheckedLaunch launch({tensor}, {tensor});
    launch.Run(1 + random_() % 5, random_);
    launch.ExpectAsReference();
    if (launch.result.ticket == 0) return;
    launch.ClearResult();
    launch.words.counted = kCountedInFullMax;
    launch.Run(1 + random_() % 5, random_);
    launch.ExpectBrieflyAsReference();
  }

  void TryAll(const std::vector<Layout>& layouts) {
    for (const Layout& layout : layouts) {
      // A scalar has no dimension, which here means "side by side": the host says it so.
      if (layout.sizes.size() > kDimsMax || layout.sizes.empty()) continue;
      for (const Edge edge : {Edge::kStart, Edge::kEnd, Edge::kPartFromStart}) {
        const Placed placed = Place(layout, edge);
        Expect(placed);
        for (int round = 0; round < 3 && !placed.elements.empty(); ++round) {
          // One more bad part with each round, the first in the last element.
          const size_t row =
              round == 0 ? placed.elements.size() - 1 : random_() % placed.elements.size();
          const size_t parts = values_.element_bytes() / values_.part_bytes();
          values_.PutBad(placed.elements[row] + random_() % parts * values_.part_bytes());
          Expect(placed);
        }
        ASSERT_FALSE(HasFailure()) << layout.name << ", place " << static_cast<int>(edge);
      }
    }
  }

  GuardedMemory memory_{size_t{24320} * 16};
  int runs_ = 0;  // told to be one
};

TEST_P(KernelOnLayouts, HoldsWhatTheReferenceFindsInIt) {
  TryAll(Layouts());
  EXPECT_GT(runs_, 7 * 3) << "channels last, transposed, permuted";
}
TEST_P(KernelOnLayouts, IsReadByRowsWhereTheyStandOnSixteenBytes) { TryAll(LayoutsOfRows()); }

NANWATCH_EVERY_TYPE(KernelOnLayouts);

}  // namespace
}  // namespace nanwatch::device
