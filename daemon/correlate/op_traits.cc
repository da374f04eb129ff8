// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/op_traits.h"

#include <algorithm>
#include <array>

namespace nanwatch {
namespace {

constexpr auto kMovers =
    std::to_array<std::string_view>({"aten::_pin_memory",  "aten::_to_copy",
                                     "aten::_unsafe_view", "aten::alias",
                                     "aten::as_strided",   "aten::cat",
                                     "aten::chunk",        "aten::clone",
                                     "aten::concat",       "aten::contiguous",
                                     "aten::copy_",        "aten::detach",
                                     "aten::detach_",      "aten::expand",
                                     "aten::flatten",      "aten::flip",
                                     "aten::from_file",    "aten::index",
                                     "aten::index_select", "aten::lift",
                                     "aten::lift_fresh",   "aten::lift_fresh_copy",
                                     "aten::narrow",       "aten::permute",
                                     "aten::pin_memory",   "aten::reshape",
                                     "aten::roll",         "aten::select",
                                     "aten::set_",         "aten::slice",
                                     "aten::split",        "aten::squeeze",
                                     "aten::stack",        "aten::t",
                                     "aten::to",           "aten::transpose",
                                     "aten::unsqueeze",    "aten::view"});
static_assert(std::is_sorted(kMovers.begin(), kMovers.end()));

}  // namespace

bool MovesValues(std::string_view op) {
  return std::binary_search(kMovers.begin(), kMovers.end(), op);
}

bool Compares(std::string_view op) {
  constexpr std::array<std::string_view, 10> kTests = {
      "aten::eq", "aten::ne",    "aten::lt",    "aten::le",       "aten::gt",
      "aten::ge", "aten::isnan", "aten::isinf", "aten::isfinite", "aten::isclose"};
  return std::find(kTests.begin(), kTests.end(), op) != kTests.end();
}

bool IsFactor(std::string_view op, uint32_t input) {
  constexpr std::array<std::string_view, 9> kNormalizations = {"aten::native_layer_norm",
                                                               "aten::native_group_norm",
                                                               "aten::native_batch_norm",
                                                               "aten::_native_batch_norm_legit",
                                                               "aten::_batch_norm_with_update",
                                                               "aten::cudnn_batch_norm",
                                                               "aten::_fused_rms_norm",
                                                               "aten::var",
                                                               "aten::var_mean"};
  constexpr std::array<std::string_view, 6> kProducts = {
      "aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::matmul", "aten::linear"};
  constexpr std::array<std::string_view, 4> kAddingProducts = {"aten::addmm", "aten::baddbmm",
                                                               "aten::addbmm", "aten::addmv"};
  const auto is_op = [op](std::string_view name) { return name == op; };
  if (std::any_of(kAddingProducts.begin(), kAddingProducts.end(), is_op)) return input != 0;
  return std::any_of(kProducts.begin(), kProducts.end(), is_op) ||
         std::any_of(kNormalizations.begin(), kNormalizations.end(), is_op) ||
         op.find("convolution") != std::string_view::npos;
}

bool PutsNumber(std::string_view op) {
  return op == "aten::fill_" || op == "aten::where" || op.starts_with("aten::masked_fill") ||
         op.starts_with("aten::index_put") || op.starts_with("aten::index_fill") ||
         op == "aten::_index_put_impl_";
}

bool ComputesWithNumber(std::string_view op) {
  constexpr auto kArithmetic = std::to_array<std::string_view>(
      {"aten::add", "aten::add_", "aten::sub", "aten::sub_", "aten::rsub", "aten::mul",
       "aten::mul_", "aten::div", "aten::div_", "aten::pow", "aten::pow_", "aten::lerp",
       "aten::lerp_", "aten::addcmul", "aten::addcmul_", "aten::addcdiv", "aten::addcdiv_"});
  static constexpr std::string_view kOfLists = "aten::_foreach_";
  return std::any_of(kArithmetic.begin(), kArithmetic.end(), [op](std::string_view name) {
    return op == name || (op.starts_with(kOfLists) && op.substr(kOfLists.size()) == name.substr(6));
  });
}

bool Scales(std::string_view op) { return op == "aten::mul" || op == "aten::mul_"; }

std::string_view ModuleOfParameter(std::string_view parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : parameter.substr(0, dot);
}

}  // namespace nanwatch
