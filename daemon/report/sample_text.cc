#include "daemon/report/sample_text.h"

#include <algorithm>

#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

constexpr int kIndicesShownMax = 8;

std::string BatchText(const LoaderSamples& samples) {
  const int shown = std::min(samples.indices_size(), kIndicesShownMax);
  const auto size = std::max(samples.of_batch(), static_cast<uint32_t>(samples.indices_size()));
  std::string text = "a batch of " + Grouped(size) + " was being fetched: dataset indices ";
  for (int i = 0; i < shown; ++i) {
    text += (i > 0 ? ", " : "") + Printable(samples.indices(i));
  }
  return size > static_cast<uint32_t>(shown) ? text + ", ..." : text;
}

}  // namespace

std::string SamplesText(const Finding& origin) {
  const LoaderSamples& samples = origin.samples();
  if (samples.indices().empty()) return "";
  if (samples.whole_batch() && samples.of_batch() > 1) return BatchText(samples);
  const std::string text = "dataset index " + Printable(samples.indices(0)) + " was being fetched";
  return samples.of_batch() > 1 ? text + ", for a batch of " + Grouped(samples.of_batch()) : text;
}

std::string SampleRow(const Finding& origin, int width_columns) {
  const std::string text = SamplesText(origin);
  return text.empty() ? "" : Row("sample", text, width_columns);
}

}  // namespace nanwatch
