// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/canary_reads.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <exception>

#include "shim/check/scan.h"
#include "shim/observe/finding/finding_record.h"
#include "shim/observe/finding/scalar_reads.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/observer.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch::canary {
namespace {

using wire::ValueRecord;

// Ops are not watched here, and what is found is reported.
bool Reads(const Observer& observer) {
  return observer.level.watched() == wire::Level::kCanary && !observer.Ignores();
}

// NaN or +Inf, and not a mask.
bool IsFault(uint8_t kinds) { return (kinds & ~wire::kHasNegInf) != 0; }

void Count(ThreadState* thread, const PlainTensor& plain) {
  ++thread->counters.tensors_checked;
  thread->counters.bytes_checked += BytesOf(plain.view);
}

// A bad value that was met in a call of Python's; what is known of it, if it is known already.
ValueRef OnBadValue(const Here& here, const at::TensorBase& tensor, const PlainTensor& plain,
                    const char* call, uint8_t kinds, wire::Source* source) {
  ValueRef value;
  if (SourceOf(*here.observer, plain, source, &value)) return value;
  // What the model returned bad last, or a buffer of it, explains what is met after.
  UnobservedWriter writer = UnseenAt(call, CurrentLayer(), wire::Phase::kForward, kinds,
                                     here.observer->steps.BadResult());
  if (tensor.requires_grad()) writer.flags |= ValueRecord::kNeedsGradient;
  // Only what is read in a validation was made in one.
  writer.made_with_gradients = tensor.requires_grad() || here.thread->root_with_gradients;
  value = OnUnobservedWrite(*here.observer, here.thread, plain, writer);
  source->kind = static_cast<uint8_t>(wire::SourceKind::kValue);
  source->value = value.ticket;
  source->input = 0;
  return value;
}

bool DescribeOnCpu(const at::TensorBase& tensor, PlainTensor* plain) {
  wire::Unchecked reason;
  return DescribeTensor(tensor, plain, &reason) == Readable::kYes && plain->gpu < 0;
}

}  // namespace

void OnNumberRead(const at::TensorBase& tensor, double number) noexcept try {
  Here here;
  PlainTensor plain;
  if (!FindHere(&here) || !Reads(*here.observer) || !DescribeOnCpu(tensor, &plain)) return;
  BusyScope busy(here.thread);
  Count(here.thread, plain);
  const uint8_t kinds = NonFiniteKinds(plain.view);
  Emitter* emitter = here.observer->segment.Ensure();
  if (!IsFault(kinds) || emitter == nullptr) return;
  wire::Source source{};
  const ValueRef value = OnBadValue(here, tensor, plain, kNumberRead, kinds, &source);
  if (value.ticket == 0) return;
  source.kinds = kinds;
  EmitScalarReadAt(*here.observer, here.thread, InternText(*emitter, kNumberRead), *emitter, source,
                   value, number);
} catch (...) {
}

// It has been read in full by the call itself.
void OnAsked(const at::TensorBase& tensor) noexcept try {
  Here here;
  PlainTensor plain;
  if (!FindHere(&here) || !Reads(*here.observer) || !DescribeOnCpu(tensor, &plain)) return;
  BusyScope busy(here.thread);
  Count(here.thread, plain);
  if (!HasNonFinite(plain.view)) return;
  const uint8_t kinds = NonFiniteKinds(plain.view);
  wire::Source source{};
  if (IsFault(kinds)) (void)OnBadValue(here, tensor, plain, kFiniteAsked, kinds, &source);
} catch (...) {
}

void OnResults(Observer& observer, ThreadState* thread, const at::TensorBase* const* tensors,
               size_t count) noexcept try {
  if (!Reads(observer)) return;
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
    const ValueRef value =
        OnBadValue({&observer, thread}, *tensors[i], plain, kModuleCall, kinds, &source);
    if (!any) observer.steps.RecordBadResult(value);
    any = true;
  }
  if (!any) observer.steps.RecordBadResult({});
} catch (...) {
}

Buffers::Seen& Buffers::Of(const NamedTensor& named) {
  if (named.index >= seen_.size()) seen_.resize(named.index + 1, Seen::kNever);
  return seen_[named.index];
}

void Buffers::OnNewRoot(Observer& observer, const Layer* root) noexcept try {
  const PythonNames& names = observer.python->names();
  const std::lock_guard<std::mutex> lock(mutex_);
  names.ForEachInRoot(root, [&](const NamedTensor& named) {
    if (named.kind != NamedTensorKind::kBuffer) return;
    const NamedReading reading(names, named);
    if (reading) Of(named) = reading.IsBad() ? Seen::kBad : Seen::kFinite;
  });
} catch (...) {
}

void Buffers::OnStepEnd(Observer& observer, ThreadState* thread) noexcept try {
  const PythonNames& names = observer.python->names();
  if (!names.HasBuffers() || !Reads(observer)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  names.ForEachBuffer([&](const NamedTensor& named) {
    const NamedReading reading(names, named);
    if (!reading) return;
    Count(thread, reading.tensor());
    Seen& seen = Of(named);
    const Seen before = seen;
    seen = reading.IsBad() ? Seen::kBad : Seen::kFinite;
    if (seen != Seen::kBad || before != Seen::kFinite) return;
    const uint8_t kinds = NonFiniteKinds(reading.tensor().view);
    if (!IsFault(kinds)) return;
    UnobservedWriter writer =
        UnseenAt(kModuleCall, named.layer, wire::Phase::kForward, kinds, ValueRef{});
    writer.made_with_gradients = true;
    // Inf alone is how a buffer of extremes begins.
    if ((kinds & wire::kHasNan) != 0) {
      writer.named = &named;
      writer.target = wire::Target::kBuffer;
    }
    observer.steps.RecordBadResult(OnUnobservedWrite(observer, thread, reading.tensor(), writer));
  });
} catch (...) {
}

}  // namespace nanwatch::canary
