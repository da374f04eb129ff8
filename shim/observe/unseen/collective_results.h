// SPDX-License-Identifier: Apache-2.0
// What collectives have brought or may be bringing. A process group announces a collective as a
// range that begins on the caller's thread, and ends on another one when the data are there
// (collectives.h), but possibly after those who waited for them have gone on: what an op finds may
// have come by a collective that is still open here.
#pragma once

#include <ATen/core/TensorBase.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class CollectiveRecords;
class GpuTensors;
class KnownBad;
class LateFacts;
class Poison;
class StepClock;

// Tensors that a collective writes. Its storages are held weakly.
struct CollectiveResult {
  CollectiveName collective;
  const Layer* layer = nullptr;
  uint32_t step = 0;  // in which it was begun
  std::vector<InputSeen> tensors;
  bool brings_bytes = false;  // objects, pickled (broadcast_object_list): tensors may be in them
  // Nobody wants to know any more what came back.
  std::atomic<bool> abandoned{false};
  // Covered by CollectiveResults' lock:
  bool found_bad = false;
  ValueRef received;  // what was found

  CollectiveResult(const CollectiveName& name, uint32_t at_step)
      : collective(name), layer(CurrentLayer()), step(at_step) {}
  CollectiveResult(const CollectiveResult&) = delete;
  CollectiveResult& operator=(const CollectiveResult&) = delete;
  ~CollectiveResult();

  // Null for what cannot be read.
  InputSeen* Add(const at::TensorBase& tensor);
};

// Any thread. Nothing is read under the lock that the begin and the end of every collective take.
// One thread checks results at a time: what one has found and not yet recorded would be nobody's to
// another.
class CollectiveResults {
 public:
  // All outlive it.
  CollectiveResults(KnownBad& known_bad, CollectiveRecords& records, Poison& poison,
                    StepClock& clock, LateFacts& late) noexcept
      : known_bad_(known_bad), records_(records), poison_(poison), clock_(clock), late_(late) {}

  // The tensor that came back bad by a collective of this step, if there is one; checks what is
  // there by now. For an op that met something bad which nobody is known to have written. Without
  // `written` the thread may be a process group's own: it waits for what is being handed out.
  bool FindReceived(ThreadState* thread, const BadOutput* written, int count, wire::Source* source,
                    ValueRef* value) noexcept;
  // Checks what has come in this step, so that it is known to be bad. What the op that is ending
  // has itself written (`written`) did not come by a collective.
  void CheckAll(ThreadState* thread, const BadOutput* written, int count) noexcept;

  // A collective has begun.
  void RecordBegun(const CollectiveResult& result) noexcept {
    any_begun_.store(true, std::memory_order_relaxed);
    if (result.brings_bytes) has_unnamed_.store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] bool any_begun() const noexcept {
    return any_begun_.load(std::memory_order_relaxed);
  }
  // What lies where it was given in: between the begin and the end of its range.
  void Open(std::shared_ptr<CollectiveResult> result) noexcept;
  // Checks what came back, if nobody has yet, and lets go of it. Gives what was found.
  ValueRef Close(ThreadState* thread, const std::shared_ptr<CollectiveResult>& result) noexcept;

  // The tensors that the collective begun last on this thread writes elsewhere (all_gather): nobody
  // announces when they are there, so those of the newest collectives are kept, and checked when
  // something bad wants explaining.
  // Between the two calls a process group's own thread may already be unpacking them.
  void OnHandingOut(ThreadState* thread, const Frame& frame) noexcept;
  void OnHandedOut(ThreadState* thread, const Frame& frame,
                   const std::vector<c10::IValue>& outputs) noexcept;
  // For such a thread: waits as for a turn (below) until no op is between them.
  void AwaitHandedOut() noexcept;

  // What this rank has given to such a collective in this step and was bad: it gets that back, too.
  // False: there was nothing.
  [[nodiscard]] bool FindGiven(wire::Source* source) noexcept;

  // For a bad value that nothing else explains. It may have come by a collective of this step that
  // does not return its results (gather): a number under which the ranks that gave something bad to
  // it are recorded, in place of a shared memory file's. 0: there was no such collective.
  uint64_t UnnamedBringer() noexcept;
  // There was such a collective in this process, in any step, or one of which nobody knows what it
  // brought: its end was seen too late, or it brought objects.
  [[nodiscard]] bool may_bring_unnamed() const noexcept {
    return has_unnamed_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr int kOpenMax = 64;  // more are checked when they end
  static constexpr uint32_t kHandedOutMax = 32;
  static constexpr uint32_t kChecksPerStepMax = 64;

  struct Held;
  // `step`: the one that runs.
  void TakeHold(const std::shared_ptr<CollectiveResult>& result, uint32_t step,
                std::vector<Held>* all);
  bool TakeHoldOfAll(std::vector<Held>* all);
  void Check(ThreadState* thread, const std::vector<Held>& all, const BadOutput* written,
             int count) noexcept;
  [[nodiscard]] bool CameBackBad(const Held& held) noexcept;
  void RecordGiven(const wire::Source& given) noexcept;
  void RecordReceived(const Held& held, const wire::Source& source, ValueRef value) noexcept;
  void Forget(const CollectiveResult* result) noexcept;
  void RemoveOpen(int place) noexcept;
  void Keep(ThreadState* thread, const std::vector<c10::IValue>& outputs) noexcept;
  uint64_t CountCall(const OpTraits* op) noexcept;

  // Held by the thread that checks, until it has recorded all it found. Who waits for it in vain
  // for kPatienceMs checks as well: the other waits for the GIL, or was left behind by a fork. Only
  // where it can go on by itself is it waited for longer.
  class Turn;
  static constexpr int kPatienceMs = 50;

  KnownBad& known_bad_;
  CollectiveRecords& records_;
  Poison& poison_;
  StepClock& clock_;
  LateFacts& late_;

  std::mutex turn_;              // taken before mutex_
  std::atomic<int> turn_of_{0};  // whose it is; 0: nobody's, or not known
  std::mutex mutex_;             // covers all below that is not atomic
  std::shared_ptr<CollectiveResult> open_[kOpenMax];
  int count_ = 0;
  std::shared_ptr<CollectiveResult> handed_out_[kHandedOutMax];
  uint32_t next_handed_out_ = 0;
  wire::Source given_{};
  uint32_t given_step_ = UINT32_MAX;
  // How often each op that hands results out was called. All ranks of a group call it equally often
  // and in the same order; a process group's own threads may begin it in another order.
  static constexpr int kCountedOpsMax = 32;
  struct CountedOp {
    const OpTraits* op = nullptr;
    uint64_t calls = 0;
  };
  CountedOp counted_[kCountedOpsMax];
  uint64_t unnamed_ = 0;  // the newest with kKeepsResults, and the step it was begun in
  uint32_t unnamed_step_ = 0;
  std::atomic<bool> has_unnamed_{false};
  std::atomic<bool> any_begun_{false};
  std::atomic<int8_t> handing_out_{0};  // ops that have begun and not ended
  std::atomic<int> hands_out_{0};       // the thread that began the last of them
  uint32_t checks_step_ = 0;            // the step of the last check, and how many it had
  uint32_t checks_ = 0;
  // The tensor that came back bad last, and the step in which it was given in.
  wire::Source last_{};
  ValueRef last_value_;
  uint32_t last_step_ = 0;
};

}  // namespace nanwatch
