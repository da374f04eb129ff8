#include "shim/observe/entry_points.h"

#include <c10/core/GradMode.h>

#include "shim/check/scan.h"
#include "shim/observe/findings.h"
#include "shim/observe/named_reading.h"
#include "shim/observe/observer.h"
#include "shim/observe/torch_tensor.h"

namespace nanwatch::entry_points {
namespace {

// True if the value came in from outside, or is a NaN that was asked for by name: of a parameter or
// buffer, the name is then the better answer, also when ops carried the value there (`weight[0] =
// nan` copies a tensor of one element). (A constant -Inf is a mask and stays one.)
bool WasLetIn(Observer& observer, const PlainTensor& plain, ValueRef value) {
  RecentValues::Kept made;
  if (!observer.recent_values.Look(value, &made)) return true;
  if (!observer.recent_values.WasGiven(value, /*external_counts=*/true)) return false;
  return made.finding_class == wire::FindingClass::kExternal ||
         NonFiniteKinds(plain.view) != wire::kHasNegInf;
}

void NoteNamed(Observer& observer, const NamedTensor& named) {
  const NamedReading reading(observer.python->names(), named);
  if (!reading.IsBad()) return;
  const PlainTensor& plain = reading.tensor();
  wire::Source known{};
  ValueRef value;
  // An op that made the values says more than the tensor's name; one that only let them in says
  // less.
  if (SourceOf(observer, plain, &known, &value) && !WasLetIn(observer, plain, value)) return;
  NoteExternal(observer, plain, TargetOf(named), named.name);
}

}  // namespace

PythonDoorCallbacks::Wanted OnRootCall() noexcept {
  Here here;
  if (Observer::Get() == nullptr || !FindHere(&here)) return {false, false};
  LevelControl& level = here.observer->level;
  // A process that only waits is found by its segment.
  if (level.watched() != wire::Level::kFull) here.observer->EnsureEmitter();
  level.Look(*here.observer, here.thread);
  return {level.watched() == wire::Level::kFull, level.watched() != wire::Level::kIdle};
}

void OnRootArguments(const at::TensorBase* const* tensors, const char* const* names,
                     size_t count) noexcept {
  Here here;
  if (!FindHereInModule(&here)) return;
  BusyScope busy(here.thread);
  here.observer->SettlePoison();
  if (here.observer->Poisoned()) return;
  for (size_t i = 0; i < count; ++i) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (ReadTensor(*tensors[i], &plain, &reason) != Readable::kYes) continue;
    ++here.thread->counters.tensors_checked;
    here.thread->counters.bytes_checked +=
        static_cast<uint64_t>(plain.view.numel) * ElementBytes(plain.view.type);
    if (!HasNonFinite(plain.view)) continue;
    wire::Source known{};
    ValueRef value;
    if (SourceOf(*here.observer, plain, &known, &value)) continue;
    NoteExternal(*here.observer, plain, wire::Target::kInputData, names[i]);
  }
}

void OnNewRoot(const Layer* root) noexcept try {
  Here here;
  if (!FindHereInModule(&here)) return;
  BusyScope busy(here.thread);
  here.observer->python->names().ForEachInRoot(
      root, [&here](const NamedTensor& named) { NoteNamed(*here.observer, named); });
} catch (...) {
}

}  // namespace nanwatch::entry_points
