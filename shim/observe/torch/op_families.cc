// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/op_families.h"

#include <algorithm>
#include <iterator>

namespace nanwatch {
namespace {

struct Rule {
  std::string_view name;  // a trailing '*' matches any rest
  uint32_t families;
};

constexpr Rule kRules[] = {
    // Allocation.
    {"aten::empty*", kAllocates | kReadsMetadata},
    {"aten::new_empty*", kAllocates | kReadsMetadata},
    {"aten::_empty_affine_quantized", kAllocates},
    {"aten::_efficientzerotensor", kAllocates | kReadsMetadata},
    {"aten::resize_*", kAllocates | kReadsMetadata},
    {"aten::_resize_output_", kAllocates | kReadsMetadata},
    // Returns the buffer that the gather is about to fill.
    {"fsdp::all_gather_copy_in", kAllocates},
    // Random and counted.
    {"aten::zeros*", kCreates | kReadsMetadata},
    {"aten::new_zeros", kCreates | kReadsMetadata},
    {"aten::ones*", kCreates | kReadsMetadata},
    {"aten::new_ones", kCreates | kReadsMetadata},
    {"aten::zero_", kCreates | kOverwrites | kReadsMetadata},
    {"aten::arange", kCreates},
    {"aten::eye", kCreates},
    {"aten::rand", kCreates},
    {"aten::rand_like", kCreates | kReadsMetadata},
    {"aten::randn", kCreates},
    {"aten::randn_like", kCreates | kReadsMetadata},
    {"aten::randint*", kCreates | kReadsMetadata},
    {"aten::randperm", kCreates},
    {"aten::uniform_", kCreates | kOverwrites | kReadsMetadata},
    {"aten::random_", kCreates | kOverwrites | kReadsMetadata},
    {"aten::bernoulli_", kCreates | kOverwrites},
    {"aten::normal_", kOverwrites | kReadsMetadata},
    {"aten::log_normal_", kOverwrites | kReadsMetadata},
    {"aten::cauchy_", kOverwrites | kReadsMetadata},
    {"aten::exponential_", kOverwrites | kReadsMetadata},
    {"aten::tril_indices", kCreates},
    {"aten::triu_indices", kCreates},
    // One constant.
    {"aten::full", kFills},
    {"aten::full_like", kFills | kReadsMetadata},
    {"aten::new_full", kFills | kReadsMetadata},
    {"aten::fill_", kFills | kOverwrites | kReadsMetadata},
    {"aten::fill", kFills | kReadsMetadata},
    {"aten::scalar_tensor", kFills},
    // A constant among values.
    {"aten::masked_fill", kMasks | kMoves | kPutsValue},
    {"aten::masked_fill_", kMasks | kMoves | kPutsValue},
    {"aten::where", kMasks | kMoves},
    {"aten::index_fill*", kMasks | kMoves},
    {"aten::constant_pad_nd", kMasks | kMoves},
    {"aten::pad", kMasks | kMoves},
    {"aten::scatter", kMasks | kMoves},
    {"aten::scatter_", kMasks | kMoves},
    {"aten::clamp", kMasks | kNanProof},
    {"aten::clamp_*", kMasks | kNanProof},
    {"aten::threshold", kMasks | kNanProof},
    {"aten::threshold_", kMasks | kNanProof},
    {"aten::linspace", kMasks},
    // Entry.
    {"aten::lift_fresh", kEnters | kMoves},
    {"aten::lift", kEnters | kMoves},
    {"aten::lift_fresh_copy", kEnters | kMoves},
    {"aten::set_", kEnters | kMoves | kOverwrites},
    {"aten::_pin_memory", kEnters | kMoves},
    {"aten::from_file", kEnters | kMoves},
    {"aten::frombuffer", kEnters | kMoves},
    // Movement.
    {"aten::copy_", kMoves | kOverwrites},
    {"aten::copy", kMoves},
    {"aten::_copy_from*", kMoves},
    {"aten::_to_copy", kMoves},
    {"aten::clone", kMoves},
    {"aten::detach_", kMoves},
    {"aten::cat", kMoves | kStacks},
    {"aten::stack", kMoves | kStacks},
    {"aten::_stack", kMoves},
    {"aten::index", kMoves},
    {"aten::index_select", kMoves},
    {"aten::index_put*", kMoves | kPutsValue},
    {"aten::_index_put_impl_", kMoves | kPutsValue},
    {"aten::index_copy*", kMoves},
    {"aten::gather", kMoves},
    {"aten::take", kMoves},
    {"aten::embedding", kMoves},
    {"aten::masked_select", kMoves},
    {"aten::masked_scatter*", kMoves},
    {"aten::roll", kMoves},
    {"aten::flip", kMoves},
    {"aten::repeat", kMoves},
    {"aten::repeat_interleave", kMoves},
    {"aten::tril*", kMoves},
    {"aten::triu*", kMoves},
    {"aten::sort", kMoves},
    {"aten::topk", kMoves},
    {"aten::max", kMoves},
    {"aten::min", kMoves},
    {"aten::amax", kMoves},
    {"aten::amin", kMoves},
    {"aten::maximum", kMoves},
    {"aten::minimum", kMoves},
    {"aten::max_pool*", kMoves | kFirstOutputOnly},
    {"aten::adaptive_max_pool*", kMoves | kFirstOutputOnly},
    {"aten::_reshape_copy", kMoves},
    {"aten::_unsafe_view", kMoves},
    {"aten::contiguous", kMoves},
    {"aten::select_backward", kMoves},
    {"aten::slice_backward", kMoves},
    {"aten::embedding_dense_backward", kNanProof},
    {"aten::threshold_backward", kNanProof},
    // No NaN from finite real inputs: sums and differences of finite numbers round to finite
    // numbers or to an
    // infinity; bounded or monotone functions stay bounded or overflow to Inf. (Not mul: its scalar
    // may be Inf.)
    {"aten::add", kNanProof},
    {"aten::add_", kNanProof},
    {"aten::sub", kNanProof},
    {"aten::sub_", kNanProof},
    {"aten::rsub", kNanProof},
    {"aten::neg*", kNanProof},
    {"aten::abs*", kNanProof},
    {"aten::relu*", kNanProof},
    {"aten::leaky_relu*", kNanProof},
    {"aten::sigmoid*", kNanProof},
    {"aten::tanh*", kNanProof},
    {"aten::exp", kNanProof},
    {"aten::exp_", kNanProof},
    {"aten::expm1*", kNanProof},
    {"aten::square*", kNanProof},
    {"aten::sign*", kNanProof},
    {"aten::erf", kNanProof},
    {"aten::sin", kNanProof},
    {"aten::cos", kNanProof},
    {"aten::hardtanh*", kNanProof},
    {"aten::elu", kNanProof},
    {"aten::elu_", kNanProof},
    {"aten::softplus", kNanProof},
    {"aten::silu", kNanProof},
    {"aten::silu_", kNanProof},
    {"aten::gelu", kNanProof},
    // How optimizers keep averages.
    {"aten::mul_", kDecaysState | kMixesIntoState},
    {"aten::lerp_", kDecaysState | kMixesIntoState},
    {"aten::addcmul_", kMixesIntoState},
    {"aten::_foreach_mul_", kDecaysState},
    {"aten::_foreach_lerp_", kDecaysState},
    // Scalars to Python.
    {"aten::_local_scalar_dense", kReadsScalar},
    // Tests of a loss. (isnan, isfinite and the like are made of these.)
    {"aten::eq", kCompares},
    {"aten::ne", kCompares},
    {"aten::lt", kCompares | kOrders},
    {"aten::le", kCompares | kOrders},
    {"aten::gt", kCompares | kOrders},
    {"aten::ge", kCompares | kOrders},
    {"aten::isnan", kCompares},
    {"aten::isinf", kCompares},
    {"aten::resolve_neg", kReadsAll},
    // GradScaler.
    {"aten::_amp_foreach_non_finite_check_and_unscale_", kUnscales},
    {"aten::_amp_update_scale_", kUpdatesScale | kReadsMetadata},
    // Undeclared writes.
    {"aten::native_batch_norm", kBatchNorm},
    {"aten::_native_batch_norm_legit", kBatchNorm},
    {"aten::_batch_norm_with_update", kBatchNorm},
    {"aten::cudnn_batch_norm", kBatchNorm},
    {"aten::miopen_batch_norm", kBatchNorm},
    {"aten::batch_norm_update_stats", kBatchNorm},
    {"aten::native_instance_norm", kBatchNorm},
    // Bookkeeping outputs.
    {"aten::_scaled_dot_product_*", kFirstOutputOnly},
    {"aten::_flash_attention_forward", kFirstOutputOnly},
    {"aten::_efficient_attention_forward", kFirstOutputOnly},
    {"aten::_ctc_loss", kFirstOutputOnly},
    {"aten::_embedding_bag*", kFirstOutputOnly},
    {"aten::native_dropout", kFirstOutputOnly},
    // The sum of the weights, which is not written at all where nothing is reduced.
    {"aten::nll_loss2d_forward", kFirstOutputOnly},
};

// The backward of attention has three gradients; they are values of the model.
constexpr Rule kExceptions[] = {
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", 0},
    {"aten::_scaled_dot_product_flash_attention_backward", 0},
    {"aten::_scaled_dot_product_efficient_attention_backward", 0},
    {"aten::_scaled_dot_product_cudnn_attention_backward", 0},
    {"aten::max_pool2d_with_indices_backward", kMoves},
    {"aten::adaptive_max_pool2d_backward", kMoves},
};

bool Matches(std::string_view pattern, std::string_view name) {
  if (!pattern.empty() && pattern.back() == '*') {
    return name.starts_with(pattern.substr(0, pattern.size() - 1));
  }
  return pattern == name;
}

// They return no results; these lie in what the caller gave to be filled.
bool KeepsResults(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "c10d::gather_",
      "c10d::alltoall_base_",
      "c10d::allgather_coalesced_",
      "c10d::allgather_into_tensor_coalesced_",
      "c10d::reduce_scatter_tensor_coalesced_",
  };
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool HandsOut(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "c10d::allgather_", "c10d::_allgather_base_",      "c10d::reduce_scatter_",
      "c10d::scatter_",   "c10d::_reduce_scatter_base_", "c10d::alltoall_",
  };
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

uint32_t OpFamiliesOf(std::string_view name) noexcept {
  if (HandsOut(name)) return kCommunicates | kHandsOut;
  if (KeepsResults(name)) return kCommunicates | kHandsOut | kKeepsResults;
  if (name.starts_with("c10d::") || name.starts_with("_c10d_functional::")) return kCommunicates;
  for (const Rule& rule : kExceptions) {
    if (rule.name == name) return rule.families;
  }
  for (const Rule& rule : kRules) {
    if (Matches(rule.name, name)) return rule.families;
  }
  return 0;
}

bool MayTakeNumberAsTensor(std::string_view name) noexcept {
  constexpr std::string_view kNames[] = {"aten::add",    "aten::sub",         "aten::subtract",
                                         "aten::mul",    "aten::multiply",    "aten::div",
                                         "aten::divide", "aten::true_divide", "aten::floor_divide"};
  if (name.ends_with('_')) name.remove_suffix(1);
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace nanwatch
