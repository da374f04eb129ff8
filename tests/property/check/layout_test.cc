// SPDX-License-Identifier: Apache-2.0
// Tensors whose elements do not lie side by side in row-major order.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/property/check/guarded_memory.h"
#include "tests/property/check/layouts.h"
#include "tests/property/check/level_and_type.h"

namespace nanwatch {
namespace {

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
