// SPDX-License-Identifier: Apache-2.0
// Capsules of this process: for an op that may be an origin, what is needed to run it again
// (proto/README.md has the format). On the CPU, at a level that checks every op.
//
// An origin is known to be one only later, when what it made has reached a loss or a weight, and
// its inputs are gone by then. So the capsule is written at the end of each op that may turn out to
// be one, up to kCapsulesMax of them. Those of a step that had no consequences make way for newer
// ones; those of the steps in a row that had some stay. The tools remove what belongs to no
// incident.
//
// Threads: any.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "proto/wire/capsule.h"
#include "proto/wire/record.h"
#include "shim/observe/capsule/open_calls.h"
#include "shim/observe/thread/location.h"

namespace nanwatch {

class Emitter;

struct CapsuleSettings {
  bool on = false;
  std::string directory;
  uint64_t bytes_max = wire::kCapsuleBytesMax;
  std::string python;                       // the interpreter that runs the job; "" is not known
  void (*say)(const char* line) = nullptr;  // as NanwatchEntry's
};

// An op that may be an origin, at its end.
struct PossibleOrigin {
  ThreadState* thread;
  const Frame& frame;
  const BadOutput* outputs;
  int count;
  const Location& place;
  const wire::RecordHeader& header;
  wire::FindingClass finding_class;
  uint8_t kinds;   // of all outputs
  const char* op;  // as the finding names it
  uint32_t site;   // its number in the segment
  uint64_t seen;   // how often there was something bad
  const Emitter& emitter;
};

class Capsules {
 public:
  Capsules() = default;
  Capsules(const Capsules&) = delete;
  Capsules& operator=(const Capsules&) = delete;

  // Before the first op is seen.
  void Set(CapsuleSettings settings);
  [[nodiscard]] const CapsuleSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] bool on() const noexcept { return settings_.on; }

  // An op begins with these arguments of its own, or a deeper stack.
  void OnBegin(ThreadState* thread, const Frame& frame,
               c10::ArrayRef<const c10::IValue> arguments) noexcept;
  // An op has ended, and all that was bad was handed over.
  void OnEnd(const ThreadState& thread, const Frame& frame) noexcept;
  // Writes the capsule, if there is to be one.
  void OnPossibleOrigin(const PossibleOrigin& origin) noexcept;
  // On a GPU a result is known to be bad when the op's inputs are gone: says once that there is no
  // capsule.
  void OnPossibleOriginOnGpu() noexcept;
  // A step has ended. `harmed`: its loss or a gradient was bad, or its update was skipped.
  void OnStep(bool harmed) noexcept;

 private:
  struct Kept {
    uint32_t number = 0;  // 0: the place is free
    uint32_t site = 0;
    uint32_t step = 0;           // of the process, from 0
    bool only_negative = false;  // -Inf, as masks have it
  };
  // More threads than a training has. Those of higher numbers go without.
  static constexpr uint32_t kThreadsMax = 512;

  [[nodiscard]] OpenCalls* CallsOf(const ThreadState& thread) noexcept;
  [[nodiscard]] bool MayGo(const Kept& kept) const noexcept;
  [[nodiscard]] Kept* PlaceFor(const PossibleOrigin& origin) noexcept;
  // Takes a place for it; 0: there is to be none. `replaced`: the one that had the place, or 0.
  [[nodiscard]] uint32_t TakePlace(const PossibleOrigin& origin, uint32_t* replaced) noexcept;
  [[nodiscard]] const char* Write(const PossibleOrigin& origin, const CallNote& call,
                                  uint32_t number) const;

  CapsuleSettings settings_;
  std::atomic<OpenCalls*> calls_[kThreadsMax] = {};
  std::atomic<bool> said_gpu_{false};
  std::mutex mutex_;  // covers what follows
  Kept kept_[wire::kCapsulesMax];
  uint32_t written_ = 0;
  bool failed_ = false;        // one could not be written, which was said
  uint32_t step_ = 0;          // the one that runs
  uint32_t harmed_since_ = 0;  // the first of the steps in a row that were harmed,
  bool harmed_ = false;        // of which the last one to end was one
};

}  // namespace nanwatch
