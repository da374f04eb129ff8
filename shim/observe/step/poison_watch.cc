// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/poison_watch.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "shim/observe/observer.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/python/names/optimizer_tensors.h"

namespace nanwatch {
namespace {

// A list that has not answered for so many times kStepsPerProbe steps is asked again.
constexpr uint64_t kProbesUntilLost = 8;
// After each hope that was false, twice as many steps go by until the next one, up to 2^6 times.
constexpr uint32_t kDoublingsMax = 6;

}  // namespace

void PoisonWatch::At(Observer& observer, ThreadState* thread, Border border,
                     const void* optimizer) noexcept try {
  if (__builtin_expect(!observer.Poisoned() && !Blind() && !Hopeful(), 1)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Follow(observer, thread, border, optimizer);
} catch (const std::exception&) {
  // No memory for a list: the next step asks again.
}

bool PoisonWatch::EndsStep(Border border) noexcept {
  if (border == Border::kStepBegins) step_seen_ = true;
  if (border != Border::kScaleUpdated) return border == Border::kStepEnded;
  return !std::exchange(step_seen_, false);
}

void PoisonWatch::Follow(Observer& observer, ThreadState* thread, Border border,
                         const void* optimizer) {
  const bool ends_step = EndsStep(border);
  if (!observer.Poisoned()) return End(observer);
  if (Hopeful()) {
    if (under_way_) return;
    false_hopes_ = std::min(false_hopes_ + 1, kDoublingsMax);
    heed_versions_at_ = steps_ + (uint64_t{kStepsPerProbe} << false_hopes_);
    return Begin(observer);
  }
  if (!Blind()) {
    // Ops tell the steps of a program without an optimizer object, and who waits for a bad gradient
    // to stop at it is to have it.
    if (observer.steps.range() == 0 || observer.stops_on_anomaly) return;
    return Begin(observer);
  }
  if (observer.level.watched() == wire::Level::kIdle) return;
  if (ends_step) {
    ++steps_;
    ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kAfterPoisoned)];
  }
  if (observer.gpu_events.On()) {
    return FollowOnGpu(observer, thread, ends_step ? Border::kStepEnded : border, optimizer);
  }
  if (observer.poison.Settle(observer.python->names()) == Poison::Change::kLeft) End(observer);
}

void PoisonWatch::FollowOnGpu(Observer& observer, ThreadState* thread, Border border,
                              const void* optimizer) {
  if (versions_.empty() && border == Border::kStepBegins && optimizer != nullptr) {
    return TakeVersions(observer, optimizer);
  }
  const uint64_t sum = SumOfVersions();
  if (border == Border::kStepEnded) {
    version_sum_ = sum;
    const bool is_lost = steps_ >= probe_at_ + (kProbesUntilLost - 1) * kStepsPerProbe;
    if (steps_ >= probe_at_ && (!under_way_ || is_lost)) (void)Probe(observer, thread);
    return;
  }
  if (border != Border::kCall && border != Border::kStepBegins) return;
  if (sum == version_sum_ || steps_ < heed_versions_at_) return;
  version_sum_ = sum;
  if (!Probe(observer, thread)) return;
  hopeful_.store(true, std::memory_order_relaxed);
  blind_.store(false, std::memory_order_relaxed);
  ended_in_step_.store(observer.steps.completed(), std::memory_order_relaxed);
  observer.input_tracking.Suspend(false);
}

void PoisonWatch::Begin(Observer& observer) noexcept {
  hopeful_.store(false, std::memory_order_relaxed);
  blind_.store(true, std::memory_order_relaxed);
  probe_at_ = steps_ + kStepsPerProbe;
  observer.gpu_events.LetCutsGo();
  observer.input_tracking.Suspend(true);
}

void PoisonWatch::End(Observer& observer) noexcept {
  if (Blind()) {
    ended_in_step_.store(observer.steps.completed(), std::memory_order_relaxed);
    observer.input_tracking.Suspend(false);
  }
  blind_.store(false, std::memory_order_relaxed);
  hopeful_.store(false, std::memory_order_relaxed);
  steps_ = heed_versions_at_ = 0;
  false_hopes_ = 0;
  under_way_ = false;
  versions_.clear();
}

void PoisonWatch::TakeVersions(Observer& observer, const void* optimizer) {
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kWritten;
  if (!observer.python->ReadOptimizer(optimizer, &tensors)) return;
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

bool PoisonWatch::Probe(Observer& observer, ThreadState* thread) {
  probe_at_ = steps_ + kStepsPerProbe;
  under_way_ = false;
  GpuTensors on_gpu(observer, thread, /*counts=*/false);
  const PythonNames& names = observer.python->names();
  names.ForEach([&](const NamedTensor& named) {
    if (named.kind != NamedTensorKind::kParameter) return;
    const NamedReading reading(names, named);
    if (reading.OnGpu()) on_gpu.Add(reading.tensor(), wire::Target::kParameter, &named);
  });
  observer.poison.ForEachNamelessOnGpu(
      [&](const PlainTensor& tensor) { on_gpu.Add(tensor, wire::Target::kParameter, nullptr); });
  if (on_gpu.list().empty()) return false;
  first_event_ = observer.gpu_events.next_event();
  awaited_ = on_gpu.list().size();
  under_way_ = observer.gpu_events.EnqueueTensors(observer, thread,
                                                  GpuEventQueue::CheckedAs::kProbe, on_gpu.list());
  return under_way_;
}

void PoisonWatch::OnProbe(Observer& observer, uint64_t event, uint32_t tensors, bool bad) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!under_way_ || event < first_event_) return;
    awaited_ -= std::min<uint64_t>(awaited_, tensors);
    if (!bad && awaited_ != 0) return;
    under_way_ = false;
    if (bad) return;
  }
  observer.poison.RecordCleanGpus();
  observer.SettlePoison();
}

void PoisonWatch::OnProbeLost() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  under_way_ = false;
}

}  // namespace nanwatch
