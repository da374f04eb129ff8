// SPDX-License-Identifier: Apache-2.0
// What is watched while parameters are bad (poison.h): nothing, so that a step costs what it costs
// without us. Ops have no callback, no gradient is read, nothing is launched on a GPU; steps are
// counted. What goes on is the search for the end of it.
//
//   CPU  at each border the element that was found bad is read again. Is it finite, the parameters
//        are read as far as the first bad value; is there none, all is watched again at once.
//   GPU  one list in kStepsPerProbe steps, and where somebody other than the optimizer has written
//        parameters: which of them are bad, without figures. In the second case ops are watched
//        from the list on, and what was noted since is reported once the list is known to be clean.
//
// A border is where a model is called from outside any module, or an optimizer's step begins or has
// ended, or a GradScaler was updated. Programs without an optimizer object have no borders: their
// ops tell their steps, and are watched on.
//
// Threads: everything but loads locks: borders on the threads of the job, OnProbe
// on whoever tells the event queue.
#pragma once

#include <c10/core/TensorImpl.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace nanwatch {

class BadValues;
class InputTracking;
class LateFacts;
class LevelState;
class Poison;
class PythonBridge;
class RuinedParameters;
class StepClock;
struct ThreadState;

class PoisonWatch {
 public:
  // All outlive it. `stops_on_anomaly`: who waits for a bad gradient to stop at it is to have it.
  struct Uses {
    PythonBridge& python;
    Poison& poison;
    BadValues& bad_values;
    RuinedParameters& ruined;
    InputTracking& tracking;
    LevelState& level;
    StepClock& clock;
    LateFacts& late;
    const bool& stops_on_anomaly;
  };
  explicit PoisonWatch(const Uses& uses) noexcept : uses_(uses) {}

  // At a point where the program begins something new: enters or leaves the poisoned state.
  void Settle() noexcept;

  // The number of completed steps when ops were watched again; UINT32_MAX: they always were. Ops of
  // that step may have gone by.
  [[nodiscard]] uint32_t ended_in_step() const noexcept {
    return ended_in_step_.load(std::memory_order_relaxed);
  }

  enum class Border : uint8_t { kCall, kStepBegins, kStepEnded, kScaleUpdated };
  // On the job's thread, outside all locks. `optimizer`: whose step it is, readable there; null:
  // unknown. Nothing but two loads where no parameter is bad.
  void At(ThreadState* thread, Border border, const void* optimizer = nullptr) noexcept;

  // A pass begins at a finite loss, on the CPU. Nothing but a load where no parameter is bad.
  void OnFiniteLoss() noexcept;

  // A part of a list has answered, or never will (`lost`): so many tensors, of the event with this
  // number.
  void OnProbe(uint64_t event, uint32_t tensors, bool bad) noexcept;
  void OnProbeLost() noexcept;

 private:
  static constexpr uint32_t kStepsPerProbe = 8;
  static constexpr uint32_t kVersionsMax = 256;

  // With mutex_ held:
  void Begin() noexcept;
  void End() noexcept;
  void Follow(ThreadState* thread, Border border, const void* optimizer);
  void FollowOnGpu(ThreadState* thread, Border border, const void* optimizer);
  // False: there was nothing to ask, or no room.
  bool Probe(ThreadState* thread);
  void TakeVersions(const void* optimizer);
  [[nodiscard]] uint64_t SumOfVersions() const;
  void RememberRuined() noexcept;
  // Of this border: whether a step of the training has ended there, taken or skipped.
  [[nodiscard]] bool EndsStep(Border border) noexcept;

  const Uses uses_;
  std::atomic<uint32_t> ended_in_step_{UINT32_MAX};

  std::mutex mutex_;        // covers all below
  bool step_seen_ = false;  // since the scale was updated last
  uint64_t steps_ = 0;      // that nobody watched, since the parameters were found bad
  uint64_t probe_at_ = 0;   // of these
  // Versions of the parameters' tensors, on a GPU, as the optimizer left them.
  std::vector<c10::VariableVersion> versions_;
  uint64_t version_sum_ = 0;
  uint64_t heed_versions_at_ = 0;  // of steps_: a change before has misled too often
  uint32_t false_hopes_ = 0;
  bool under_way_ = false;    // a list is asked,
  uint64_t first_event_ = 0;  // from this event on,
  uint64_t awaited_ = 0;      // about so many tensors more
};

}  // namespace nanwatch
