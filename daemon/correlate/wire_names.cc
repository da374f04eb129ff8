// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/wire_names.h"

#include <array>
#include <cstddef>
#include <string_view>

#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

template <size_t N>
std::string NameAt(const std::array<std::string_view, N>& names, uint32_t number,
                   std::string_view unknown) {
  return std::string(number < N ? names[number] : unknown);
}

constexpr std::array<std::string_view, wire::kElementTypeCount> kElementTypes = {"",
                                                                                 "float64",
                                                                                 "float32",
                                                                                 "float16",
                                                                                 "bfloat16",
                                                                                 "complex128",
                                                                                 "complex64",
                                                                                 "complex32",
                                                                                 "float8_e5m2",
                                                                                 "float8_e4m3fn",
                                                                                 "float8_e5m2fnuz",
                                                                                 "float8_e4m3fnuz",
                                                                                 "float8_e8m0fnu"};
constexpr std::array<std::string_view, 4> kPhases = {"other", "forward", "backward", "optimizer"};
// A record without a class says only that the value was bad: the weakest claim stands for it.
constexpr std::array<std::string_view, 8> kClasses = {
    "propagate", "produce", "inf_to_nan", "scalar", "propagate", "killed", "external", "received"};
constexpr std::array<std::string_view, 7> kReaches = {
    "activation", "loss", "gradient", "parameter", "optimizer_state", "buffer", "metric"};
constexpr std::array<std::string_view, 5> kLevels = {"idle", "canary", "sampled", "full", "auto"};
constexpr std::array<std::string_view, 16> kUnchecked = {
    "sparse",       "quantized",      "nested",        "meta",      "fake",           "functorch",
    "other_device", "uninitialised",  "async",         "auxiliary", "written_unseen", "too_deep",
    "opaque",       "after_poisoned", "gpu_not_ready", "gpu_busy"};

}  // namespace

std::string ElementTypeName(uint32_t element_type) {
  return NameAt(kElementTypes, element_type, "");
}
std::string PhaseName(uint32_t phase) { return NameAt(kPhases, phase, "other"); }
std::string FindingClassName(uint32_t finding_class) {
  return NameAt(kClasses, finding_class, "propagate");
}
std::string ReachName(uint32_t reach) { return NameAt(kReaches, reach, "activation"); }
std::string LevelName(uint32_t level) { return NameAt(kLevels, level, ""); }
std::string UncheckedName(uint32_t reason) {
  const std::string name = NameAt(kUnchecked, reason, "");
  return name.empty() ? "reason_" + std::to_string(reason) : name;
}

}  // namespace nanwatch
