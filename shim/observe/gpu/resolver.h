// SPDX-License-Identifier: Apache-2.0
// The event queue's other half: enqueued events, with what the GPU has answered since, given to those
// who decide about them.
//
// Events are resolved on a ThreadState of no thread, whose `told` points to what was recorded of the
// moment: where (place), when, by whom, from which of the user's lines. So clocks, numbers of passes
// and the table of bad values are those of the event's own time, not of the host's.
//
// Threads: one at a time; the others find it taken.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>

#include "shim/classify/bad_values.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/gpu_graphs.h"
#include "shim/observe/gpu/gpu_state.h"
#include "shim/observe/gpu/op_note.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BackwardPasses;
class CleanOutputs;
class CollectiveRecords;
class CompiledWrites;
class ExternalValues;
class Findings;
class GpuListener;
class InputTracking;
class KnownBad;
class LevelState;
class LossReads;
class NamedValues;
class ParameterStats;
class Poison;
class PoisonWatch;
class ProcessSegment;
class PythonBridge;
class ScalarReads;
class ScalerState;
class StepLosses;
class StepProgress;
class StepScope;

namespace canary {
class GpuGradients;
}  // namespace canary

class GpuResolver {
 public:
  // All outlive it.
  struct Parts {
    ProcessSegment& segment;
    const PythonBridge& python;
    InputTracking& input_tracking;
    const LevelState& level;
    GpuListener& listener;
    // what is known
    BadValues& bad_values;
    KnownBad& known_bad;
    Poison& poison;
    StepProgress& progress;
    // who decides about ops
    Findings& findings;
    CleanOutputs& clean_outputs;
    ScalarReads& scalar_reads;
    // about passes and steps
    StepScope& steps;
    StepLosses& losses;
    ScalerState& scaler_state;
    BackwardPasses& passes;
    PoisonWatch& poison_watch;
    canary::GpuGradients& gradients;  // of the update that comes next
    LossReads& loss_reads;
    ParameterStats& parameter_stats;
    // and about what no op has written
    ExternalValues& external_values;
    NamedValues& named_values;
    CompiledWrites& compiled_writes;
    CollectiveRecords& collective_records;
  };
  GpuResolver(GpuState& state, const Parts& parts) noexcept : parts_(parts), state_(state) {}

  // Before the queue is on. False: there is no memory.
  [[nodiscard]] bool Prepare() noexcept;
  // Resolves what is answered. Does nothing while another thread is at it.
  void TryResolve() noexcept;
  // Nothing is resolved any more: what the process ends with is destroyed next.
  void Stop() noexcept { resolving_.lock(); }

  // Fills in what is known of the frame's inputs on a GPU.
  void FillInputs(ThreadState* thread, const Frame& frame) noexcept;
  // As LateFacts'.
  bool ResolveReceived(ThreadState* thread, const PlainTensor& tensor) noexcept;
  bool AssumeSource(const ThreadState* thread, const PlainTensor& tensor, wire::Source* source,
                    ValueRef* value) const noexcept;

 private:
  [[nodiscard]] bool FindBad(const InputSeen& seen, BadEntry* entry) const noexcept;
  // Names of parameters take room in the segment only where one is reported.
  [[nodiscard]] uint32_t NameOf(const SeenTensor& tensor) const noexcept;
  // Finds out about an input of an op that is resolved: `looked_at` says whether the launch has
  // checked it, which it does only where an output is bad.
  void SettleInput(bool looked_at, SeenTensor* tensor) const noexcept;
  [[nodiscard]] BadEntry EntryOf(const PlainTensor& tensor, ValueRef value, uint32_t site) noexcept;
  // False: the event at the head waits.
  [[nodiscard]] bool ResolveHead(QueuedEvent* head) noexcept;
  void RecordLost(const QueuedEvent& event) noexcept;
  void ResolveOptimizerBegin(const OptimizerEvent& begin) noexcept;
  // The op's frame and inputs, as they were; true if it has read something bad as its first
  // argument.
  bool FillFrame(OpEvent& event, const GpuAnswer* answer, bool bad) noexcept;
  void ResolveBadOp(OpEvent& event, const GpuAnswer& answer) noexcept;
  void ResolveReady() noexcept;
  bool IsStuck(const QueuedEvent& head) noexcept;
  // From here on the resolving thread is where and when the event was.
  void RecordRead(const OpEvent& event, const GpuAnswer& answer) noexcept;
  void BeginResolving(const QueuedEvent& event) noexcept;
  void Resolve(QueuedEvent& event, const GpuAnswer* answer) noexcept;
  void ResolveOp(OpEvent& event, const GpuAnswer* answer) noexcept;
  void ResolveLateCopy(OpEvent& event) noexcept;
  void ResolveBadOutputs(OpEvent& event, const device::CheckResult& result) noexcept;
  void RecordNewestBad(const OpEvent& event) noexcept;
  uint16_t TakeInputs(const OpEvent& event, uint16_t place) noexcept;
  void ResolveTensors(OpEvent& event, const GpuAnswer& answer) noexcept;
  void ResolveTensor(OpEvent& event, SeenTensor& tensor) noexcept;
  void SettleGiven(OpEvent& event, const GpuAnswer& answer) noexcept;
  void ResolveOfRegion(const OpEvent& event, const PlainTensor& output) noexcept;
  void ResolveLeaf(LeafEvent& event) noexcept;
  void ResolveSums(const OpEvent& event, const device::ListSums& sums) noexcept;
  void ResolveList(OpEvent& event, const GpuAnswer& answer) noexcept;
  void ResolveMeasures(const OpEvent& event, const device::Measure* measures) noexcept;
  void KeepForReplays(QueuedEvent* event) noexcept;
  QueuedEvent* MoveToGraph(QueuedEvent* event) noexcept;
  void GiveOwnNode(GpuGraph* graph, QueuedEvent* event) noexcept;
  QueuedEvent* CopyOf(const QueuedEvent& noted, const ReplayEvent& replay) noexcept;
  void ResolveReplay(ReplayEvent& replay) noexcept;
  bool ResolveUnannounced() noexcept;
  void RecordUnannounced(uint64_t ticket, uint64_t now) noexcept;
  void ResolveOnce(ReplayEvent& replay, const QueuedEvent& noted, bool nothing_found,
                   uint64_t after) noexcept;
  void ResolveCollective(CollectiveEvent& event) noexcept;
  void ResolveGiven(const PlainTensor& tensor) noexcept;
  // A copy that left bad values: whether what it copied had come by a collective. Recorded then.
  bool ResolveCopyOfReceived(const OpEvent& event) noexcept;
  // Level sampled (resolver_batches.cc). `answer` is null where the batch was not launched.
  struct BatchAnswer;
  void ResolveBatch(BatchEvent& batch, const GpuAnswer* answer) noexcept;
  void ResolveBadBatch(BatchAnswer& found) noexcept;
  void ResolveBadLeaf(const BatchAnswer& found, OpNote& leaf) noexcept;
  [[nodiscard]] static bool IsMasks(const BatchAnswer& found) noexcept;
  void RecordMasks(BatchAnswer& found) noexcept;
  static void RecordReadLater(const BatchAnswer& found) noexcept;
  [[nodiscard]] bool IsFirstMask(const OpNote& note) noexcept;
  void ResolveMask(uint64_t number) noexcept;
  void ResolveMasksOf(const OpNote& note) noexcept;
  void ResolveNotes(BatchAnswer& found, std::span<OpNote> notes, bool are_others) noexcept;
  void ResolveBadNotes(const BatchAnswer& found, std::span<OpNote> notes, bool are_others,
                       OpEvent& event, const device::CheckResult& result) noexcept;
  [[nodiscard]] bool AddNoteSource(const BatchEvent& batch, uint64_t producer,
                                   Traced* traced) noexcept;
  [[nodiscard]] bool AddOpSource(uint64_t producer, Traced* traced) noexcept;
  [[nodiscard]] static bool MayHaveReadUnread(const BatchEvent& batch, const OpNote& note,
                                              bool by_edges) noexcept;
  [[nodiscard]] Traced TraceNote(const BatchAnswer& found, const OpNote& note,
                                 bool is_other) noexcept;
  [[nodiscard]] bool TraceForward(const OpNote& note, Traced* traced) noexcept;
  struct NewestBad;
  void TraceNewest(const Moment& moment, bool knows_none, Traced* traced) noexcept;
  static void AddNewest(const NewestBad& newest, Traced* traced) noexcept;
  void RecordNotes(std::span<const OpNote> notes, std::span<const uint8_t> kinds,
                   bool are_others) noexcept;
  void RecordNewest(const OpEvent& event, const InputSeen& result, uint8_t kinds) noexcept;

  const Parts parts_;
  GpuState& state_;
  std::mutex resolving_;        // covers all below
  uint64_t region_bad_at_ = 0;  // number of the last event in which an op of a region was bad
  wire::Source region_source_{};
  ValueRef region_value_;
  uint64_t* last_bad_event_ = nullptr;  // not null in a replay: instead of the thread's
  bool skips_update_ = false;           // it will do nothing, because they are bad
  double scale_ = 0;                    // what the next update of the scale leaves
  bool scale_known_ = false;
  ThreadState* resolver_ = nullptr;  // of no thread: on which events are resolved
  uint64_t told_event_ = 0;          // number of the event that is being resolved
  uint64_t own_given_ = 0;  // number of the last collective into which this rank gave something bad
  ValueRef own_value_;      // and what that was
  uint32_t own_site_ = 0;
  ValueRef newest_bad_;  // of an op of a pass, and in which step
  uint32_t newest_bad_step_ = 0;
  ValueRef bad_leaf_;  // the first gradient that a leaf took bad, and in which step
  uint32_t bad_leaf_step_ = 0;
  uint64_t stuck_at_ = 0;  // number of the event that is waited for, and since when
  uint64_t stuck_since_ns_ = 0;
  KnownNotes notes_;
  OpEvent* scratch_ = nullptr;  // in which the ops of a batch are resolved; never freed
  // The last result of an op that was bad.
  struct NewestBad {
    ValueRef value;
    uint32_t site = 0;
    uint8_t kinds = 0;
    uint64_t pass = 0;
    const ThreadState* thread = nullptr;
    uint32_t step = 0;
  };
  // Results of ops that hold -Inf alone, each with its storage held weakly; the oldest go first.
  static constexpr uint64_t kMasksMax = 32;
  OpNote masks_[kMasksMax];
  uint64_t masks_count_ = 0;  // ever kept
  uint32_t mask_step_ = 0;    // in which the last one was
  // Ops and layers whose first mask was reported.
  static constexpr uint32_t kMaskPlacesMax = 64;
  uint64_t mask_places_[kMaskPlacesMax];
  uint32_t mask_places_count_ = 0;
  NewestBad newest_;
  NewestBad newest_in_pass_;  // of a backward pass
  NewestBad newest_without_gradient_;
};

}  // namespace nanwatch
