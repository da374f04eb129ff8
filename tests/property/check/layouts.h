// SPDX-License-Identifier: Apache-2.0
// Ways in which a tensor's elements lie in memory other than side by side in row-major order.
#pragma once

#include <cstdint>
#include <vector>

namespace nanwatch {

struct Layout {
  const char* name;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements
};

inline const std::vector<Layout>& Layouts() {
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

}  // namespace nanwatch
