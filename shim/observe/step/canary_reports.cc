// SPDX-License-Identifier: Apache-2.0
// What is recorded of bad gradients, parameters and states that no op told of.
#include "shim/check/scan.h"
#include "shim/classify/recent_values.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/collective_results.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch::canary {
namespace {

// An op is named for what nobody saw, so that the reader knows where it was met.
constexpr char kAccumulate[] = "torch::autograd::AccumulateGrad";

// Met where a step begins, and written by no op that told of it.
UnobservedWriter FromOutside(const NamedTensor* named, uint8_t kinds, wire::Target target) {
  UnobservedWriter writer = UnseenAt(kOptimizerStep, named != nullptr ? named->layer : nullptr,
                                     wire::Phase::kOther, kinds, ValueRef{});
  writer.source_count = 0;
  writer.finding_class = wire::FindingClass::kExternal;
  writer.flags |= wire::ValueRecord::kUnseenInputs;
  writer.named = named;
  writer.target = target;
  return writer;
}

}  // namespace

// Steps went by with the checks off, and it may have been made in them.
uint32_t Reports::UncheckedBefore() const noexcept {
  return uses_.sink.IsUnread() ? uint32_t{wire::ValueRecord::kUnseenMeasuring} : 0u;
}

ValueRef Reports::OnBadGradient(ThreadState* thread, const PlainTensor& gradient,
                                const NamedTensor* named, ValueRef from) noexcept {
  wire::Source known{};
  ValueRef value;
  if (uses_.known_bad.SourceOf(gradient, &known, &value)) return value;
  UnobservedWriter writer = UnseenAt(kAccumulate, named != nullptr ? named->layer : nullptr,
                                     wire::Phase::kBackward, NonFiniteKinds(gradient.view), from);
  writer.flags |= UncheckedBefore();
  return uses_.writes.Record(thread, gradient, writer);
}

// What a collective has brought is asked for first: nobody announces when it is there.
bool Reports::IsKnown(ThreadState* thread, const PlainTensor& tensor) noexcept {
  BadEntry known;
  if (uses_.known_bad.Find(tensor, &known)) return true;
  uses_.collective_results.AwaitHandedOut();
  uses_.collective_results.CheckAll(thread, nullptr, 0);
  return uses_.known_bad.Find(tensor, &known);
}

ValueRef Reports::OnGradientFromOutside(ThreadState* thread, const PlainTensor& gradient,
                                        const NamedTensor* named) noexcept {
  if (IsKnown(thread, gradient)) return {};
  UnobservedWriter writer =
      FromOutside(named, NonFiniteKinds(gradient.view), wire::Target::kGradient);
  wire::Source received{};
  ValueRef value;
  if (uses_.collective_results.FindReceived(thread, nullptr, 0, &received, &value)) {
    writer.finding_class = wire::FindingClass::kPropagate;
    writer.named = nullptr;
    writer.target = wire::Target::kNone;
    writer.Add(received, value);
  }
  return uses_.writes.Record(thread, gradient, writer);
}

void Reports::OnParameterFromOutside(ThreadState* thread, const PlainTensor& parameter,
                                     const NamedTensor* named) noexcept {
  const uint8_t kinds = NonFiniteKinds(parameter.view);
  // A mask is told where it does harm.
  if (kinds == wire::kHasNegInf || IsKnown(thread, parameter)) return;
  (void)uses_.writes.Record(thread, parameter, FromOutside(named, kinds, wire::Target::kParameter));
}

void Reports::Remember(const PlainTensor& gradient, ValueRef from) noexcept {
  BadEntry known;
  RecentValues::Kept kept;
  if (uses_.known_bad.Find(gradient, &known) || !uses_.recent.Look(from, &kept)) return;
  const BadOutput output{gradient, 0, false};
  uses_.known_bad.Remember(&output, 1,
                           {.value = from, .site = kept.record.site, .written = Written{}});
}

void Reports::OnBadWritten(ThreadState* thread, const PlainTensor& tensor, const NamedTensor* named,
                           bool is_state, const char* range_name,
                           const Gradients& gradients) noexcept {
  BadEntry known;
  if (uses_.known_bad.Find(tensor, &known)) return;
  UnobservedWriter writer =
      UnseenAt(range_name, named != nullptr ? named->layer : nullptr, wire::Phase::kOptimizer,
               NonFiniteKinds(tensor.view), gradients.first_bad_value);
  writer.flags |= UncheckedBefore();
  // Gradients and parameters were finite: the update made it. At canary the parameters were read
  // at the end of the update before, and the job may have written there since.
  if (gradients.bad == 0 && gradients.known && !gradients.some_unseen && !gradients.waits_for_gpu) {
    writer.source_count = 0;
    writer.finding_class = wire::FindingClass::kProduce;
    if (!WatchesEveryOp(uses_.level.watched())) writer.flags |= wire::ValueRecord::kUnseenInputs;
  }
  if (!is_state) {
    writer.named = named;
    writer.target = wire::Target::kParameter;
  }
  uses_.writes.Record(thread, tensor, writer);
}

}  // namespace nanwatch::canary
