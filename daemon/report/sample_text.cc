// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/sample_text.h"

#include <algorithm>

#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

constexpr int kIndicesShownMax = 8;

// "3, 17, 40", "..." for those of `size` that are not shown.
std::string IndicesText(const LoaderSamples& samples, uint32_t size) {
  const int shown = std::min(samples.indices_size(), kIndicesShownMax);
  std::string text;
  for (int i = 0; i < shown; ++i) {
    text += (i > 0 ? ", " : "") + Printable(samples.indices(i));
  }
  return size > static_cast<uint32_t>(shown) ? text + ", ..." : text;
}

}  // namespace

std::string SamplesText(const Finding& origin) {
  const LoaderSamples& samples = origin.samples();
  const auto indices = static_cast<uint32_t>(samples.indices_size());
  const uint32_t size = std::max(samples.of_batch(), indices);
  if (indices == 0) return "";
  if (samples.whole_batch() && size > 1) {
    return "a batch of " + Grouped(size) + " was being fetched: dataset indices " +
           IndicesText(samples, size);
  }
  const std::string text = (indices > 1 ? "dataset indices " : "dataset index ") +
                           IndicesText(samples, indices) +
                           (indices > 1 ? " were being fetched" : " was being fetched");
  return size > 1 ? text + ", for a batch of " + Grouped(size) : text;
}

std::string SampleRow(const Finding& origin, int width_columns) {
  const std::string text = SamplesText(origin);
  return text.empty() ? "" : Row("sample", text, width_columns);
}

}  // namespace nanwatch
