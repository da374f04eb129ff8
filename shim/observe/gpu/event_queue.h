// SPDX-License-Identifier: Apache-2.0
// What happens in a job with a GPU, in the order in which it happened, told when the GPU has
// answered.
//
// What the rest of the observer decides about a value (its class, its sources, how far it got)
// depends on what was decided about the values before it. On the CPU an op's values are looked at
// where the op ends, and everything is decided there. A GPU answers late. So from the first tensor
// of a GPU on, ops, passes, leaves and updates are *noted*, as events in one queue, and *told* to
// the same functions that a job on the CPU calls directly, one after another, each when its check's
// answer is there:
//
//   op ends  -> note: moment, tensors, launch of the check ----.
//   pass begins, leaf, update -> note                          |  events, in order
//   Settle: answers of the GPU -> tell the events at the head -'-> findings.h, backward_pass.h, ...
//
// Told events run on a ThreadState of no thread, whose `told` points to what was noted of the
// moment: where (place), when, by whom, from which of the user's lines. So clocks, numbers of
// passes and the table of bad values are those of the event's own time, not of the host's.
//
// What lives on the CPU in such a job is looked at and told where it happens, as ever; what the GPU
// has answered by then is told before.
//
// What is captured into a CUDA graph is told at every replay: event_queue_graphs.h.
//
// Threads: events are noted by any, told by one at a time; nobody waits for another to finish
// telling but at exit, and where that was asked for (WaitForGpu). Nothing is allocated once the
// queue is mapped, but for graphs. An op that finds the queue full is not checked, and counted.
#pragma once

#include <ATen/core/TensorBase.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "shim/classify/bad_values.h"
#include "shim/observe/events/checked_tensor.h"
#include "shim/observe/gpu/gpu_checks.h"
#include "shim/observe/gpu/gpu_collective_results.h"
#include "shim/observe/gpu/gpu_cuts.h"
#include "shim/observe/gpu/late_copies.h"
#include "shim/observe/gpu/moment.h"
#include "shim/observe/gpu/queue_memory.h"
#include "shim/observe/python/calls/graph_calls.h"
#include "shim/observe/python/known_calls.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class Observer;
struct Gradients;
struct NamedTensor;
struct SeenTensor;

namespace canary {
class GpuGradients;
}  // namespace canary

class GpuEventQueue {
 public:
  // What the environment asks for. Set before any op is seen.
  struct Settings {
    bool checks = true;  // NANWATCH_GPU is not "0"
    uint64_t queue_bytes_for_test = 0;
  };
  void Set(const Settings& settings) noexcept { settings_ = settings; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }

  // From now on events are noted, because a tensor of a GPU was seen. False: this process's GPUs
  // cannot be checked, which is said once.
  bool Begin(Observer& observer) noexcept;
  [[nodiscard]] bool On() const noexcept { return on_.load(std::memory_order_relaxed); }

  // Bit i: something of GPU i has been looked at, or would have been.
  [[nodiscard]] uint32_t gpus() const noexcept { return gpu_.gpus_seen(); }

  // For BadValues, from the start.
  [[nodiscard]] const EventClock* clock() const noexcept { return &clock_; }
  [[nodiscard]] KnownCalls& calls() noexcept { return calls_; }
  [[nodiscard]] uint64_t next_event() const noexcept {
    return clock_.noted.load(std::memory_order_relaxed) + 1;
  }

  // ---- noting, on the thread on which it happens

  // An op ended. Its inputs are those noted in the frame; the tensors of a GPU that it returned
  // stand behind them in the thread's inputs, `returned` of them.
  void EnqueueOp(Observer& observer, ThreadState* thread, const Frame& frame,
                 uint32_t returned) noexcept;
  // An op ended that copies from a GPU to `to`, on the CPU, without waiting for it: what is known
  // of its source when all before it is told is known of the copy, which is not read.
  void EnqueueLateCopy(Observer& observer, ThreadState* thread, const Frame& frame,
                       const InputSeen& to) noexcept;
  // Whether such a copy to this tensor, on the CPU, may not have arrived yet.
  [[nodiscard]] bool MayBeUnderWay(const PlainTensor& tensor) noexcept {
    return late_copies_.MayBeUnderWay(tensor, next_event());
  }
  // An op returned memory of another's (a view), or wrote values nobody needs to look at.
  void EnqueueView(Observer& observer, ThreadState* thread, const Frame& frame,
                   const PlainTensor& tensor) noexcept;
  // Tensors that no op of this moment hands over. Of what a compiled region has returned: the
  // region, and those of its arguments that lie on a GPU; as many as fit are looked at.
  // Gradients and what an update has written are looked at in lists, and so is what is wanted as a
  // number (event_queue_lists.cc).
  using CheckedAs = nanwatch::CheckedAs;
  // False: some of them will not be looked at.
  bool EnqueueTensors(Observer& observer, ThreadState* thread, CheckedAs as,
                      std::span<const CheckedTensor> tensors, const RegionSeen& region = {},
                      std::span<const CheckedTensor> given = {}) noexcept;
  // ---- what is measured for a snapshot of parameters (event_queue_figures.cc)

  // Whether it can be now. The event queue is on.
  [[nodiscard]] bool MayMeasure(Observer& observer, const ThreadState* thread) noexcept;
  // Each of the tensors, one run of memory, is measured for snapshot `snapshot`, in which `name` is
  // its place. With `samples`, one for each, these are compared instead with what they were at the
  // look before. False: some were not launched.
  bool EnqueueFigures(Observer& observer, ThreadState* thread, CheckedAs as,
                      std::span<const CheckedTensor> tensors, uint64_t snapshot,
                      std::span<const device::SampleSpan> samples = {}) noexcept;
  // All has been noted of this snapshot. False: there was no room for that.
  bool EnqueueSnapshot(Observer& observer, ThreadState* thread, uint64_t snapshot) noexcept;

  // ---- collectives (event_queue_collectives.cc)

  // One begins, into which these are given, or has ended that hands these out: what lies there is
  // not there yet.
  void EnqueueCollective(Observer& observer, ThreadState* thread, const CollectiveName& collective,
                         std::span<const CheckedTensor> tensors, bool given_in) noexcept;
  // Before it begins: one rank gives, and the others take. What nobody saw being written, such as
  // loaded weights, must be told from what comes.
  void LookAtGiven(Observer& observer, ThreadState* thread, const Frame& frame) noexcept;
  // Whether some of what came was not looked at; then, where an op begins that writes in place.
  [[nodiscard]] bool AnyReceivedUnlooked() const noexcept {
    return collective_results_.AnyUnlooked();
  }
  void LookAtReceived(Observer& observer, ThreadState* thread, const Frame& frame) noexcept;
  // What was noted for a cut is not looked at any more: parameters are bad.
  void LetCutsGo() noexcept {
    if (On() && cuts_.AnyNoted()) cuts_.LetGo();
  }
  // A bad tensor of which nobody is known to have written it: whether it has come by a collective,
  // which is told then and known from there on.
  bool ResolveReceived(Observer& observer, ThreadState* thread, const PlainTensor& tensor) noexcept;

  // Level layer has found something bad in this step, and ops since are watched in full: what
  // one of them reads may have been noted before and lost unread. Then it has come of what was
  // found last rather than from outside the ops. For a bad tensor without a name that nobody is
  // known to have written. Fills kind and value.
  bool AssumeSource(Observer& observer, const ThreadState* thread, const PlainTensor& tensor,
                    wire::Source* source, ValueRef* value) const noexcept;

  // An op handed a non-finite number to Python.
  void EnqueueScalarRead(Observer& observer, ThreadState* thread, const Frame& frame,
                         double number) noexcept;
  // Pass `number` begins at what this entry stands for; null: unknown. The rest as of ResolveBegin.
  void EnqueuePass(Observer& observer, ThreadState* thread, uint64_t number,
                   const SequenceEntry* root, bool tells_loss) noexcept;
  // A leaf takes its gradient; null: not seen.
  void EnqueueLeaf(Observer& observer, ThreadState* thread, const PlainTensor* gradient,
                   const NamedTensor* named) noexcept;
  // The event's number; 0: there was no room for it.
  uint64_t EnqueueOptimizerBegin(Observer& observer, ThreadState* thread, const void* optimizer,
                                 const char* range_name, const Gradients& gradients) noexcept;
  void EnqueueOptimizerEnd(Observer& observer, ThreadState* thread, bool stopped,
                           bool ops_unwatched) noexcept;
  void EnqueuePlainUpdate(Observer& observer, ThreadState* thread) noexcept;
  // Python calls this graph object.
  void OnGraphCall(Observer& observer, ThreadState* thread, const void* graph,
                   GraphCall call) noexcept;

  // ---- cuts of level layer (cuts.h), on the thread on which they are

  [[nodiscard]] bool AnyWaitForCut() const noexcept { return On() && cuts_.AnyNoted(); }
  void CutAtResults(Observer& observer, ThreadState* thread,
                    std::span<const at::TensorBase* const> results) noexcept;
  void CutAtPass(Observer& observer, ThreadState* thread, const SequenceEntry* root) noexcept;
  void CutAtNodeEnd(Observer& observer, ThreadState* thread) noexcept;
  void CutAtUpdate(Observer& observer, ThreadState* thread) noexcept;
  // An op begins that hands what it reads to the CPU.
  void CutAtScalarRead(Observer& observer, ThreadState* thread, const Frame& frame) noexcept;

  // ---- telling

  // Tells what can be told. Does nothing while another thread is at it.
  void Settle(Observer& observer) noexcept;
  // The same, and looks up what is known of the frame's inputs on a GPU: an op has left something
  // bad in the CPU's memory, for which the host has waited.
  void SettleInputs(Observer& observer, ThreadState* thread, const Frame& frame) noexcept;
  // The stream of this thread says how far it is, when it gets there. Before something that makes
  // the host wait for it.
  void AskStream(const ThreadState* thread) noexcept;
  // ---- waiting: only for those who have asked for it (--on-anomaly stop)

  // Until the event with this number is told. False: the GPU will answer later (a capture), or has
  // not for long, which is said.
  bool WaitForGpu(Observer& observer, ThreadState* thread, uint64_t event) noexcept;
  // Until all GPUs that were seen are set up; false: that takes too long.
  bool WaitForSetUp(Observer& observer) noexcept;
  // The process ends: tells what is answered within a moment. The first call counts, and is the
  // the event queue's end.
  void SettleAtExit(Observer& observer) noexcept;

  // A launch was made on this GPU, or could not be: `counted` of what it looks at counts as
  // checked, or not.
  static void CountLaunch(Observer& observer, ThreadState* thread, int gpu,
                          const GpuChecks::Launched& launched,
                          std::span<const InputSeen* const> counted) noexcept;
  [[nodiscard]] static constexpr bool AreGradients(CheckedAs as) noexcept {
    return as == CheckedAs::kGradients || as == CheckedAs::kSkippableGradients ||
           as == CheckedAs::kWatchedGradients;
  }
  // Of what is handed over in lists: its numbers are of no interest.
  [[nodiscard]] static constexpr bool IsOnlyChecked(CheckedAs as) noexcept {
    return as == CheckedAs::kWritten || as == CheckedAs::kGiven || as == CheckedAs::kReceived ||
           as == CheckedAs::kProbe;
  }
  // What is looked at for its figures alone, and was or will be looked at as what it is.
  [[nodiscard]] static constexpr bool IsForFigures(CheckedAs as) noexcept {
    return as == CheckedAs::kWatchedGradients || as == CheckedAs::kLossNumber ||
           as == CheckedAs::kScale || as == CheckedAs::kScaleOfStep ||
           as == CheckedAs::kGradientScale || as == CheckedAs::kFoundInf ||
           as == CheckedAs::kProbe || as == CheckedAs::kMeasuredGradients ||
           as == CheckedAs::kMeasuredResults || as == CheckedAs::kSampled ||
           as == CheckedAs::kMeasuredUpdates;
  }

 private:
  struct Event;
  struct OpEvent;
  struct ViewEvent;
  struct PassEvent;
  struct LeafEvent;
  struct OptimizerEvent;
  struct ReplayEvent;
  struct SnapshotEvent;
  struct CollectiveEvent;
  struct Graph;
  struct Graphs;
  struct Parts;

  static void StartSettling(Observer* observer) noexcept;
  void EndBeforeDriver() noexcept;
  template <class T>
  T* Reserve(size_t extra_bytes = 0) noexcept;
  void Publish(Event* event) noexcept;
  Event* Head() noexcept;
  // Where the byte lies before which so many were ever reserved.
  [[nodiscard]] unsigned char* At(uint64_t byte) const noexcept {
    return queue_->begin + (byte & (queue_->bytes - 1));
  }
  void Release(Event* event) noexcept;

  void KeepRead(const InputSeen& seen, SeenTensor* kept) noexcept;
  void ResolveLateCopy(Observer& observer, OpEvent& event) noexcept;
  void EnqueuePart(Observer& observer, ThreadState* thread, const Frame& frame,
                   const Moment& moment, const Parts& parts) noexcept;
  bool EnqueueFewTensors(Observer& observer, ThreadState* thread, CheckedAs as,
                         std::span<const CheckedTensor> tensors, const RegionSeen& region,
                         std::span<const CheckedTensor> given) noexcept;
  // Room for an event of so many tensors, of which the first are looked at; null: there is none,
  // and these are counted as unchecked.
  OpEvent* ReserveHanded(Observer& observer, ThreadState* thread, CheckedAs as, size_t looked_at,
                         size_t others) noexcept;
  bool EnqueuePartOfTensors(Observer& observer, ThreadState* thread, CheckedAs as,
                            std::span<const CheckedTensor> tensors, const RegionSeen& region,
                            std::span<const CheckedTensor> given) noexcept;
  bool Launch(Observer& observer, ThreadState* thread, OpEvent* event,
              const InputSeen* const* outputs, const InputSeen* const* inputs,
              uint32_t input_count) noexcept;
  void ResolveBadOutputs(Observer& observer, OpEvent& event,
                         const device::CheckResult& result) noexcept;
  uint16_t TakeInputs(const OpEvent& event, uint16_t place) noexcept;
  void ResolveTensors(Observer& observer, OpEvent& event, const GpuAnswer& answer) noexcept;
  void ResolveOfRegion(Observer& observer, const OpEvent& event,
                       const PlainTensor& output) noexcept;
  void ResolveTensor(Observer& observer, OpEvent& event, SeenTensor& tensor) noexcept;
  void SettleGiven(Observer& observer, OpEvent& event, const GpuAnswer& answer) noexcept;
  static void DropTensors(OpEvent* event) noexcept;
  static void Drop(Event* event) noexcept;

  // ---- event_queue_lists.cc
  bool EnqueueLists(Observer& observer, ThreadState* thread, CheckedAs as,
                    std::span<const CheckedTensor> tensors) noexcept;
  bool EnqueueList(Observer& observer, ThreadState* thread, CheckedAs as,
                   std::span<const CheckedTensor* const> tensors, bool is_last) noexcept;
  void EnqueueNumber(Observer& observer, ThreadState* thread, CheckedAs as,
                     const InputSeen& scalar) noexcept;
  void RememberScalar(ThreadState* thread, const Frame& frame, const InputSeen& output) noexcept;
  void EnqueueLossOf(Observer& observer, ThreadState* thread, const SequenceEntry* root) noexcept;
  void EnqueueScale(Observer& observer, ThreadState* thread, const Frame& frame) noexcept;
  void ResolveSums(Observer& observer, const OpEvent& event, const device::ListSums& sums) noexcept;
  void ResolveList(Observer& observer, OpEvent& event, const GpuAnswer& answer) noexcept;

  // ---- event_queue_figures.cc
  bool EnqueueMeasured(Observer& observer, ThreadState* thread, CheckedAs as,
                       std::span<const CheckedTensor> tensors, uint64_t snapshot,
                       std::span<const device::SampleSpan> samples) noexcept;
  void MeasureWritten(Observer& observer, ThreadState* thread, const Moment& moment,
                      std::span<const InputSeen* const> written) noexcept;
  void MeasureResults(Observer& observer, ThreadState* thread,
                      std::span<const at::TensorBase* const> results) noexcept;
  void ResolveMeasures(Observer& observer, const OpEvent& event,
                       const device::Measure* measures) noexcept;

  // ---- event_queue_cuts.cc
  // Whether the cuts of level layer decide now what is looked at.
  [[nodiscard]] bool CutsNow(Observer& observer, ThreadState* thread) noexcept;
  [[nodiscard]] bool MayWaitForCut(Observer& observer, ThreadState* thread, const Frame& frame,
                                   const InputSeen& output) noexcept;
  void RecordForCuts(Observer& observer, ThreadState* thread, bool at_once,
                     OpEvent* event) noexcept;
  void ResolveCutsOfTensors(Observer& observer, ThreadState* thread, OpEvent* event,
                            const InputSeen* const* tensors) noexcept;
  // The level is another one: what was noted is looked at, as far as it is there.
  void LeaveCutsIfLeft(Observer& observer, ThreadState* thread) noexcept;
  [[nodiscard]] bool IsHeldForCuts(OpEvent& event) noexcept;
  void ResolveByCuts(Observer& observer, OpEvent& event) noexcept;
  void RecordToldAtLayer(OpEvent& event, uint64_t known) noexcept;
  // An output that is not known to be bad.
  void ResolveNotBad(Observer& observer, OpEvent& event, uint32_t output) noexcept;
  void ResolveUnknown(const OpEvent& event) noexcept;
  // All tensors of an event that is told were known.
  void ResolveKnown(const Event& event) noexcept;
  [[nodiscard]] Traced TraceAtLayer(const OpEvent& event,
                                    const device::CheckResult& result) noexcept;

  // ---- event_queue_graphs.cc
  // The graph that the thread's stream is captured into; null: none. `begins`: asked for an event
  // that may be the first of a graph. Else nothing is asked while no graph is known to be open.
  Graph* CapturedGraph(Observer& observer, const ThreadState* thread, bool begins) noexcept;
  Graph* FindGraph(GpuChecks::Graph place) noexcept;
  void EnqueueReplay(Observer& observer, ThreadState* thread, Graph* graph) noexcept;
  void KeepForReplays(Event* event) noexcept;
  Event* MoveToGraph(Event* event) noexcept;
  void GiveOwnNode(Graph* graph, Event* event) noexcept;
  void ResolveReplay(Observer& observer, ReplayEvent& replay) noexcept;
  void ResolveOnce(Observer& observer, ReplayEvent& replay, const Event& noted, bool nothing_found,
                   uint64_t after) noexcept;
  Event* CopyOf(const Event& noted, const ReplayEvent& replay) noexcept;
  bool ResolveUnannounced(Observer& observer) noexcept;
  void RecordUnannounced(uint64_t ticket, uint64_t now) noexcept;

  void ResolveReady(Observer& observer) noexcept;
  bool IsStuck(const Event& head) noexcept;
  void Resolve(Observer& observer, Event& event, const GpuAnswer* answer) noexcept;
  void ResolveOp(Observer& observer, OpEvent& event, const GpuAnswer* answer) noexcept;
  void ResolveLeaf(Observer& observer, LeafEvent& event) noexcept;
  void RecordNewestBad(Observer& observer, const OpEvent& event) noexcept;
  template <class Fn>
  void LookAtInputs(Observer& observer, ThreadState* thread, const Frame& frame, CheckedAs as,
                    Fn&& wanted) noexcept;
  void ResolveCollective(Observer& observer, CollectiveEvent& event) noexcept;
  void ResolveGiven(Observer& observer, const PlainTensor& tensor) noexcept;
  // A copy that left bad values: whether what it copied had come by a collective. Recorded then.
  bool ResolveCopyOfReceived(Observer& observer, const OpEvent& event) noexcept;

  Settings settings_;
  std::atomic<bool> on_{false};
  std::once_flag begun_;
  EventClock clock_;
  KnownCalls calls_;
  LateCopies late_copies_;
  GpuChecks gpu_;
  GpuCuts cuts_{gpu_};
  GpuCollectiveResults collective_results_;
  std::atomic<bool> pressed_{false};  // the queue is half full

  std::mutex mutex_;                    // covers the queue
  const QueueMemory* queue_ = nullptr;  // from Begin on
  uint64_t begin_ = 0;                  // bytes ever released, and ever reserved
  uint64_t end_ = 0;

  // The last result of one element that needs a gradient, which may turn out to be a loss; covered
  // by the mutex.
  std::mutex scalar_mutex_;
  SequenceRef scalar_of_;
  InputSeen scalar_{};

  std::mutex telling_;                             // covers all below
  canary::GpuGradients* gpu_gradients_ = nullptr;  // of the update that comes next
  uint64_t region_bad_at_ = 0;  // number of the last event in which an op of a region was bad
  wire::Source region_source_{};
  ValueRef region_value_;
  uint64_t* last_bad_event_ = nullptr;  // not null in a replay: instead of the thread's
  bool skips_update_ = false;           // it will do nothing, because they are bad
  double scale_ = 0;                    // what the next update of the scale leaves
  bool scale_known_ = false;
  ThreadState* resolver_ = nullptr;
  uint64_t told_event_ = 0;  // number of the event that is being told
  uint64_t own_given_ = 0;  // number of the last collective into which this rank gave something bad
  ValueRef own_value_;      // and what that was
  uint32_t own_site_ = 0;
  ValueRef newest_bad_;  // of an op of a pass, and in which step
  uint32_t newest_bad_step_ = 0;
  ValueRef bad_leaf_;  // the first gradient that a leaf took bad, and in which step
  uint32_t bad_leaf_step_ = 0;
  uint64_t stuck_at_ = 0;  // number of the event that is waited for, and since when
  uint64_t stuck_since_ns_ = 0;
  uint64_t quiet_at_ = 0;  // events noted when the head was first found to be held for cuts
  uint64_t quiet_since_ns_ = 0;

  Graphs* graphs_ = nullptr;  // says itself what covers it
  // The thread that has captured something into a graph whose end was not seen; null: there is
  // none.
  std::atomic<const ThreadState*> captures_{nullptr};
};

}  // namespace nanwatch
