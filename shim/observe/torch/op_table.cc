// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/op_table.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>

namespace nanwatch {
namespace {

// The address of no schema, so that no lookup finds it, not even that of a range, which has none.
const auto* const kNotQuick = reinterpret_cast<const c10::FunctionSchema*>(1);

bool HoldsTensor(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return true;
    case c10::TypeKind::ListType:
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::TupleType:
      for (const auto& inner : type.containedTypes()) {
        if (HoldsTensor(*inner)) return true;
      }
      return false;
    default:
      return false;
  }
}

void ReadReturns(const c10::FunctionSchema& schema, OpTraits* traits, bool* any_tensor) {
  for (const auto& returned : schema.returns()) {
    if (HoldsTensor(*returned.type())) *any_tensor = true;
    if (returned.alias_info() != nullptr && !returned.alias_info()->isWrite()) {
      traits->is_view = true;
    }
  }
}

void ReadArguments(const c10::FunctionSchema& schema, OpTraits* traits) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size() && i < 64; ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    const uint64_t bit = uint64_t{1} << i;
    const bool write_only =
        arguments[i].kwarg_only() || (i == 0 && (traits->families & kOverwrites));
    (write_only ? traits->overwrites : traits->updates) |= bit;
    traits->in_place = true;
  }
}

void FindUndeclaredWrites(const c10::FunctionSchema& schema, OpTraits* traits) {
  if ((traits->families & kBatchNorm) == 0) return;
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size() && i < 64; ++i) {
    if (arguments[i].name().starts_with("running_")) traits->rewrites |= uint64_t{1} << i;
  }
}

bool IsNumber(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
      return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return IsNumber(*type.containedTypes()[0]);
    default:
      return false;
  }
}

// Nobody computes the number that keeps a division away from zero, or that corrects a variance, and
// a probability is refused unless it is one.
bool IsSetting(std::string_view argument) {
  for (const std::string_view name :
       {"eps", "epsilon", "momentum", "exponential_average_factor", "correction", "dropout_p"}) {
    if (argument == name) return true;
  }
  return false;
}

void FindNumber(const c10::FunctionSchema& schema, OpTraits* traits) {
  traits->takes_number_as_tensor = MayTakeNumberAsTensor(schema.name());
  for (const c10::Argument& argument : schema.arguments()) {
    traits->takes_number |= IsNumber(*argument.type()) && !IsSetting(argument.name());
  }
}

// aten::to and others that hand the argument on to what they call are left out: it is told there.
void FindNonBlocking(const c10::FunctionSchema& schema, OpTraits* traits) {
  if (traits->transparent && !traits->writes_unseen) return;
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != "non_blocking") continue;
    traits->families |= kMayNotWait;
    traits->non_blocking = static_cast<uint16_t>(i);
  }
}

// An op whose kernel is a composition of others computes nothing itself. Ops outside ATen may be
// implemented in Python by whoever wrote them: what they call is looked at as well.
bool IsComposition(const c10::FunctionSchema& schema, std::string_view name) {
  if (!name.starts_with("aten::")) return true;
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  return op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

// The lists of ops differ: log, pow and sum are cast on a GPU alone.
uint8_t AutocastKernels(const c10::FunctionSchema& schema) {
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  if (!op.has_value()) return 0;
  const auto has = [&op](c10::DispatchKey key, AutocastsOn bit) {
    return static_cast<uint8_t>(op->hasKernelForDispatchKey(key) ? bit : 0);
  };
  return has(c10::DispatchKey::AutocastCPU, kAutocastsOnCpu) |
         has(c10::DispatchKey::AutocastCUDA, kAutocastsOnCuda);
}

void Describe(const c10::FunctionSchema& schema, OpTraits* traits) {
  traits->schema = &schema;
  traits->name = schema.name().c_str();
  traits->families = OpFamiliesOf(schema.name());
  // scatter(..., reduce="add") computes.
  if (schema.overload_name().find("reduce") != std::string::npos) {
    traits->families &= ~uint32_t{kMasks | kMoves};
  }
  traits->arguments = static_cast<uint16_t>(schema.arguments().size());
  traits->returns = static_cast<uint16_t>(schema.returns().size());
  bool returns_tensor = false;
  ReadReturns(schema, traits, &returns_tensor);
  ReadArguments(schema, traits);
  FindUndeclaredWrites(schema, traits);
  FindNumber(schema, traits);
  traits->writes_unseen = traits->in_place && !returns_tensor;
  traits->transparent = IsComposition(schema, schema.name()) || traits->writes_unseen;
  FindNonBlocking(schema, traits);
  traits->autocasts = AutocastKernels(schema);
  // Before these what was recorded on a GPU is checked.
  const bool takes_thought =
      traits->writes_unseen || (traits->families & (kReadsScalar | kCommunicates | kHandsOut)) != 0;
  traits->quick_schema = takes_thought ? kNotQuick : &schema;
  const bool entry = (traits->families & kEnters) != 0;
  traits->skip = (!returns_tensor && (traits->families & kReadsScalar) == 0) ||
                 (traits->is_view && !entry) ||
                 (traits->families & (kAllocates | kCreates | kCommunicates)) != 0;
  traits->ends_quietly =
      traits->skip && !traits->writes_unseen && (traits->families & kNeedsEnd) == 0;
}

}  // namespace

OpTable::OpTable() noexcept : entries_{}, used_{0}, range_{} {
  range_.quick_schema = kNotQuick;
  range_.name = "";
  range_.skip = true;
  range_.transparent = true;
}

const OpTraits* OpTable::Add(const c10::FunctionSchema* schema, uint32_t at) noexcept {
  // A table that is nearly full means something we do not understand; treat further ops as ranges.
  if (used_.load(std::memory_order_relaxed) > kCapacity * 3 / 4) return &range_;
  auto* traits = new (std::nothrow) OpTraits{};
  if (traits == nullptr) return &range_;
  try {
    Describe(*schema, traits);
  } catch (...) {
    traits->schema = schema;
    traits->quick_schema = kNotQuick;
    traits->skip = true;  // an op that cannot be described is left alone
    traits->transparent = true;
  }
  for (;; at = (at + 1) & (kCapacity - 1)) {
    const OpTraits* expected = nullptr;
    if (entries_[at].compare_exchange_strong(expected, traits, std::memory_order_acq_rel)) {
      used_.fetch_add(1, std::memory_order_relaxed);
      return traits;
    }
    if (expected->schema == schema) {
      delete traits;
      return expected;
    }
  }
}

}  // namespace nanwatch
