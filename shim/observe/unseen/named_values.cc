// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/named_values.h"

#include "shim/check/scan.h"
#include "shim/classify/recent_values.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/external_values.h"

namespace nanwatch {
namespace {

void Count(ThreadState* thread, const NamedReading& reading) {
  ++thread->counters.tensors_checked;
  thread->counters.bytes_checked += reading.bytes();
}

}  // namespace

// True if the value came in from outside, or is a NaN that was asked for by name: of a parameter or
// buffer, the name is then the better answer, also when ops carried the value there (`weight[0] =
// nan` copies a tensor of one element; a checkpoint of -Inf is copied). (A constant -Inf is a mask
// and stays one, also one that Python wrote into a single element: `bias[3] = -inf`.)
bool NamedValues::WasLetIn(const PlainTensor& plain, ValueRef value) noexcept {
  RecentValues::Kept made;
  if (!uses_.recent.Look(value, &made)) return true;
  if (!uses_.recent.WasGiven(value, /*external_counts=*/true)) return false;
  const bool is_constant = uses_.recent.WasGiven(value, /*external_counts=*/false) ||
                           (made.of_one_number && plain.view.numel > 1);
  return !is_constant || NonFiniteKinds(plain.view) != wire::kHasNegInf;
}

// A parameter or buffer that has gone bad while ops went unchecked.
UnobservedWriter NamedValues::WrittenUnseen(const NamedTensor& named,
                                            const NamedReading& reading) noexcept {
  UnobservedWriter writer{};
  writer.op = kModuleCall;
  writer.node = "";
  writer.layer = named.layer;
  writer.phase = wire::Phase::kForward;
  writer.finding_class = wire::FindingClass::kExternal;
  if (uses_.level.was_off_to_measure()) {
    writer.flags = wire::ValueRecord::kUnseenMeasuring;
  } else if (uses_.level.was_lower() || uses_.level.came_late()) {
    writer.flags = wire::ValueRecord::kUnseenLevel;
  } else {
    writer.flags = wire::ValueRecord::kUnseenWriter;
  }
  if (named.kind != NamedTensorKind::kParameter) writer.flags |= wire::ValueRecord::kWroteBuffer;
  writer.Add(uses_.external.SourceOf(named, reading), {});
  writer.named = &named;
  writer.target = TargetOf(named);
  return writer;
}

void NamedValues::ReportEntry(const PlainTensor& plain, wire::Target target,
                              uint32_t name) noexcept {
  wire::Source known{};
  ValueRef value;
  using Writer = ExternalValues::Writer;
  const bool is_data = target == wire::Target::kInputData;
  if (!uses_.known_bad.SourceOf(plain, &known, &value)) {
    return uses_.external.Remember(plain, target, name,
                                   is_data ? Writer::kMayBeUnseen : Writer::kKnown);
  }
  // Of a parameter or buffer, an op that made the values says more than the tensor's name; one that
  // only let them in says less.
  if (!is_data && WasLetIn(plain, value)) {
    uses_.external.Remember(plain, target, name, Writer::kKnown);
  }
}

bool NamedValues::AreAllFinite(ThreadState* thread) noexcept try {
  const PythonNames& names = uses_.names;
  bool finite = true;
  names.ForEach([&](const NamedTensor& named) {
    if (!finite) return;
    const NamedReading reading(names, named);
    if (!reading) return;
    Count(thread, reading);
    finite = !reading.IsBad();
  });
  return finite;
} catch (...) {
  return false;
}

void NamedValues::RememberFinite(ThreadState* thread) noexcept try {
  const PythonNames& names = uses_.names;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!before_.empty()) return;
  names.ForEach([&](const NamedTensor& named) {
    const NamedReading reading(names, named);
    if (!reading) return;
    Count(thread, reading);
    if (named.index >= before_.size()) before_.resize(named.index + 1, Before::kUnknown);
    before_[named.index] = reading.IsBad() ? Before::kBad : Before::kFinite;
  });
} catch (...) {
}

bool NamedValues::ReadAll(ThreadState* thread) noexcept {
  return Read(thread, [](const NamedTensor&) { return Before::kFinite; });
}

void NamedValues::ReadAtEnd(ThreadState* thread) noexcept {
  (void)Read(thread, [](const NamedTensor& named) {
    // A buffer may have slots that are NaN until they are filled.
    return named.kind == NamedTensorKind::kParameter ? Before::kFinite : Before::kUnknown;
  });
}

bool NamedValues::ReadRemembered(ThreadState* thread) noexcept {
  return Read(thread, [this](const NamedTensor& named) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return named.index < before_.size() ? before_[named.index] : Before::kUnknown;
  });
}

template <class Fn>
bool NamedValues::Read(ThreadState* thread, Fn&& before) noexcept try {
  const PythonNames& names = uses_.names;
  bool all_good = true;
  bool any = false;
  names.ForEach([&](const NamedTensor& named) {
    const NamedReading reading(names, named);
    if (!reading) {
      all_good = all_good && !reading.OnGpu();
      return;
    }
    any = any || named.kind == NamedTensorKind::kParameter;
    Count(thread, reading);
    if (!reading.IsBad()) return;
    // A mask may be filled at any time.
    const bool is_buffer = named.kind != NamedTensorKind::kParameter;
    if (is_buffer && NonFiniteKinds(reading.tensor().view) == wire::kHasNegInf) return;
    const Before was = before(named);
    if (was == Before::kBad) return;
    all_good = false;
    if (was == Before::kUnknown) return;
    wire::Source known{};
    ValueRef value;
    if (uses_.known_bad.SourceOf(reading.tensor(), &known, &value)) return;
    uses_.writes.Record(thread, reading.tensor(), WrittenUnseen(named, reading));
  });
  return all_good && any;
} catch (...) {
  return false;
}

}  // namespace nanwatch
