// SPDX-License-Identifier: Apache-2.0
// Level layer for tensors on a GPU: which of the values that ops leave there are looked at, and
// when. cuts.h says what a cut is; what is here differs from it because a GPU is asked, not read.
//
// An op is noted as an event of the event queue, with its inputs, but without a launch of its own.
// Its outputs stay *open* until the next cut on their stream. There one launch looks at what
// crosses the cut and, only where that is bad, at all open values beside it that are still alive
// and not written over: the device itself decides, in the order of the stream. So one launch stands
// for many, and what was found is told of each op in the order of writing, by the rules of level
// full.
//
//   open ----cut: crosses it-----------> known      its values will be known
//    | '-----cut: lies beside it-------> gated      they are known if the cut is bad
//    |          gated ---node's end, update---> gated again, or known
//    '---dead, written over, no room---> gone       never known
//
// A node of the backward looks, gated by what it leaves, at what the forward op that made it has
// read and left: that is what it has saved, and alive until a moment later. So a forward op whose
// bad result did no harm until then is found. For that, events of the forward are not told before
// the update begins (or until half the event queue is full).
//
// Values of up to 4 KB are held until their cut, and all cross it: what dies unread is what costs
// exactness, and most of it is small (losses, norms, rates). Nothing larger is held.
//
// What a node leaves is still there when the next one ends, which has read it: where the node has
// saved nothing that is unknown, one launch serves both.
//
// Whoever reads a value is known with it: each noted input knows which events have written it. An
// op is exact if all of these are known, and of an op of the backward the results of the forward op
// that made its node, too.
//
// What is looked at at once, behind the op, as at level full: ops of optimizers, lists and
// GradScaler's (their results are many and small), of compiled regions, in captures of graphs, and
// on a stream that the thread has only now gone to: what is written on one stream is never looked
// at on another, since its memory may have been given away there.
//
// Threads: noting and cutting from any, under one mutex; telling by one at a time (event_queue.h).
// Nothing is allocated once it is prepared.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "shim/classify/bad_values.h"
#include "shim/entry/observer_interface.h"
#include "shim/observe/gpu/gpu_checks.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class LevelState;
struct Moment;
struct SeenTensor;
struct StepMarks;
struct Traced;

// Where the answer about one tensor is: place among a launch's outputs or, `gated` by those, its
// inputs. Ticket 0: nothing needed to be asked.
struct CutLook {
  uint64_t ticket;
  uint8_t place;
  bool gated;
  bool in_list;  // the launch looks at a list: `place` is its entry
};

// What cuts keep of one tensor of an event.
struct CutTensor {
  // The first look, and the last two.
  static constexpr uint32_t kLooksMax = 3;
  CutLook looks[kLooksMax];
  uint32_t looks_count;
  // Of an input: which tensors of which events have written it. None: nobody is known to
  // have.
  struct Writer {
    uint64_t event;
    uint8_t tensor;
  };
  static constexpr uint32_t kWritersMax = 4;
  Writer writers[kWritersMax];
  uint8_t writers_count;
  bool in_part;  // somebody else has written a part of it

  void Add(const CutLook& look) noexcept;
};

// And of an op's event.
struct CutOp {
  bool at_layer = false;  // else nothing below says anything
  bool at_once = false;   // it has a launch of its own
  bool backward = false;
  bool needed = false;           // a later cut may ask for it, until the step ends
  uint64_t number = 0;           // the event's
  uint64_t forward = 0;          // of the event of the op that made the running node
  bool forward_unknown = false;  // there is one that was not noted
  bool seen_beside = false;      // what is bad was looked at because something else was
  uint64_t known = 0;            // bit i: its tensor i was, when it was told
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  SeenTensor* tensors = nullptr;
  std::atomic<uint32_t> open{0};  // of its tensors

  [[nodiscard]] bool IsKnown(uint32_t tensor) const noexcept { return (known >> tensor & 1) != 0; }
  [[nodiscard]] bool AllOutputsKnown() const noexcept {
    const uint64_t all = (uint64_t{1} << outputs) - 1;
    return (known & all) == all;
  }
};

// Whether what this op leaves is recorded at level layer rather than checked at once (level/cuts.h).
// In an optimizer's range, and where a step without an optimizer may show, everything is checked.
[[nodiscard]] bool MayRecordForCut(const LevelState& level, const StepMarks& steps,
                                   const ThreadState* thread, const OpTraits& op) noexcept;

class GpuCuts {
 public:
  // What outlives its step is state that a job keeps; more than this is left unknown.
  static constexpr uint64_t kOutlivingBytesMax = uint64_t{64} << 20;

  // More open values of one stream than this are cut where they stand: the newest are looked at,
  // and the older ones if one of these is bad. As many as one launch takes.
  static constexpr uint32_t kOpenMax = device::kOutputsMax + device::kInputsMax;

  // Held until their cut: at most kOpenMax of them on a stream.
  static constexpr uint64_t kHeldBytesMax = 4096;

  // Both outlive it.
  GpuCuts(GpuChecks& gpu, const NanwatchEntry& entry) noexcept : gpu_(gpu), entry_(entry) {}
  bool Prepare() noexcept;

  // ---- noting. The ops' events are reserved, and not published yet

  // Whether what this op leaves on the current stream may wait for a cut.
  [[nodiscard]] bool MayWait(ThreadState* thread, int gpu) noexcept;
  // The op's tensors are in the event. `at_once`: its launch has this ticket.
  void Record(ThreadState* thread, const Frame& frame, const Moment& moment, CutOp* op,
              bool at_once, uint64_t ticket) noexcept;
  // An op has left something here that nobody will ever look at.
  void RecordLost(const InputSeen& tensor, uint64_t event) noexcept;
  // An op has left values here that nobody needs to look at.
  void RecordClean(const InputSeen& tensor, uint64_t event) noexcept;
  // Somebody unseen writes here: who has written it is not known any more.
  void Forget(const InputSeen& tensor) noexcept;
  // A launch that was made for other reasons looks at these tensors, as its outputs.
  void RecordTensors(std::span<const InputSeen* const> tensors, uint64_t event, uint64_t ticket,
                     bool as_list) noexcept;

  // ---- cuts
  [[nodiscard]] bool AnyNoted() const noexcept { return any_.load(std::memory_order_relaxed); }
  // A module's call has returned this. `now`: no later result may stand for it, or share a launch.
  void AtResult(ThreadState* thread, const PlainTensor& tensor, bool now) noexcept;
  void AtPass(ThreadState* thread, const SequenceEntry* root) noexcept;
  void AtNodeEnd(ThreadState* thread) noexcept;
  void AtUpdate(ThreadState* thread) noexcept;
  // The op that begins hands what it reads to the CPU.
  void AtEscape(ThreadState* thread, const InputSeen& input) noexcept;
  // Level layer is left: all that is alive on the thread's stream is looked at, all else let go.
  void CloseAll(ThreadState* thread) noexcept;
  // Lets go of everything, without a look: nothing is known any more of who has written what. Any
  // thread.
  void LetGo() noexcept;
  // What was noted so far need not wait for a pass that asks for it.
  void Finalize(uint64_t through) noexcept;

  // Lets go of what only a thread that has the GIL may. For such a one.
  void ReleaseWithGil() noexcept;

  // ---- telling
  [[nodiscard]] bool MayReport(const CutOp& op) const noexcept {
    // In this order: what is final is not opened again.
    const bool final = !op.needed || op.number <= final_.load(std::memory_order_acquire);
    return final && op.open.load(std::memory_order_acquire) == 0;
  }
  // A ticket that the op's event has to wait for; 0: none.
  [[nodiscard]] uint64_t FirstUnanswered(const CutOp& op) noexcept;
  // What is known of a tensor; of a bad one, in which place of which answer.
  enum class Known : uint8_t { kNot, kClean, kBad };
  struct Finding {
    Known known = Known::kNot;
    bool gated = false;
    uint8_t kinds = 0;
    bool brief = false;
    bool by_place = false;  // the first bad one is told by its place in memory, not its index
    bool counted = false;
    device::TensorCounts counts = {};
  };
  [[nodiscard]] Finding Find(const CutTensor& tensor) noexcept;
  // The event is told. Bit i of `known`: its tensor i was known; the last bit: all outputs were.
  static constexpr uint64_t kOutputsKnown = uint64_t{1} << 63;
  // What it has left is not known, but a NaN went in and no op of its kind loses one.
  static constexpr uint64_t kHandsOnNan = uint64_t{1} << 62;
  void RecordTold(uint64_t event, uint64_t known) noexcept;
  // Its unknown values may be bad, because these are.
  void RecordDoubt(uint64_t event, const BadEntry& from, uint8_t kinds) noexcept;
  [[nodiscard]] bool IsResolved(uint64_t event, uint64_t bit) const noexcept {
    const Told& told = told_[event % kTold];
    return told.event == event && (told.known & bit) != 0;
  }
  [[nodiscard]] const BadEntry* FindDoubt(uint64_t event) const noexcept;
  // What is to be said of the sources of an op beside those that are known to be bad.
  [[nodiscard]] Traced Trace(const CutOp& op) const noexcept;

 private:
  enum class State : uint8_t { kOpen, kKnown, kGated, kGone };
  struct List;
  struct Entry {
    WeakStorage storage;  // held weakly by the entry itself, so that no other has its address
    uint64_t byte_begin;
    uint64_t byte_end;
    int64_t numel;
    uint64_t older;  // number + 1 of the one before in its bucket
    uint64_t event;
    CutOp* op;  // null: not to be asked for
    List* list;
    uint8_t tensor;
    State state;
    bool dense;
    bool needed;
    bool leaf;               // the gradient of a leaf
    bool result;             // it crosses the next cut
    bool deferred;           // the end of a node has left it to the next one's
    c10::StorageImpl* held;  // while it is open, if it is small
  };
  // Of one device and stream.
  struct List {
    void* stream;
    int8_t gpu;
    bool used;
    uint32_t open_count;
    uint32_t results;
    uint64_t open[kOpenMax];  // numbers of entries
  };
  struct Made {
    const SequenceEntry* entry;
    int64_t sequence_plus_one;
    CutOp* op;
    uint64_t event;
    bool needed;
  };
  struct Told {
    uint64_t event;
    uint64_t known;
  };
  struct Doubt {
    uint64_t event;
    BadEntry from;
  };
  struct Batch;

  static constexpr uint64_t kKept = 1u << 14;  // some ten steps of a model of a hundred layers
  static constexpr uint64_t kBuckets = 1u << 12;
  static constexpr uint64_t kMade = 1u << 13;
  static constexpr uint64_t kTold = 1u << 15;
  static constexpr uint32_t kDoubts = 64;
  static constexpr uint32_t kListsMax = 16;
  // So many ops in a row on one stream, and the thread is at home there.
  static constexpr uint32_t kAtHomeAfter = 16;

  // Holds mutex_. Storages whose last hold may have been ours die after it is given up: freeing one
  // may take the GIL or call the driver.
  class Locked;

  // With mutex_ held, all of these.
  [[nodiscard]] Entry& At(uint64_t number) noexcept { return entries_[number % kKept]; }
  [[nodiscard]] uint64_t oldest() const noexcept;
  [[nodiscard]] List* ListOf(int gpu, void* stream) noexcept;
  [[nodiscard]] static uint64_t Bucket(const void* storage) noexcept;
  Entry* Add(const InputSeen& seen, uint64_t event, uint8_t tensor, List* list) noexcept;
  void MarkOverwritten(const InputSeen& by) noexcept;
  static void Hold(Entry* entry) noexcept;
  void LetDie(c10::StorageImpl* storage) noexcept;
  void Release(Entry* entry) noexcept;
  template <class Fn>
  void ForEachOf(const void* storage, uint64_t begin, uint64_t end, Fn&& fn) noexcept;
  [[nodiscard]] Entry* FindNewest(const void* storage, uint64_t begin, uint64_t end) noexcept;
  void FindWriters(const InputSeen& input, CutTensor* tensor) noexcept;
  void RecordForward(const Moment& moment, CutOp* op) noexcept;
  void Open(ThreadState* thread, Entry* entry) noexcept;
  void MakeRoom(ThreadState* thread, List* list) noexcept;
  [[nodiscard]] bool IsReachable(const Entry& entry) const noexcept;
  [[nodiscard]] bool IsThere(const Entry& entry) const noexcept;
  void Leave(Entry* entry, State state) noexcept;  // from open
  void Cross(ThreadState* thread, Entry* entry) noexcept;
  void Compact(List* list) noexcept;
  void Cut(ThreadState* thread, List* list) noexcept;
  void LookAt(ThreadState* thread, List* list, std::span<Entry* const> crossing,
              std::span<Entry* const> beside) noexcept;
  void Launch(ThreadState* thread, Batch* batch) noexcept;
  void LookAtAlive(ThreadState* thread, uint64_t from, uint64_t bytes_max) noexcept;
  [[nodiscard]] bool IsCurrent(const List& list) const noexcept;
  void AddRead(const List& list, Entry** beside, size_t* count) noexcept;
  void AddKeptOf(const List& list, const CutOp& op, size_t room, Entry** beside,
                 size_t* count) noexcept;
  void CutAllCurrent(ThreadState* thread) noexcept;
  [[nodiscard]] const Made* FindMade(const SequenceEntry* entry, int64_t plus_one) const noexcept;
  void FinalizeLocked(uint64_t through) noexcept;

  GpuChecks& gpu_;
  const NanwatchEntry& entry_;
  std::atomic<bool> any_{false};
  std::atomic<uint64_t> final_{0};  // number of the last event that no cut will ask for

  std::mutex mutex_;  // covers the next
  Entry* entries_ = nullptr;
  uint64_t* buckets_ = nullptr;  // number + 1 of the newest entry
  Made* made_ = nullptr;
  uint64_t count_ = 0;      // entries ever made
  uint64_t forgotten_ = 0;  // of these say nothing any more
  uint64_t newest_event_ = 0;
  uint64_t step_begin_ = 0;  // of the first entry since the last update
  List lists_[kListsMax] = {};
  // Held by nobody else, perhaps: no more than are open, and than a few launches take.
  static constexpr uint32_t kDroppedMax = 2 * kListsMax * kOpenMax;
  c10::StorageImpl* dropped_[kDroppedMax] = {};
  uint32_t dropped_count_ = 0;
  // Storages that a Python object has come to, of which ours may be the last hold.
  static constexpr uint32_t kWithPythonMax = 64;
  c10::StorageImpl* with_python_[kWithPythonMax] = {};
  std::atomic<uint32_t> with_python_count_{0};

  Told* told_ = nullptr;  // these are the teller's
  Doubt doubts_[kDoubts] = {};
  uint32_t doubts_count_ = 0;
};

}  // namespace nanwatch
