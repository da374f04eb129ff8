// SPDX-License-Identifier: Apache-2.0
// Collectives: what this rank gave in and what came back. The process group announces each as a
// range that begins on the caller's thread, carries the tensors, and ends on another thread when
// the data are there, but possibly after those who waited for them have gone on: what an op finds
// may have come by a collective that is still open in these books.
#pragma once

#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class Observer;
struct BadOutput;
struct PlainTensor;
struct Frame;
struct OpTraits;
struct ThreadState;
struct Layer;
struct CollectiveResult;
struct LookedAt;

// What collectives have brought or may be bringing. Any thread. Nothing is read under the lock
// that the begin and the end of every collective take. One thread looks at a time: what one has
// found but not yet told would be nobody's to another.
class CollectiveResults {
 public:
  // The tensor that came back bad by a collective of this step, if there is one; looks at what is
  // there by now. For an op that came upon something bad which nobody is known to have written.
  bool FindReceived(Observer& observer, ThreadState* thread, const BadOutput* written, int count,
                    wire::Source* source, ValueRef* value) noexcept;
  // Looks at what has come in this step, so that the table of bad values knows it. What the op that
  // is ending has itself written (`written`) did not come by a collective.
  void LookAtAll(Observer& observer, ThreadState* thread, const BadOutput* written,
                 int count) noexcept;

  // What lies where it was given in: between the begin and the end of its range.
  void Open(CollectiveResult* result) noexcept;
  void Forget(const CollectiveResult* result) noexcept;
  // Looks at what came back, if nobody has yet, and forgets it.
  void Close(Observer& observer, ThreadState* thread, CollectiveResult* result) noexcept;

  // The tensors that the collective begun last on this thread writes elsewhere (all_gather): nobody
  // tells when they are there, so those of the newest collectives are kept and looked at when
  // something bad wants explaining.
  // Between the two calls a process group's own thread may already be unpacking them.
  void OnHandingOut(Observer& observer, ThreadState* thread, const Frame& frame) noexcept;
  void OnHandedOut(Observer& observer, ThreadState* thread, const Frame& frame,
                   const std::vector<c10::IValue>& outputs) noexcept;
  // For such a thread: waits, for kPatienceMs at most, until no op is between them.
  void AwaitHandedOut() noexcept;

  // For a bad value that nothing else explains. It may have come by a collective of this step that
  // does not return its results (gather): a number under which the ranks that gave something bad to
  // it are recorded, in place of a shared memory file's. 0: there was no such collective.
  uint64_t UnnamedBringer(Observer& observer) noexcept;
  // There was such a collective in this process, in any step.
  [[nodiscard]] bool may_bring_unnamed() const noexcept {
    return has_unnamed_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr int kOpenMax = 64;  // more are looked at when they end
  static constexpr uint32_t kHandedOutMax = 32;
  static constexpr uint32_t kLooksPerStepMax = 64;

  void Look(Observer& observer, ThreadState* thread, const std::vector<LookedAt>& all,
            const BadOutput* written, int count) noexcept;
  void Keep(Observer& observer, ThreadState* thread,
            const std::vector<c10::IValue>& outputs) noexcept;
  uint64_t CountCall(const OpTraits* op) noexcept;
  void RecordReceived(const LookedAt& looked_at, const wire::Source& source,
                      ValueRef value) noexcept;

  // Held by the thread that looks, until it has told all it found. Who waits for it in vain for
  // kPatienceMs looks as well: the other may wait for the GIL, or be left behind by a fork.
  class Turn;
  static constexpr int kPatienceMs = 50;

  std::mutex turn_;  // taken before mutex_
  std::mutex mutex_;
  CollectiveResult* open_[kOpenMax] = {};
  int count_ = 0;
  CollectiveResult* handed_out_ =
      nullptr;  // kHandedOutMax of them, made when first needed; never freed
  uint32_t next_handed_out_ = 0;
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
  std::atomic<int8_t> handing_out_{0};  // ops that have begun and not ended
  uint32_t looks_step_ = 0;             // the step of the last look, and how many there were in it
  uint32_t looks_ = 0;
  wire::Source
      last_{};  // the tensor that came back bad last, and the step in which it was given in
  ValueRef last_value_;
  uint32_t last_step_ = 0;
};

// "gloo:all_reduce", "nccl:broadcast", ...
bool IsCollective(const char* range_name) noexcept;

// What must be known when the range ends; nullptr when there is nothing to look at.
std::unique_ptr<at::ObserverContext> BeginCollective(Observer& observer, ThreadState* thread,
                                                     const at::RecordFunction& range) noexcept;
void EndCollective(Observer& observer, ThreadState* thread, at::ObserverContext* context) noexcept;

// Tells that this tensor has come bad by the collective, which was begun in this layer.
ValueRef ReportReceived(Observer& observer, ThreadState* thread, const PlainTensor& tensor,
                        const CollectiveName& collective, const Layer* layer) noexcept;
// The collective's record, by which the daemon finds it on other ranks. `input`: the first bad
// tensor given in; null: none is known. `output`: what came back bad.
void EmitCollective(Observer& observer, ThreadState* thread, const CollectiveName& collective,
                    const wire::Source* input, ValueRef output) noexcept;

}  // namespace nanwatch
