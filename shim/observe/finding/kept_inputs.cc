// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/kept_inputs.h"

#include <torch/csrc/autograd/generated/Functions.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "shim/check/scan.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/torch/grad_fn.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using namespace torch::autograd::generated;

constexpr int kArgumentsMax = 4;

// One kind of node: which arguments of its op it keeps. They have the names of the op's schema.
struct Keeper {
  const std::type_info* type;
  const char* arguments[kArgumentsMax];
  at::Tensor (*read)(const Node& node, int which);
};

// A template for the sake of `requires`: torch 2.6 has no way to look that does not unpack.
template <class Saved>
at::Tensor RawTensorOf(const Saved& saved) {
  if constexpr (requires { saved.get_raw_data(); }) {
    if (saved.has_hooks()) return {};
    return saved.get_raw_data().value_or(at::Tensor());
  }
  return {};
}

template <class Kind, SavedVariable Kind::*... kFields>
at::Tensor Read(const Node& node, int which) {
  static_assert(sizeof...(kFields) <= kArgumentsMax);
  static constexpr SavedVariable Kind::*kAll[] = {kFields...};
  return RawTensorOf(static_cast<const Kind&>(node).*kAll[which]);
}

#define NANWATCH_KEEPS(Kind, A) \
  { &typeid(Kind), {#A}, &Read<Kind, &Kind::A##_> }
#define NANWATCH_KEEPS_TWO(Kind, A, B) \
  { &typeid(Kind), {#A, #B}, &Read<Kind, &Kind::A##_, &Kind::B##_> }

// Those whose op can make something bad of finite inputs, or is often the first to compute with a
// batch. Not batch norm's running statistics, which the op itself has written over.
const Keeper kKeepers[] = {
    NANWATCH_KEEPS(AcosBackward0, self),
    NANWATCH_KEEPS(AcoshBackward0, self),
    NANWATCH_KEEPS_TWO(AddbmmBackward0, batch1, batch2),
    NANWATCH_KEEPS_TWO(AddcdivBackward0, tensor1, tensor2),
    NANWATCH_KEEPS_TWO(AddcmulBackward0, tensor1, tensor2),
    NANWATCH_KEEPS_TWO(AddmmBackward0, mat1, mat2),
    NANWATCH_KEEPS_TWO(AddmvBackward0, mat, vec),
    NANWATCH_KEEPS(AsinBackward0, self),
    NANWATCH_KEEPS_TWO(Atan2Backward0, self, other),
    NANWATCH_KEEPS(AtanhBackward0, self),
    NANWATCH_KEEPS_TWO(BaddbmmBackward0, batch1, batch2),
    NANWATCH_KEEPS_TWO(BinaryCrossEntropyBackward0, self, target),
    NANWATCH_KEEPS_TWO(BinaryCrossEntropyWithLogitsBackward0, self, target),
    NANWATCH_KEEPS_TWO(BmmBackward0, self, mat2),
    NANWATCH_KEEPS_TWO(ConvolutionBackward0, input, weight),
    NANWATCH_KEEPS(CoshBackward0, self),
    NANWATCH_KEEPS(CumprodBackward0, self),
    NANWATCH_KEEPS(DigammaBackward0, self),
    NANWATCH_KEEPS_TWO(DivBackward0, self, other),
    NANWATCH_KEEPS_TWO(DivBackward2, self, other),
    NANWATCH_KEEPS_TWO(DotBackward0, self, tensor),
    NANWATCH_KEEPS(ErfinvBackward0, self),
    NANWATCH_KEEPS_TWO(FmodBackward1, self, other),
    NANWATCH_KEEPS(GatherBackward0, self),
    NANWATCH_KEEPS(GeluBackward0, self),
    NANWATCH_KEEPS_TWO(HuberLossBackward0, self, target),
    NANWATCH_KEEPS_TWO(HypotBackward0, self, other),
    {&typeid(LerpBackward1),
     {"self", "end", "weight"},
     &Read<LerpBackward1, &LerpBackward1::self_, &LerpBackward1::end_, &LerpBackward1::weight_>},
    NANWATCH_KEEPS(LgammaBackward0, self),
    NANWATCH_KEEPS(LinalgVectorNormBackward0, self),
    NANWATCH_KEEPS(LogBackward0, self),
    NANWATCH_KEEPS(Log10Backward0, self),
    NANWATCH_KEEPS(Log1PBackward0, self),
    NANWATCH_KEEPS(Log2Backward0, self),
    NANWATCH_KEEPS(LogSigmoidBackward0, self),
    NANWATCH_KEEPS_TWO(LogaddexpBackward0, self, other),
    NANWATCH_KEEPS(LogcumsumexpBackward0, self),
    NANWATCH_KEEPS(LogitBackward0, self),
    NANWATCH_KEEPS(LogsumexpBackward0, self),
    NANWATCH_KEEPS_TWO(MmBackward0, self, mat2),
    NANWATCH_KEEPS_TWO(MseLossBackward0, self, target),
    NANWATCH_KEEPS_TWO(MulBackward0, self, other),
    NANWATCH_KEEPS_TWO(MvBackward0, self, vec),
    NANWATCH_KEEPS_TWO(NativeBatchNormBackward0, input, weight),
    NANWATCH_KEEPS_TWO(NativeGroupNormBackward0, input, weight),
    NANWATCH_KEEPS_TWO(NativeLayerNormBackward0, input, weight),
    NANWATCH_KEEPS_TWO(NllLossBackward0, self, weight),
    NANWATCH_KEEPS(NormBackward0, self),
    NANWATCH_KEEPS(NormBackward1, self),
    NANWATCH_KEEPS(NormBackward2, self),
    NANWATCH_KEEPS(NormBackward3, self),
    NANWATCH_KEEPS(PolygammaBackward0, self),
    NANWATCH_KEEPS(PowBackward0, self),
    NANWATCH_KEEPS_TWO(PowBackward1, self, exponent),
    NANWATCH_KEEPS(PowBackward2, exponent),
    NANWATCH_KEEPS(ProdBackward0, self),
    NANWATCH_KEEPS(ProdBackward1, self),
    NANWATCH_KEEPS_TWO(RemainderBackward1, self, other),
    {&typeid(ScaledDotProductFlashAttentionForCpuBackward0),
     {"query", "key", "value", "attn_mask"},
     &Read<ScaledDotProductFlashAttentionForCpuBackward0,
           &ScaledDotProductFlashAttentionForCpuBackward0::query_,
           &ScaledDotProductFlashAttentionForCpuBackward0::key_,
           &ScaledDotProductFlashAttentionForCpuBackward0::value_,
           &ScaledDotProductFlashAttentionForCpuBackward0::attn_mask_>},
    NANWATCH_KEEPS(SiluBackward0, self),
    NANWATCH_KEEPS(SinhBackward0, self),
    NANWATCH_KEEPS_TWO(SmoothL1LossBackward0, self, target),
    NANWATCH_KEEPS_TWO(SoftMarginLossBackward0, self, target),
    NANWATCH_KEEPS(SoftplusBackward0, self),
    NANWATCH_KEEPS(StdBackward0, self),
    NANWATCH_KEEPS(StdMeanBackward0, self),
    NANWATCH_KEEPS(VarBackward0, self),
    NANWATCH_KEEPS(VarMeanBackward0, self),
    NANWATCH_KEEPS_TWO(XlogyBackward0, self, other),
    NANWATCH_KEEPS(XlogyBackward1, other),
    NANWATCH_KEEPS(XlogyBackward2, self),
};

bool IsBad(const at::Scalar& number) {
  return number.isFloatingPoint() && !std::isfinite(number.toDouble());
}

// One kind of node that keeps the numbers its op was given.
struct NumberKeeper {
  const std::type_info* type;
  bool (*any_bad)(const Node& node);
};

template <class Kind, at::Scalar Kind::*... kNumbers>
bool AnyBad(const Node& node) {
  return (IsBad(static_cast<const Kind&>(node).*kNumbers) || ...);
}

#define NANWATCH_NUMBERS(Kind, ...) \
  { &typeid(Kind), &AnyBad<Kind, __VA_ARGS__> }

// Not those of which an infinite one has a meaning, as the order of a norm.
const NumberKeeper kNumberKeepers[] = {
    NANWATCH_NUMBERS(AddbmmBackward0, &AddbmmBackward0::alpha, &AddbmmBackward0::beta),
    NANWATCH_NUMBERS(AddcdivBackward0, &AddcdivBackward0::value),
    NANWATCH_NUMBERS(AddcmulBackward0, &AddcmulBackward0::value),
    NANWATCH_NUMBERS(AddmmBackward0, &AddmmBackward0::alpha, &AddmmBackward0::beta),
    NANWATCH_NUMBERS(AddmvBackward0, &AddmvBackward0::alpha, &AddmvBackward0::beta),
    NANWATCH_NUMBERS(BaddbmmBackward0, &BaddbmmBackward0::alpha, &BaddbmmBackward0::beta),
    NANWATCH_NUMBERS(PowBackward0, &PowBackward0::exponent),
    NANWATCH_NUMBERS(PowBackward2, &PowBackward2::self),
    NANWATCH_NUMBERS(SoftplusBackward0, &SoftplusBackward0::beta),
    NANWATCH_NUMBERS(XlogyBackward1, &XlogyBackward1::self),
    NANWATCH_NUMBERS(XlogyBackward2, &XlogyBackward2::other),
};

// How many tensors an op may be given; -1: any number.
int TensorsTaken(const c10::FunctionSchema& schema) {
  int tensors = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    const c10::TypePtr& type = argument.real_type();
    if (type->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      ++tensors;
    } else if (type->kind() == c10::TypeKind::ListType &&
               type->expectRef<c10::ListType>().getElementType()->isSubtypeOf(
                   *c10::OptionalType::ofTensor())) {
      return -1;
    }
  }
  return tensors;
}

// The node that the op of `frame` made; null: none, or it has been replaced by another one.
const Node* NodeOf(const Frame& frame, const BadOutput& output) {
  if (output.tensor.impl == nullptr) return nullptr;  // a buffer, known by its memory
  const Node* node = GradFnOf(*output.tensor.impl);
  const bool is_own =
      node != nullptr && node->sequence_nr() == static_cast<uint64_t>(frame.sequence);
  return is_own ? node : nullptr;
}

}  // namespace

void KeptInputs::Take(const Frame& frame, const BadOutput* outputs, int count) noexcept {
  // With inputs noted, what was written may be one of them, which need not be alive.
  if (frame.sequence < 0 || frame.op->schema == nullptr || frame.inputs_count != 0) return;
  const Node* node = nullptr;
  for (int i = 0; i < count && node == nullptr; ++i) node = NodeOf(frame, outputs[i]);
  if (node == nullptr) return;
  const auto* keeper =
      std::find_if(std::begin(kKeepers), std::end(kKeepers),
                   [node](const Keeper& candidate) { return *candidate.type == typeid(*node); });
  if (keeper == std::end(kKeepers)) return;
  const auto* numbers = std::find_if(
      std::begin(kNumberKeepers), std::end(kNumberKeepers),
      [node](const NumberKeeper& candidate) { return *candidate.type == typeid(*node); });
  if (numbers != std::end(kNumberKeepers)) {
    number_known_ = true;
    number_bad_ = numbers->any_bad(*node);
  }
  for (int i = 0; i < kArgumentsMax && keeper->arguments[i] != nullptr; ++i) {
    // Of what the op was about to write over, a copy was kept, that no one knows by its memory.
    const std::string_view argument = keeper->arguments[i];
    if (frame.op->in_place && argument == "self") continue;
    Add(frame, argument, keeper->read(*node, i));
  }
  complete_ = count_ == TensorsTaken(*frame.op->schema);
  // Where two tensors are kept, none stood for a number.
  number_known_ |= count_ > 1 && !frame.op->takes_number;
}

void KeptInputs::Add(const Frame& frame, std::string_view argument, at::Tensor tensor) noexcept {
  if (!tensor.defined()) return;
  const auto& arguments = frame.op->schema->arguments();
  const auto found = std::find_if(
      arguments.begin(), arguments.end(),
      [argument](const c10::Argument& candidate) { return candidate.name() == argument; });
  PlainTensor plain;
  wire::Unchecked reason;
  if (found == arguments.end() || ReadTensor(tensor, &plain, &reason) != Readable::kYes) return;
  const uint8_t kinds = NonFiniteKinds(plain.view);
  if (plain.impl->is_wrapped_number()) {
    number_known_ = true;
    number_bad_ |= kinds != 0;
    if (kinds != 0) return;
  }
  Kept& kept = kept_[count_++];
  kept.tensor = std::move(tensor);
  kept.plain = plain;
  kept.argument = static_cast<uint8_t>(std::min<ptrdiff_t>(found - arguments.begin(), 255));
  kept.kinds = kinds;
}

void KeptInputs::AddSources(SourceFinder& finder, ThreadState* thread, const OwnWrites& own,
                            Sources* sources) const noexcept {
  for (int i = 0; i < count_; ++i) {
    if (kept_[i].kinds == 0) continue;
    finder.AddBadInput(thread, kept_[i].plain, kept_[i].argument, kept_[i].kinds, own, sources);
  }
}

int KeptInputs::Fill(const FindingRecords& records, KnownBad& known_bad, const Frame& frame,
                     Emitter& emitter, wire::TensorStats* stats) const noexcept {
  int filled = 0;
  for (const bool want_bad : {true, false}) {
    for (int i = 0; i < count_; ++i) {
      const Kept& kept = kept_[i];
      if ((kept.kinds != 0) != want_bad) continue;
      wire::TensorStats* one = &stats[filled++];
      FillStats(kept.plain.view, kept.argument, one);
      records.NameInput(frame, emitter, kept.argument, kept.plain.impl, kept.plain.storage, one);
      wire::Source source{};
      ValueRef value;
      if (known_bad.SourceOf(kept.plain, &source, &value)) one->value = value.ticket;
    }
  }
  return filled;
}

}  // namespace nanwatch
