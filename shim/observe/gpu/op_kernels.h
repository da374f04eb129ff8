// SPDX-License-Identifier: Apache-2.0
// The kernels that a finding's op ran: numbers for ops while they run, and a record (wire,
// KernelsRecord) for each finding of a GPU that may be an origin, once its kernels are known. Only
// where the user asked for it; else there is one branch an op on a GPU, and no call of CUPTI's.
//
// From the first tensor on a GPU on, the thread that settles the event queue starts the trace
// (device/kernel_trace.h), which takes some of its rounds of 50 ms: starts of profilers must be
// seen first (profiler_calls.h). Ops before have no kernels told. Numbers are for ops whose results
// are looked at; what they call has none, so that its kernels count as theirs, as its results do.
// Kernels are traced whatever the level is: what turning CUPTI on and off costs is not known.
//
// A finding waits until CUPTI has handed over its kernels, a minute at most, and as long as
// kFindingsMax others do not; its op's records may be in a buffer that is full only much later. At
// the process's end what is known then is emitted. A finding without kernels has a record, too: it
// says what CUPTI has handed over, so that the report can say why there are none.
//
// Left out: ops in CUDA graphs, kernels of compiled regions that no op launches, and ops whose
// records were lost (counted in the record).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "proto/wire/record.h"
#include "shim/device/kernel_trace.h"
#include "shim/entry/observer_interface.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class Emitter;
class ProcessSegment;
class PythonBridge;

class OpKernels final : public FindingSink {
 public:
  // All outlive it.
  OpKernels(const NanwatchEntry& entry, PythonBridge& python,
            const ProcessSegment& segment) noexcept
      : entry_(entry), python_(python), segment_(segment) {}

  // Before the first op.
  // `on_demand`: kineto may be started from outside (KINETO_USE_DAEMON).
  void Want(bool on_demand) noexcept {
    wanted_ = true;
    on_demand_ = on_demand;
  }
  [[nodiscard]] bool wanted() const noexcept { return wanted_; }
  [[nodiscard]] bool on_demand() const noexcept { return on_demand_; }

  // ---- on an op's thread
  [[nodiscard]] bool On() const noexcept {
    const device::KernelTrace* trace = trace_.load(std::memory_order_acquire);
    return __builtin_expect(trace != nullptr, 0) && trace->Tracing();
  }
  void Begin(const ThreadState* thread, Frame* frame) noexcept;
  void End() noexcept { trace_.load(std::memory_order_acquire)->Pop(); }

  // Any thread: a finding of this op was written, or kept, with this head.
  void RecordFinding(const Frame& frame, const wire::RecordHeader& finding) noexcept override;

  // Every 50 ms, on a thread of our own.
  void Tend() noexcept;
  // The process ends, and the driver is still there: the last call that has anything to do with
  // CUPTI.
  void EmitAtExit() noexcept;
  // A profiler is about to start, on this thread, with the GIL.
  void OnProfiler() noexcept;

 private:
  static constexpr uint32_t kFindingsMax = 64;
  struct Waiting {
    wire::RecordHeader finding;
    uint64_t op;
    uint64_t seen = 0;    // launches, when it was last looked at
    uint32_t rounds = 0;  // for which it has waited
  };
  // The oldest goes where there is no room: it has waited in vain the longest.
  struct List {
    uint32_t count = 0;
    Waiting findings[kFindingsMax];
    // False: one has gone.
    bool Add(const Waiting& finding) noexcept;
  };
  enum class State : uint8_t { kIdle, kAsking, kStarted, kRefused, kEnded };

  void Start() noexcept;
  void Refuse(const char* why) noexcept;
  void Emit(bool last) noexcept;
  void EmitOne(Emitter& emitter, const Waiting& finding, std::span<const device::OpKernel> kernels,
               device::KernelTrace& trace) noexcept;
  void TakeArrived() noexcept;

  const NanwatchEntry& entry_;
  PythonBridge& python_;
  const ProcessSegment& segment_;
  bool wanted_ = false;
  bool on_demand_ = false;
  std::atomic<device::KernelTrace*> trace_{nullptr};
  std::atomic<uint64_t> given_up_{0};

  std::mutex tending_;  // covers what follows; held while CUPTI is called
  State state_ = State::kIdle;
  uint32_t rounds_asking_ = 0;
  List waiting_;

  std::mutex arriving_mutex_;  // covers what follows
  List arriving_;
};

}  // namespace nanwatch
