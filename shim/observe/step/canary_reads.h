// SPDX-License-Identifier: Apache-2.0
// What level canary reads between two steps, where no op is watched: what a model returns, numbers
// that Python reads, and registered buffers, which level sampled reads, too. The loss and gradients
// are read besides (loss.h, canary.h).
//
// A bad value becomes a finding of the place where it was met, with an unknown source. It reaches
// the loss or a buffer as it would at level full; of what it comes from nothing is claimed.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "shim/classify/bad_values.h"
#include "shim/observe/python/names/python_names.h"

namespace nanwatch {

class KnownBad;
class LevelState;
class Poison;
class ProcessSegment;
class ScalarReads;
class StepLosses;
class StepSink;
class UnobservedWrites;
struct ThreadState;
class NamedReading;

namespace canary {

// Ops are not watched, and what is found is reported.
[[nodiscard]] bool ReadsNow(const LevelState& level, const Poison& poison) noexcept;

// On the thread of the call, any.
class Reads {
 public:
  // All outlive it.
  struct Uses {
    ProcessSegment& segment;
    const LevelState& level;
    const Poison& poison;
    KnownBad& known_bad;
    UnobservedWrites& writes;
    ScalarReads& scalar_reads;
    StepLosses& losses;
  };
  explicit Reads(const Uses& uses) noexcept : uses_(uses) {}

  // Python has read the number of this tensor; and has asked whether it is finite
  // (python/calls/builtin_calls.h).
  void OnNumberRead(ThreadState* thread, const at::TensorBase& tensor, double number) noexcept;
  void OnAsked(ThreadState* thread, const at::TensorBase& tensor) noexcept;

  // Tensors that a root module's call returned. At most kResultBytesMax of each call are read.
  static constexpr uint64_t kResultBytesMax = uint64_t{64} << 10;
  void OnResults(ThreadState* thread, const at::TensorBase* const* tensors, size_t count) noexcept;

 private:
  struct Met;
  ValueRef OnBadValue(ThreadState* thread, const Met& met, wire::Source* source) noexcept;

  const Uses uses_;
};

// Registered buffers on the CPU: those that were finite when they were read last, and hold NaN or
// Inf now. What was bad when it was read first came in so, or is meant so, and is left to those who
// use it.
class Buffers {
 public:
  // All outlive it.
  struct Uses {
    const PythonNames& names;
    const LevelState& level;
    const Poison& poison;
    KnownBad& known_bad;
    UnobservedWrites& writes;
    StepLosses& losses;
    StepSink& sink;
  };
  explicit Buffers(const Uses& uses) noexcept : uses_(uses) {}

  // Inf alone is how a buffer of extremes begins; running statistics are none.
  [[nodiscard]] static bool IsRuined(const NamedTensor& named, uint8_t kinds) noexcept;

  // A root is about to be called for the first time.
  void OnNewRoot(const Layer* root) noexcept;
  // An optimizer's step ends, on its thread.
  void OnStepEnd(ThreadState* thread) noexcept;
  // Those of the module, and of modules in it, that were finite when they were read last, and are
  // bad now.
  [[nodiscard]] std::vector<const NamedTensor*> TurnedBad(ThreadState* thread,
                                                          const Layer* module) noexcept;

 private:
  enum class Seen : uint8_t { kNever, kFinite, kBad };
  // With mutex_ held, by NamedTensor::index:
  [[nodiscard]] Seen& Of(const NamedTensor& named);
  // Notes how it is now. Whether it was finite when it was read last, and is bad.
  bool HasTurnedBad(const NamedTensor& named, const NamedReading& reading);

  const Uses uses_;
  std::mutex mutex_;
  std::vector<Seen> seen_;
};

}  // namespace canary
}  // namespace nanwatch
