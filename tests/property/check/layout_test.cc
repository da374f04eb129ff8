// Tensors whose elements do not lie side by side in row-major order.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/property/check/guarded_memory.h"
#include "tests/property/check/level_and_type.h"

namespace nanwatch {
namespace {

struct Layout {
  const char* name;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements
};

const std::vector<Layout>& Layouts() {
  static const std::vector<Layout> kLayouts = {
      {"a scalar", {}, {}},
      {"no element, one dimension", {0}, {1}},
      {"no element, strides of a full tensor", {3, 0, 5}, {5, 5, 1}},
      {"one element with any strides", {1, 1, 1}, {77, 0, 13}},
      {"contiguous", {3, 4, 5}, {20, 5, 1}},
      {"contiguous, odd strides where the size is 1", {1, 7, 1, 9}, {999, 9, 3, 1}},
      {"channels-last", {2, 5, 4, 3}, {60, 1, 15, 5}},
      {"channels-last, large enough for blocks", {2, 16, 13, 17}, {16 * 13 * 17, 1, 17 * 16, 16}},
      {"channels-last of one channel", {4, 1, 6, 6}, {36, 1, 6, 1}},
      {"channels-last in three dimensions", {2, 3, 4, 5, 2}, {120, 1, 30, 6, 3}},
      {"transposed", {31, 17}, {1, 31}},
      {"permuted", {4, 5, 6}, {1, 24, 4}},
      {"sliced at the end of rows", {9, 13}, {20, 1}},
      {"sliced in the middle dimension", {4, 3, 8}, {56, 8, 1}},
      {"sliced columns, transposed", {5, 11}, {1, 9}},
      {"every second", {150}, {2}},
      {"every third of every row", {7, 40}, {120, 3}},
      {"every second row", {6, 10}, {20, 1}},
      {"a diagonal", {23}, {24}},
      {"expanded in front", {6, 8}, {0, 1}},
      {"expanded at the end", {8, 6}, {1, 0}},
      {"expanded in the middle", {3, 4, 5}, {5, 0, 1}},
      {"one element expanded to many", {100, 1000}, {0, 0}},
      {"windows that overlap", {10, 4}, {2, 1}},
      {"windows that overlap by a step", {10, 4}, {3, 2}},
      {"windows transposed", {4, 10}, {1, 2}},
      {"backwards", {37}, {-1}},
      {"backwards in one dimension", {5, 8}, {-8, 1}},
      {"backwards in two, sliced", {5, 8}, {-20, -2}},
      {"twelve dimensions",
       {2, 1, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2},
       {256, 1, 128, 64, 7, 32, 16, 8, 3, 4, 2, 1}},
      {"nine dimensions, all apart",
       {2, 2, 2, 2, 2, 2, 2, 2, 2},
       {512, 256, 128, 64, 32, 16, 8, 4, 2}},
  };
  return kLayouts;
}

class EveryLayout : public LevelAndType {
 protected:
  // A layout laid out at one edge of guarded memory, bad wherever no element lies.
  struct Placed {
    TensorView view;
    std::vector<char*> elements;  // by row-major index; repeated where the layout repeats
  };

  Placed Place(const Layout& layout, bool at_end) {
    const auto ndim = static_cast<int32_t>(layout.sizes.size());
    const int64_t numel =
        std::accumulate(layout.sizes.begin(), layout.sizes.end(), int64_t{1}, std::multiplies<>());
    int64_t lowest = 0, highest = 0;
    for (int d = 0; d < ndim; ++d) {
      const int64_t reach = std::max<int64_t>(layout.sizes[d] - 1, 0) * layout.strides[d];
      (reach < 0 ? lowest : highest) += reach;
    }
    const auto bytes = static_cast<int64_t>(element_bytes());
    char* const data = at_end ? memory_.end() - (numel == 0 ? 0 : highest + 1) * bytes
                              : memory_.begin() - lowest * bytes;
    FillBad(memory_.begin(), memory_.bytes());
    Placed placed{{data, type(), ndim, layout.sizes.data(), layout.strides.data(), numel}, {}};
    for (int64_t row = 0; row < numel; ++row) {
      int64_t offset = 0, rest = row;
      for (int d = ndim - 1; d >= 0; --d) {
        offset += rest % layout.sizes[d] * layout.strides[d];
        rest /= layout.sizes[d];
      }
      placed.elements.push_back(data + offset * bytes);
    }
    for (char* element : placed.elements) FillFinite(element, element_bytes());
    return placed;
  }

  GuardedMemory memory_{8192 * 16};
};

TEST_P(EveryLayout, HoldsWhatTheReferenceFindsInIt) {
  for (const Layout& layout : Layouts()) {
    for (const bool at_end : {false, true}) {
      const Placed placed = Place(layout, at_end);
      ExpectAsReference(placed.view, std::string(layout.name) + ", clean");
      if (placed.elements.empty()) continue;
      for (int round = 0; round < 4; ++round) {
        // One more bad part with each round, the first in the last element: a walk that ends early
        // is seen.
        const size_t row =
            round == 0 ? placed.elements.size() - 1 : random_() % placed.elements.size();
        const uint64_t bad = AnyBadWord();
        const size_t part = random_() % static_cast<size_t>(reference::Parts(type()));
        std::memcpy(placed.elements[row] + part * part_bytes(), &bad, part_bytes());
        ExpectAsReference(placed.view,
                          std::string(layout.name) + ", bad at " + std::to_string(row));
      }
      if (HasFailure()) return;
    }
  }
}

NANWATCH_EVERY_LEVEL_AND_TYPE(EveryLayout);

}  // namespace
}  // namespace nanwatch
