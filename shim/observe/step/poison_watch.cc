// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/poison_watch.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/ruined_parameters.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/python/names/optimizer_tensors.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/torch/input_tracking.h"

namespace nanwatch {
namespace {

// A list that has not answered for so many times kStepsPerProbe steps is asked again.
constexpr uint64_t kProbesUntilLost = 8;
// After each hope that was false, twice as many steps go by until the next one, up to 2^6 times.
constexpr uint32_t kDoublingsMax = 6;

}  // namespace

void PoisonWatch::Settle() noexcept {
  // On the CPU whoever made it so looks for the end of it, too.
  if (uses_.poison.Blind() && !uses_.late.On()) return;
  if (uses_.poison.Settle(uses_.python.names()) != Poison::Change::kEntered) return;
  uses_.ruined.Add(uses_.bad_values);
  uses_.bad_values.Reset();
  uses_.tracking.Disarm();
}

void PoisonWatch::At(ThreadState* thread, Border border, const void* optimizer) noexcept try {
  if (__builtin_expect(!uses_.poison.Poisoned() && !uses_.poison.Blind() && !uses_.poison.Hopeful(),
                       1))
    return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Follow(thread, border, optimizer);
} catch (const std::exception&) {
  // No memory for a list: the next step asks again.
}

void PoisonWatch::OnFiniteLoss() noexcept {
  if (!uses_.poison.Poisoned() || uses_.late.On() || !WatchesEveryOp(uses_.level.watched())) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!uses_.poison.LeaveAlone()) return;
  RememberRuined();
  ended_in_step_.store(uses_.clock.completed(), std::memory_order_relaxed);
  End();
}

// What has gone bad since nothing was followed comes of what was known then.
void PoisonWatch::RememberRuined() noexcept {
  uses_.ruined.Restore(uses_.bad_values);
  const std::optional<RuinedParameters::Left> newest = uses_.ruined.Newest();
  if (!newest) return;
  const PythonNames& names = uses_.python.names();
  names.ForEach([&](const NamedTensor& named) {
    const NamedReading reading(names, named);
    BadEntry known;
    if (named.kind != NamedTensorKind::kParameter || !reading.IsBad()) return;
    const PlainTensor& tensor = reading.tensor();
    if (uses_.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &known)) return;
    BadEntry entry = BadEntryOf(tensor, uses_.clock.completed());
    entry.value = newest->value;
    entry.site = newest->site;
    entry.target = wire::Target::kParameter;
    entry.resident = true;
    (void)uses_.bad_values.Add(entry);
  });
}

bool PoisonWatch::EndsStep(Border border) noexcept {
  if (border == Border::kStepBegins) step_seen_ = true;
  if (border != Border::kScaleUpdated) return border == Border::kStepEnded;
  return !std::exchange(step_seen_, false);
}

void PoisonWatch::Follow(ThreadState* thread, Border border, const void* optimizer) {
  const bool ends_step = EndsStep(border);
  if (!uses_.poison.Poisoned()) return End();
  if (uses_.poison.Hopeful()) {
    if (under_way_) return;
    false_hopes_ = std::min(false_hopes_ + 1, kDoublingsMax);
    heed_versions_at_ = steps_ + (uint64_t{kStepsPerProbe} << false_hopes_);
    return Begin();
  }
  if (!uses_.poison.Blind()) {
    // Ops tell the steps of a program without an optimizer object, and who waits for a bad gradient
    // to stop at it is to have it.
    if (uses_.clock.range() == 0 || uses_.stops_on_anomaly) return;
    // The program may have put back what it had written (a perturbation): nobody is blind, then,
    // but of what was made meanwhile nothing was recorded.
    if (!uses_.late.On() && uses_.poison.Settle(uses_.python.names()) == Poison::Change::kLeft) {
      ended_in_step_.store(uses_.clock.completed(), std::memory_order_relaxed);
      return End();
    }
    return Begin();
  }
  if (uses_.level.watched() == wire::Level::kIdle) return;
  if (ends_step) {
    ++steps_;
    ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kAfterPoisoned)];
  }
  if (uses_.late.On()) {
    return FollowOnGpu(thread, ends_step ? Border::kStepEnded : border, optimizer);
  }
  if (uses_.poison.Settle(uses_.python.names()) == Poison::Change::kLeft) End();
}

void PoisonWatch::FollowOnGpu(ThreadState* thread, Border border, const void* optimizer) {
  if (versions_.empty() && border == Border::kStepBegins && optimizer != nullptr) {
    return TakeVersions(optimizer);
  }
  const uint64_t sum = SumOfVersions();
  if (border == Border::kStepEnded) {
    version_sum_ = sum;
    const bool is_lost = steps_ >= probe_at_ + (kProbesUntilLost - 1) * kStepsPerProbe;
    if (steps_ >= probe_at_ && (!under_way_ || is_lost)) (void)Probe(thread);
    return;
  }
  if (border != Border::kCall && border != Border::kStepBegins) return;
  if (sum == version_sum_ || steps_ < heed_versions_at_) return;
  version_sum_ = sum;
  if (!Probe(thread)) return;
  uses_.poison.SetWatched(/*blind=*/false, /*hopeful=*/true);
  ended_in_step_.store(uses_.clock.completed(), std::memory_order_relaxed);
  uses_.tracking.Suspend(false);
}

void PoisonWatch::Begin() noexcept {
  uses_.poison.SetWatched(/*blind=*/true, /*hopeful=*/false);
  uses_.level.RecordBlind();
  probe_at_ = steps_ + kStepsPerProbe;
  uses_.tracking.Suspend(true);
}

void PoisonWatch::End() noexcept {
  if (uses_.poison.Blind()) {
    ended_in_step_.store(uses_.clock.completed(), std::memory_order_relaxed);
    uses_.tracking.Suspend(false);
  }
  uses_.poison.SetWatched(/*blind=*/false, /*hopeful=*/false);
  steps_ = heed_versions_at_ = 0;
  false_hopes_ = 0;
  under_way_ = false;
  versions_.clear();
}

void PoisonWatch::TakeVersions(const void* optimizer) {
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kWritten;
  if (!uses_.python.ReadOptimizer(optimizer, &tensors)) return;
  for (const WrittenTensor& written : tensors.written) {
    if (written.is_state || versions_.size() == kVersionsMax) break;
    const c10::VariableVersion& version = written.held.unsafeGetTensorImpl()->version_counter();
    if (version.enabled()) versions_.push_back(version);
  }
  version_sum_ = SumOfVersions();
}

uint64_t PoisonWatch::SumOfVersions() const {
  uint64_t sum = 0;
  for (const c10::VariableVersion& version : versions_) sum += version.current_version();
  return sum;
}

bool PoisonWatch::Probe(ThreadState* thread) {
  probe_at_ = steps_ + kStepsPerProbe;
  under_way_ = false;
  GpuTensors on_gpu(uses_.late, thread, /*counts=*/false);
  const PythonNames& names = uses_.python.names();
  names.ForEach([&](const NamedTensor& named) {
    if (named.kind != NamedTensorKind::kParameter) return;
    const NamedReading reading(names, named);
    if (reading.OnGpu()) on_gpu.Add(reading.tensor(), wire::Target::kParameter, &named);
  });
  uses_.poison.ForEachNamelessOnGpu(
      [&](const PlainTensor& tensor) { on_gpu.Add(tensor, wire::Target::kParameter, nullptr); });
  if (on_gpu.list().empty()) return false;
  first_event_ = uses_.late.NextEvent();
  awaited_ = on_gpu.list().size();
  under_way_ = uses_.late.Enqueue(thread, TensorsToCheck{CheckedAs::kProbe, on_gpu.list()});
  return under_way_;
}

void PoisonWatch::OnProbe(uint64_t event, uint32_t tensors, bool bad) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!under_way_ || event < first_event_) return;
    awaited_ -= std::min<uint64_t>(awaited_, tensors);
    if (!bad && awaited_ != 0) return;
    under_way_ = false;
    if (bad) return;
  }
  uses_.poison.RecordCleanGpus();
  Settle();
}

void PoisonWatch::OnProbeLost() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  under_way_ = false;
}

}  // namespace nanwatch
