// SPDX-License-Identifier: Apache-2.0
// Values that enter the program under a name without an op: arguments of a model's call, and
// parameters and buffers.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/torch_tensor.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch {

class ExternalValues;
class KnownBad;
class LevelState;
class PythonNames;
class RecentValues;
class UnobservedWrites;

// Threads: any.
class NamedValues {
 public:
  // All outlive it.
  struct Uses {
    const PythonNames& names;
    const LevelState& level;
    RecentValues& recent;
    KnownBad& known_bad;
    ExternalValues& external;
    UnobservedWrites& writes;
  };
  explicit NamedValues(const Uses& uses) noexcept : uses_(uses) {}

  // One of these is bad: `plain` is an argument of a model, or lies under this name in one.
  void ReportEntry(const PlainTensor& plain, wire::Target target, uint32_t name) noexcept;
  // Whether all parameters and buffers that modules hold and that can be read are finite. Reads
  // them.
  [[nodiscard]] bool AreAllFinite(ThreadState* thread) noexcept;
  // Reads all parameters and buffers that modules hold, after ops went unchecked; what is bad and
  // not known yet came in unseen. False where anything was bad, or there was nothing to read.
  bool ReadAll(ThreadState* thread) noexcept;
  // The program ends: reads the parameters, of which all that is bad is known, unless code that
  // nobody observes has written it since the last step.
  void ReadAtEnd(ThreadState* thread) noexcept;
  // Remembers which of them are finite, once: ops begin to go unchecked.
  void RememberFinite(ThreadState* thread) noexcept;
  // As ReadAll, but that only those count which are remembered as finite: a buffer of bounds begins
  // at Inf, an unused row at NaN. False where any other is bad that is not remembered, too.
  bool ReadRemembered(ThreadState* thread) noexcept;

 private:
  [[nodiscard]] bool WasLetIn(const PlainTensor& plain, ValueRef value) noexcept;
  [[nodiscard]] UnobservedWriter WrittenUnseen(const NamedTensor& named,
                                               const NamedReading& reading) noexcept;

  enum class Before : uint8_t { kUnknown, kFinite, kBad };
  template <class Fn>
  bool Read(ThreadState* thread, Fn&& before) noexcept;

  const Uses uses_;
  std::mutex mutex_;
  std::vector<Before> before_;  // by NamedTensor::index, with mutex_ held
};

}  // namespace nanwatch
