// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/kernel_text.h"

#include <fmt/format.h>
#include <algorithm>
#include <string_view>

#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

constexpr size_t kKernelColumnsMax = 56;
constexpr int kKernelsShownMax = 3;

// "void at::native::(anonymous namespace)::foo<4, ...>(int)" is "at::native::foo".
std::string ShortName(std::string_view name) {
  constexpr std::string_view kNameless = "(anonymous namespace)::";
  constexpr std::string_view kNothing = "void ";
  if (name.starts_with(kNothing)) name.remove_prefix(kNothing.size());
  std::string text;
  while (!name.empty()) {
    if (name.starts_with(kNameless)) {
      name.remove_prefix(kNameless.size());
      continue;
    }
    if (name.front() == '<' || name.front() == '(') break;
    text += name.front();
    name.remove_prefix(1);
  }
  return Shorten(Printable(text), kKernelColumnsMax);
}

std::string TimeText(uint64_t nanoseconds) {
  const char* const unit = nanoseconds < 1'000'000 ? "us" : "ms";
  const double per_unit = nanoseconds < 1'000'000 ? 1e3 : 1e6;
  return fmt::format("{:.1f} {}", static_cast<double>(nanoseconds) / per_unit, unit);
}

// Nobody knows which op they belonged to.
std::string LostText(const Finding& origin) {
  if (origin.kernels_lost() == 0) return "";
  return " (" + Grouped(origin.kernels_lost()) + " kernel records were lost)";
}

}  // namespace

std::string KernelsText(const Finding& origin) {
  std::string text;
  const int shown = std::min(origin.kernels_size(), kKernelsShownMax);
  for (int i = 0; i < shown; ++i) {
    const KernelTime& kernel = origin.kernels(i);
    text += (i > 0 ? "; " : "") + ShortName(kernel.name());
    if (kernel.count() > 1) text += " " + std::to_string(kernel.count()) + " x";
    text += ", " + TimeText(kernel.nanoseconds());
  }
  const uint32_t others =
      static_cast<uint32_t>(origin.kernels_size() - shown) + origin.kernels_left_out();
  if (others > 0) text += "; " + std::to_string(others) + " more";
  return text + LostText(origin);
}

std::string NoKernelsText(const Finding& origin) {
  if (!origin.kernels().empty() || !origin.has_kernel_records()) return "";
  const KernelRecords& records = origin.kernel_records();
  const std::string kernels =
      Grouped(records.kernels()) + (records.kernels() == 1 ? " kernel" : " kernels");
  std::string why;
  if (records.yielded()) {
    why = "a profiler took over CUPTI before the records of this op arrived";
  } else if (records.buffers() == 0) {
    why = "CUPTI delivered no records";
  } else if (records.kernels() == 0 && records.kernels_in_graphs() > 0) {
    why = "the " + Grouped(records.kernels_in_graphs()) +
          " kernels that CUPTI recorded ran in CUDA graphs, where it cannot match kernels to ops";
  } else if (records.kernels() == 0) {
    why = "CUPTI recorded none of the job's kernels";
  } else if (records.matched() == 0) {
    why = "CUPTI recorded " + kernels + ", but not which ops launched them";
  } else {
    why = "CUPTI recorded " + kernels + " and " + Grouped(records.launches()) +
          " launches by ops, but none of this op";
  }
  return "none named: " + why + LostText(origin);
}

std::string KernelRow(const Finding& origin, int width_columns) {
  const std::string text = origin.kernels().empty() ? NoKernelsText(origin) : KernelsText(origin);
  return text.empty() ? "" : Row("kernels", text, width_columns);
}

}  // namespace nanwatch
