#include "daemon/correlate/op_traits.h"

#include <algorithm>
#include <array>

namespace nanwatch {
namespace {

constexpr std::array<std::string_view, 36> kMovers = {
    "aten::_pin_memory", "aten::_to_copy",   "aten::_unsafe_view",
    "aten::alias",       "aten::as_strided", "aten::cat",
    "aten::chunk",       "aten::clone",      "aten::concat",
    "aten::contiguous",  "aten::copy_",      "aten::detach",
    "aten::detach_",     "aten::expand",     "aten::flatten",
    "aten::from_file",   "aten::index",      "aten::index_select",
    "aten::lift",        "aten::lift_fresh", "aten::lift_fresh_copy",
    "aten::narrow",      "aten::permute",    "aten::pin_memory",
    "aten::reshape",     "aten::select",     "aten::set_",
    "aten::slice",       "aten::split",      "aten::squeeze",
    "aten::stack",       "aten::t",          "aten::to",
    "aten::transpose",   "aten::unsqueeze",  "aten::view"};
static_assert(std::is_sorted(kMovers.begin(), kMovers.end()));

}  // namespace

bool MovesValues(std::string_view op) {
  return std::binary_search(kMovers.begin(), kMovers.end(), op);
}

bool Scales(std::string_view op) { return op == "aten::mul" || op == "aten::mul_"; }

std::string_view ModuleOfParameter(std::string_view parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : parameter.substr(0, dot);
}

}  // namespace nanwatch
