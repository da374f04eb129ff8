// SPDX-License-Identifier: Apache-2.0
// Level sampled on a GPU: results of ops are recorded as they come, and one launch checks some
// sixteen ops at once.
//
//   op ends --note--> the thread's open batch --full, or a boundary--> one launch, in stream order
//                     (reserved in the queue)                          then the event is published
//
// A batch takes its place in the event queue with its first note, so that what is enqueued while it
// is open is resolved behind it. Before a thread begins a batch it launches those that others have
// left open: what they hold was written before.
//
// Held until the launch, or until the job finds no memory: results of ops that do not write in
// place, up to kHeldEachMax bytes each and kHeldMax for one batch. All others are known weakly, and
// read if they still live at the launch. What a launch does not read is *unread*: before the GPU is
// set up that is all, a model's parameters first of all. While an unread value lives, launches that
// come after read it too, where they find something bad. It is unread no more once a launch of
// another kind is known to have found it finite: that of what an update has written, or one behind
// a step for what is unread and small.
//
// Of results of more than device::kReadInFullBytes a launch reads a sixteenth, another one after each
// step, and where it finds something all of it: until then they are unread, too.
//
// Only results on a stream where the thread is at home (kAtHomeAfter ops in a row, or the default
// stream) are noted. Elsewhere a later launch would stand behind what the job has recorded there.
//
// Threads: any. A batch is its thread's, taken by a flag for a note or a launch; whoever finds it
// taken goes on, but for its owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "shim/entry/observer_interface.h"
#include "shim/observe/gpu/event_ring.h"
#include "shim/observe/gpu/gpu_checks.h"
#include "shim/observe/gpu/op_note.h"

namespace nanwatch {

class OpBatches {
 public:
  static constexpr uint32_t kOpsMax = 16;
  static constexpr uint64_t kHeldEachMax = uint64_t{4} << 20;
  static constexpr uint64_t kHeldMax = uint64_t{32} << 20;
  static constexpr uint32_t kAtHomeAfter = 16;

  // All outlive it.
  OpBatches(GpuChecks& checks, EventRing& ring, const NanwatchEntry& entry) noexcept
      : checks_(checks), ring_(ring), entry_(entry) {}

  // An op has ended that left these on one GPU. False: they have to be checked by a launch of
  // their own.
  [[nodiscard]] bool Record(ThreadState* thread, const Frame& frame, const Moment& moment,
                            std::span<const InputSeen* const> results) noexcept;
  // The same of one result that is one run of memory. False as well for the first ops on a stream.
  [[nodiscard]] bool Record(ThreadState* thread, const Frame& frame, const Moment& moment,
                            const PlainTensor& result, bool needs_gradient) noexcept;
  [[nodiscard]] bool AnyOpen() const noexcept {
    return open_count_.load(std::memory_order_relaxed) != 0;
  }
  // A launch that was made behind `ops_before` ops has read these in full, and they are finite: what
  // was unread of them is so no more. For the thread that resolves.
  struct ReadRange {
    const void* storage;
    uint64_t byte_begin;
    uint64_t byte_end;
  };
  void RecordRead(std::span<const ReadRange> ranges, uint64_t ops_before) noexcept;
  // Of this GPU's unread values those that fit a list, take a launch little time and were in none
  // yet; and a hold of each, to be let go behind the launch. Null: there is none.
  [[nodiscard]] TensorListPtr TakeUnread(
      int8_t gpu, std::vector<c10::intrusive_ptr<c10::StorageImpl>>* held) noexcept;
  // So many ops were noted so far.
  [[nodiscard]] uint64_t ops() const noexcept { return ops_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool AnyUnread() const noexcept {
    return any_unread_.load(std::memory_order_relaxed);
  }
  // An op that has a launch of its own has written these in place: what stood there before is gone.
  void RecordWritten(std::span<const InputSeen* const> results) noexcept;
  // Launches all open batches, of all threads.
  void LaunchAll() noexcept;
  // Lets go of what is held on this GPU. The calling thread, null: unknown, may be within an op: if
  // that writes in place, it may have written over what its batch was to read, and nothing is
  // launched of it. True: something was held.
  [[nodiscard]] bool LetGo(const ThreadState* thread, int gpu) noexcept;
  // A step has ended: of large results the next ones have another sixteenth read.
  void OnStep() noexcept { phase_.fetch_add(1, std::memory_order_relaxed); }
  // Nothing is launched: what is open goes unread. The process ends, or is in a capture.
  void DropAll() noexcept;
  // A thread ends: its place can be another's.
  void OnThreadEnd(ThreadState* thread) noexcept;
  // Lets go of storages that a Python object has come to. For a thread that has the GIL.
  void ReleaseWithGil() noexcept;

 private:
  struct Open {
    std::atomic<bool> taken{false};
    std::atomic<BatchEvent*> event{nullptr};  // with `taken`, the rest too
    std::atomic<ThreadState*> owner{nullptr};
    int gpu = 0;
    device::CuStream stream = nullptr;
    uint32_t ops = 0;
    uint32_t ops_max = 0;
    uint64_t held_bytes = 0;
  };
  struct Released;
  class Taken;

  [[nodiscard]] Open* OpenOf(ThreadState* thread) noexcept;
  [[nodiscard]] static bool IsAtHome(const ThreadState& thread) noexcept {
    return thread.batch_stream == nullptr || thread.batch_run >= kAtHomeAfter;
  }
  [[nodiscard]] bool Begin(Open& open, const Moment& moment, int gpu,
                           device::CuStream stream) noexcept;
  struct EndedOp;
  // `fill(i, seen)` says what result `i` of the op is, of so many.
  template <class Fill>
  [[nodiscard]] bool RecordResults(const EndedOp& op, int gpu, const c10::TensorImpl& first,
                                   Fill&& fill) noexcept;
  template <class Fill>
  void Add(Open& open, const EndedOp& op, const Producers& producers, uint64_t number,
           Fill&& fill) noexcept;
  static void MarkWrittenOver(BatchEvent& batch, const InputSeen& by) noexcept;
  void Hold(Open& open, OpNote* note) noexcept;
  void Launch(Open& open, Released* released) noexcept;
  void AddUnread(const Open& open, BatchEvent& batch) noexcept;
  void KeepUnread(const BatchEvent& batch) noexcept;
  void KeepOneUnread(const OpNote& note) noexcept;  // mutex_ held, as of the next
  void LoseUnread(const OpNote& note) noexcept;
  // With mutex_ held: those of which `gone` says so.
  template <class Fn>
  void DropUnread(Fn&& gone) noexcept;
  void Release(c10::StorageImpl* held, Released* released) noexcept;
  void Drop(Open& open, Released* released) noexcept;
  template <class Fn>
  void ForEachOpen(Fn&& with) noexcept;
  void CountNotes(const BatchEvent& batch, int gpu, const GpuChecks::Launched& launched) noexcept;

  static constexpr uint32_t kOpenMax = 64;
  static constexpr uint32_t kUnreadMax = 512;
  static constexpr uint32_t kWithPythonMax = 64;

  GpuChecks& checks_;
  EventRing& ring_;
  const NanwatchEntry& entry_;
  std::atomic<uint64_t> ops_{0};
  std::atomic<uint32_t> batches_{0};
  std::atomic<uint32_t> phase_{0};
  std::atomic<uint32_t> open_count_{0};
  std::atomic<uint32_t> used_{0};  // of open_
  std::atomic<bool> any_unread_{false};
  Open open_[kOpenMax];

  std::mutex mutex_;            // covers the rest
  std::vector<OpNote> unread_;  // the oldest first
  // Some were let go that may live.
  bool unread_lost_with_gradient_ = false;
  bool unread_lost_without_ = false;
  c10::StorageImpl* with_python_[kWithPythonMax] = {};
  uint32_t with_python_count_ = 0;
};

}  // namespace nanwatch
