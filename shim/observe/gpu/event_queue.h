// SPDX-License-Identifier: Apache-2.0
// What happens in a job with a GPU, in the order in which it happened, resolved when the GPU has
// answered.
//
// What the rest of the observer decides about a value (its class, its sources, how far it got)
// depends on what was decided about the values before it. On the CPU an op's values are checked
// where the op ends, and everything is decided there. A GPU answers late. So from the first tensor
// of a GPU on, ops, passes, leaves and updates are enqueued as events in one queue. They are
// resolved by the same functions that a job on the CPU calls directly, one after another, each when
// its check's answer is there:
//
//   op ends  -> enqueue: moment, tensors, launch of the check -.
//   pass begins, leaf, update -> enqueue                       |  events, in order (event_ring.h)
//   Settle: answers of the GPU -> resolve the events at the head (resolver.h)
//
// What lives on the CPU in such a job is checked and decided where it happens; what the GPU has
// answered by then is resolved before.
//
// Checks captured into a CUDA graph run at every replay, and each replay is resolved separately:
// gpu_graphs.h.
//
// Threads: events are enqueued by any, resolved by one at a time; nobody waits for another to finish
// resolving but at exit, and where that was asked for (WaitForGpu). Nothing is allocated once the
// queue is mapped, but for graphs and lists. An op that finds the queue full is not checked, and
// counted.
#pragma once

#include <ATen/core/TensorBase.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "shim/entry/observer_interface.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/gpu/gpu_state.h"
#include "shim/observe/gpu/late_copies.h"
#include "shim/observe/gpu/moment.h"
#include "shim/observe/gpu/resolver.h"
#include "shim/observe/python/calls/graph_calls.h"
#include "shim/observe/python/known_calls.h"
#include "shim/observe/thread/activity.h"
#include "shim/observe/thread/location.h"

namespace nanwatch {

class GpuListener;
class InputTracking;
class LevelState;
class OpKernels;
class ParameterStats;
class Poison;
class ProcessSegment;
class PythonBridge;
class StepScope;
struct LaunchedTensors;
struct StepMarks;

class GpuEventQueue final : public LateFacts {
 public:
  // Both are called without an object: a forked child has a queue of its own.
  struct Hooks {
    void (*on_thread_end)(ThreadState* ending);
    void (*before_driver_ends)();  // atexit
    bool (*on_memory_wanted)();    // memory_wanted.h
  };
  // All outlive it.
  struct Parts {
    const NanwatchEntry& entry;
    Activity activity;
    ProcessSegment& segment;
    PythonBridge& python;
    InputTracking& input_tracking;
    const LevelState& level;
    const StepMarks& marks;
    StepScope& steps;
    ParameterStats& parameter_stats;
    BadValues& bad_values;
    const Poison& poison;
    OpKernels& op_kernels;
    GpuListener& listener;
    Hooks hooks;
  };
  GpuEventQueue(GpuState& state, GpuResolver& resolver, const Parts& parts) noexcept
      : parts_(parts), state_(state), resolver_(resolver) {}

  // What the environment asks for. Set before any op is seen.
  struct Settings {
    bool checks = true;  // NANWATCH_GPU is not "0"
    uint64_t queue_bytes_for_test = 0;
  };
  void Set(const Settings& settings) noexcept { settings_ = settings; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }

  // From now on events are enqueued, because a tensor of a GPU was seen. False: this process's GPUs
  // cannot be checked, which is said once.
  bool Begin() noexcept override;
  [[nodiscard]] bool On() const noexcept override { return state_.On(); }

  // Bit i: something of GPU i was checked, or would have been.
  [[nodiscard]] uint32_t gpus() const noexcept { return state_.checks.gpus_seen(); }

  [[nodiscard]] KnownCalls& calls() noexcept { return calls_; }
  [[nodiscard]] uint64_t next_event() const noexcept { return state_.ring.next_event(); }
  [[nodiscard]] uint64_t NextEvent() const noexcept override { return next_event(); }

  // ---- enqueuing, on the thread on which it happens

  // An op ended. Its inputs are those recorded in the frame; the tensors of a GPU that it returned
  // stand behind them in the thread's inputs, `returned` of them.
  void EnqueueOp(ThreadState* thread, const Frame& frame, uint32_t returned) noexcept;
  // An op ended that copies from a GPU to `to`, on the CPU, without waiting for it: what is known
  // of its source when all before it is resolved is known of the copy, which is not read.
  void EnqueueLateCopy(ThreadState* thread, const Frame& frame, const InputSeen& to) noexcept;
  // Whether such a copy to this tensor, on the CPU, may not have arrived yet.
  [[nodiscard]] bool MayBeUnderWay(const PlainTensor& tensor) noexcept {
    return late_copies_.MayBeUnderWay(tensor, next_event());
  }
  // An op returned memory of another's (a view), or wrote values that need no check.
  void EnqueueView(ThreadState* thread, const Frame& frame, const PlainTensor& tensor) noexcept;
  // Tensors that no op of this moment hands over, a few. Of what a compiled region has returned:
  // the region, and those of its arguments that lie on a GPU; as many as fit are checked. False:
  // some of them will not be checked.
  bool EnqueueTensors(ThreadState* thread, CheckedAs as, std::span<const CheckedTensor> tensors,
                      const RegionSeen& region = {},
                      std::span<const CheckedTensor> given = {}) noexcept;

  // ---- what is measured for a snapshot of parameters (event_queue_figures.cc)

  // Whether it can be now. The event queue is on.
  [[nodiscard]] bool MayMeasure(const ThreadState* thread) noexcept override;
  // Each of the tensors, one run of memory, is measured for snapshot `snapshot`, in which `name` is
  // its place. With `samples`, one for each, these are compared instead with what they were at the
  // snapshot's begin. False: some were not launched.
  bool EnqueueFigures(ThreadState* thread, CheckedAs as, std::span<const CheckedTensor> tensors,
                      uint64_t snapshot, std::span<const device::SampleSpan> samples = {}) noexcept;

  // ---- collectives (event_queue_collectives.cc)

  // Before it begins: one rank gives, and the others take. What nobody saw being written, such as
  // loaded weights, must be told from what comes.
  void CheckGiven(ThreadState* thread, const Frame& frame) noexcept;
  // Whether some of what came was not checked; then, where an op begins that writes in place.
  [[nodiscard]] bool AnyReceivedUnchecked() const noexcept {
    return state_.collective_results.AnyUnlooked();
  }
  void CheckReceived(ThreadState* thread, const Frame& frame) noexcept;
  // A bad tensor of which nobody is known to have written it: whether it has come by a collective,
  // which is reported then and known from there on.
  bool ResolveReceived(ThreadState* thread, const PlainTensor& tensor) noexcept override {
    return resolver_.ResolveReceived(thread, tensor);
  }

  // Level layer has found something bad in this step, and ops since are watched in full: what
  // one of them reads may have been recorded before and lost unread. Then it has come of what was
  // found last rather than from outside the ops. For a bad tensor without a name that nobody is
  // known to have written. Fills kind and value.
  bool AssumeSource(const ThreadState* thread, const PlainTensor& tensor, wire::Source* source,
                    ValueRef* value) const noexcept override {
    return resolver_.AssumeSource(thread, tensor, source, value);
  }

  // An op handed a non-finite number to Python.
  void EnqueueScalarRead(ThreadState* thread, const Frame& frame, double number) noexcept;
  // Python calls this graph object.
  void OnGraphCall(ThreadState* thread, const void* graph, GraphCall call) noexcept;

  // ---- level sampled (op_batches.h)

  // As EnqueueOp, of an op with one result that is one run of memory and not a single number: the
  // shortest way into the open batch. False: nothing is done, and the op is for EnqueueOp.
  [[nodiscard]] bool NoteResult(ThreadState* thread, const Frame& frame,
                                const at::TensorBase& result) noexcept;
  // A module's call has returned these, on this thread, which has the GIL.
  void OnResults(ThreadState* thread, std::span<const at::TensorBase* const> results) noexcept;
  // What was recorded is checked now, before something that others may see.
  void LaunchBatches() noexcept {
    if (state_.batches.AnyOpen()) state_.batches.LaunchAll();
  }
  // The job's allocator has no free block on the current GPU. True: where the driver has little
  // left to give, too, some was held for checks, and is free now. With the allocator's lock held.
  [[nodiscard]] bool LetGo() noexcept;
  void OnThreadEnd(ThreadState* thread) noexcept { state_.batches.OnThreadEnd(thread); }

  // ---- resolving

  // Resolves what is answered. Does nothing while another thread is at it.
  void Settle() noexcept;
  // The same, and fills in what is known of the frame's inputs on a GPU: an op has left something
  // bad in the CPU's memory, for which the host has waited.
  void SettleInputs(ThreadState* thread, const Frame& frame) noexcept;
  // The stream of this thread says how far it is, when it gets there. Before something that makes
  // the host wait for it.
  void AskStream(const ThreadState* thread) noexcept;
  // ---- waiting: only for those who have asked for it (--on-anomaly stop)

  // Until the event with this number is resolved. False: the GPU will answer later (a capture), or has
  // not for long, which is said.
  bool WaitForGpu(ThreadState* thread, uint64_t event) noexcept override;
  // Until all GPUs that were seen are set up; false: that takes too long.
  bool WaitForSetUp() noexcept override;
  // The process ends: resolves what is answered within a moment. The first call counts, and is the
  // event queue's end.
  void SettleAtExit() noexcept;

  // ---- facts of lower folders (events/fact_sink.h)

  void Enqueue(ThreadState* thread, const PassBegan& fact) noexcept override;
  void Enqueue(ThreadState* thread, const LeafReached& fact) noexcept override;
  uint64_t Enqueue(ThreadState* thread, const UpdateBegan& fact) noexcept override;
  void Enqueue(ThreadState* thread, const UpdateEnded& fact) noexcept override;
  void Enqueue(ThreadState* thread, const PlainUpdate& fact) noexcept override;
  void Enqueue(ThreadState* thread, const CollectiveTensors& fact) noexcept override;
  bool Enqueue(ThreadState* thread, const TensorsToCheck& fact) noexcept override;
  bool Enqueue(ThreadState* thread, const TensorsToMeasure& fact) noexcept override;
  bool Enqueue(ThreadState* thread, const SnapshotTaken& fact) noexcept override;

 private:
  struct OpParts;

  void SetUp() noexcept;
  void WaitBriefly() noexcept;
  void StartSettling() noexcept;
  [[nodiscard]] Moment MomentOf(ThreadState* thread) noexcept;
  [[nodiscard]] Moment MomentOf(ThreadState* thread, const Frame& frame) noexcept;
  [[nodiscard]] bool MayNote(const ThreadState* thread, const Frame& frame) noexcept;
  void LaunchParts(ThreadState* thread, const Frame& frame, const Moment& moment,
                   std::span<const InputSeen* const> written) noexcept;
  void FillOp(const OpParts& parts, ThreadState* thread, const Frame& frame, const Moment& moment,
              OpEvent* event) noexcept;
  template <class Fn>
  void CheckInputs(ThreadState* thread, const Frame& frame, CheckedAs as, Fn&& wanted) noexcept;
  void KeepRead(const InputSeen& seen, SeenTensor* kept) noexcept;
  void EnqueuePart(ThreadState* thread, const Frame& frame, const Moment& moment,
                   const OpParts& parts) noexcept;
  bool EnqueueFewTensors(ThreadState* thread, CheckedAs as, std::span<const CheckedTensor> tensors,
                         const RegionSeen& region, std::span<const CheckedTensor> given) noexcept;
  // Room for an event with so many tensors in it, to check `outputs` tensors. Null: there is none,
  // and these are counted as unchecked.
  OpEvent* ReserveHanded(ThreadState* thread, CheckedAs as, size_t outputs, size_t held) noexcept;
  bool EnqueuePartOfTensors(ThreadState* thread, CheckedAs as,
                            std::span<const CheckedTensor> tensors, const RegionSeen& region,
                            std::span<const CheckedTensor> given) noexcept;
  bool Launch(ThreadState* thread, OpEvent* event, const InputSeen* const* outputs,
              const InputSeen* const* inputs, uint32_t input_count) noexcept;
  bool LaunchList(ThreadState* thread, OpEvent* event) noexcept;
  void CheckUnread(ThreadState* thread) noexcept;
  bool OnLaunched(ThreadState* thread, OpEvent* event, int gpu, const GpuChecks::Launched& launched,
                  const LaunchedTensors& tensors) noexcept;
  bool EnqueueLists(ThreadState* thread, const TensorsToCheck& fact) noexcept;
  bool EnqueueList(ThreadState* thread, CheckedAs as, TensorListPtr list, bool is_last) noexcept;
  void EnqueueNumber(ThreadState* thread, CheckedAs as, const InputSeen& scalar) noexcept;
  void RememberScalar(ThreadState* thread, const Frame& frame, const InputSeen& output) noexcept;
  void EnqueueLossOf(ThreadState* thread, const SequenceEntry* root) noexcept;
  void EnqueueScale(ThreadState* thread, const Frame& frame, const InputSeen& written) noexcept;
  bool EnqueueMeasured(ThreadState* thread, CheckedAs as, std::span<const CheckedTensor> tensors,
                       uint64_t snapshot, std::span<const device::SampleSpan> samples) noexcept;
  void MeasureWritten(ThreadState* thread, const Moment& moment,
                      std::span<const InputSeen* const> written) noexcept;
  void MeasureResults(ThreadState* thread, std::span<const at::TensorBase* const> results) noexcept;
  // Level sampled: what came by a collective may be read by any op until the update, so inputs are
  // asked for until then.
  void HoldForCollectives() noexcept;
  void ReleaseAfterUpdate() noexcept;
  // Whether what the op has left may wait for its batch.
  [[nodiscard]] static bool MayBeBatched(const ThreadState* thread, const Frame& frame,
                                         std::span<const InputSeen* const> written) noexcept;
  // The graph that the thread's stream is captured into; null: none. `begins`: asked for an event
  // that may be the first of a graph. Else nothing is asked while no graph is known to be open.
  GpuGraph* CapturedGraph(const ThreadState* thread, bool begins) noexcept;
  GpuGraph* FindGraph(GpuChecks::Graph place) noexcept;
  void EnqueueReplay(ThreadState* thread, GpuGraph* graph) noexcept;

  const Parts parts_;
  GpuState& state_;
  GpuResolver& resolver_;
  Settings settings_;
  std::once_flag begun_;
  KnownCalls calls_;
  LateCopies late_copies_;
  std::atomic<bool> holds_for_collectives_{false};

  // The last result of one element that needs a gradient, which may turn out to be a loss; covered
  // by the mutex.
  std::mutex scalar_mutex_;
  SequenceRef scalar_of_;
  InputSeen scalar_{};
};

}  // namespace nanwatch
