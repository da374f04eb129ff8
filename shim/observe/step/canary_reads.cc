// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/canary_reads.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <cstring>
#include <exception>
#include <utility>

#include "shim/check/scan.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/finding/scalar_reads.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch::canary {
namespace {

using wire::ValueRecord;

// NaN or +Inf, and not a mask.
bool IsFault(uint8_t kinds) { return (kinds & ~wire::kHasNegInf) != 0; }

void Count(ThreadState* thread, const PlainTensor& plain) {
  ++thread->counters.tensors_checked;
  thread->counters.bytes_checked += BytesOf(plain.view);
}

bool DescribeOnCpu(const at::TensorBase& tensor, PlainTensor* plain) {
  wire::Unchecked reason;
  return DescribeTensor(tensor, plain, &reason) == Readable::kYes && plain->gpu < 0;
}

}  // namespace

bool ReadsNow(const LevelState& level, const Poison& poison) noexcept {
  return level.watched() == wire::Level::kCanary && !poison.Ignores();
}

// A bad value that was met in a call of Python's.
struct Reads::Met {
  const at::TensorBase& tensor;
  const PlainTensor& plain;
  const char* call;
  uint8_t kinds;
};

// What is known of it, if it is known already; else its record.
ValueRef Reads::OnBadValue(ThreadState* thread, const Met& met, wire::Source* source) noexcept {
  ValueRef value;
  if (uses_.known_bad.SourceOf(met.plain, source, &value)) return value;
  // What the model returned bad last, or a buffer of it, explains what is met after.
  UnobservedWriter writer = UnseenAt(met.call, CurrentLayer(), wire::Phase::kForward, met.kinds,
                                     uses_.losses.BadResult());
  const bool requires_grad = met.tensor.requires_grad();
  if (requires_grad) writer.flags |= ValueRecord::kNeedsGradient;
  // Only what is read in a validation was made in one.
  writer.made_with_gradients = requires_grad || thread->root_with_gradients;
  value = uses_.writes.Record(thread, met.plain, writer);
  source->kind = static_cast<uint8_t>(wire::SourceKind::kValue);
  source->value = value.ticket;
  source->input = 0;
  return value;
}

void Reads::OnNumberRead(ThreadState* thread, const at::TensorBase& tensor, double number) noexcept
    try {
  PlainTensor plain;
  if (!ReadsNow(uses_.level, uses_.poison) || !DescribeOnCpu(tensor, &plain)) return;
  BusyScope busy(thread);
  Count(thread, plain);
  const uint8_t kinds = NonFiniteKinds(plain.view);
  Emitter* emitter = uses_.segment.Ensure();
  if (!IsFault(kinds) || emitter == nullptr) return;
  wire::Source source{};
  const ValueRef value = OnBadValue(thread, {tensor, plain, kNumberRead, kinds}, &source);
  if (value.ticket == 0) return;
  source.kinds = kinds;
  uses_.scalar_reads.Emit(thread, *emitter,
                          {InternText(*emitter, kNumberRead), source, value, number});
} catch (...) {
}

// It has been read in full by the call itself.
void Reads::OnAsked(ThreadState* thread, const at::TensorBase& tensor) noexcept try {
  PlainTensor plain;
  if (!ReadsNow(uses_.level, uses_.poison) || !DescribeOnCpu(tensor, &plain)) return;
  BusyScope busy(thread);
  Count(thread, plain);
  if (!HasNonFinite(plain.view)) return;
  const uint8_t kinds = NonFiniteKinds(plain.view);
  Emitter* emitter = uses_.segment.Ensure();
  if (!IsFault(kinds) || emitter == nullptr) return;
  wire::Source source{};
  const ValueRef value = OnBadValue(thread, {tensor, plain, kFiniteAsked, kinds}, &source);
  if (value.ticket == 0) return;
  source.kinds = kinds;
  const double number = (kinds & wire::kHasNan) != 0 ? std::nan("") : HUGE_VAL;
  uses_.scalar_reads.Emit(thread, *emitter,
                          {.op = InternText(*emitter, kFiniteAsked),
                           .source = source,
                           .value = value,
                           .number = number,
                           .asked_only = true});
} catch (...) {
}

void Reads::OnResults(ThreadState* thread, const at::TensorBase* const* tensors,
                      size_t count) noexcept try {
  if (!ReadsNow(uses_.level, uses_.poison)) return;
  BusyScope busy(thread);
  uint64_t bytes = 0;
  bool any = false;
  for (size_t i = 0; i < count; ++i) {
    PlainTensor plain;
    if (!tensors[i]->requires_grad() || !DescribeOnCpu(*tensors[i], &plain)) continue;
    bytes += BytesOf(plain.view);
    if (bytes > kResultBytesMax) break;
    Count(thread, plain);
    if (!HasNonFinite(plain.view)) continue;
    const uint8_t kinds = NonFiniteKinds(plain.view);
    if (!IsFault(kinds)) continue;
    wire::Source source{};
    const ValueRef value = OnBadValue(thread, {*tensors[i], plain, kModuleCall, kinds}, &source);
    if (!any) uses_.losses.RecordBadResult(value);
    any = true;
  }
  if (!any) uses_.losses.RecordBadResult({});
} catch (...) {
}

bool Buffers::IsRuined(const NamedTensor& named, uint8_t kinds) noexcept {
  return (kinds & wire::kHasNan) != 0 || std::strstr(named.name, "running_") != nullptr;
}

Buffers::Seen& Buffers::Of(const NamedTensor& named) {
  if (named.index >= seen_.size()) seen_.resize(named.index + 1, Seen::kNever);
  return seen_[named.index];
}

bool Buffers::HasTurnedBad(const NamedTensor& named, const NamedReading& reading) {
  const Seen now = reading.IsBad() ? Seen::kBad : Seen::kFinite;
  return std::exchange(Of(named), now) == Seen::kFinite && now == Seen::kBad;
}

void Buffers::OnNewRoot(const Layer* root) noexcept try {
  const PythonNames& names = uses_.names;
  const std::lock_guard<std::mutex> lock(mutex_);
  names.ForEachInRoot(root, [&](const NamedTensor& named) {
    if (named.kind != NamedTensorKind::kBuffer) return;
    const NamedReading reading(names, named);
    if (reading) (void)HasTurnedBad(named, reading);
  });
} catch (...) {
}

std::vector<const NamedTensor*> Buffers::TurnedBad(ThreadState* thread,
                                                   const Layer* module) noexcept try {
  const PythonNames& names = uses_.names;
  std::vector<const NamedTensor*> bad;
  if (!names.HasBuffers()) return bad;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    names.ForEachInRoot(module->root_layer, [&](const NamedTensor& named) {
      if (named.kind != NamedTensorKind::kBuffer || !IsWithin(named.layer, module)) return;
      const NamedReading reading(names, named);
      if (reading && HasTurnedBad(named, reading)) bad.push_back(&named);
    });
  }
  // An op of level sampled may have left it so.
  if (!bad.empty() && uses_.level.watched() == wire::Level::kSampled) uses_.sink.OnBadRead(thread);
  return bad;
} catch (...) {
  return {};
}

void Buffers::OnStepEnd(ThreadState* thread) noexcept try {
  const PythonNames& names = uses_.names;
  const bool samples = uses_.level.watched() == wire::Level::kSampled && !uses_.poison.Ignores();
  if (!names.HasBuffers() || !(samples || ReadsNow(uses_.level, uses_.poison))) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  names.ForEachBuffer([&](const NamedTensor& named) {
    const NamedReading reading(names, named);
    if (!reading) return;
    Count(thread, reading.tensor());
    if (!HasTurnedBad(named, reading)) return;
    const uint8_t kinds = NonFiniteKinds(reading.tensor().view);
    if (!IsFault(kinds)) return;
    if (samples) uses_.sink.OnBadRead(thread);
    BadEntry known;
    if (uses_.known_bad.Find(reading.tensor(), &known)) return;
    UnobservedWriter writer =
        UnseenAt(kModuleCall, named.layer, wire::Phase::kForward, kinds, ValueRef{});
    writer.made_with_gradients = true;
    if (IsRuined(named, kinds)) {
      writer.named = &named;
      writer.target = wire::Target::kBuffer;
    }
    uses_.losses.RecordBadResult(uses_.writes.Record(thread, reading.tensor(), writer));
  });
} catch (...) {
}

}  // namespace nanwatch::canary
