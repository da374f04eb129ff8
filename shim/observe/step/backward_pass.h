// SPDX-License-Identifier: Apache-2.0
// Backward passes: their roots, and the leaves that bad gradients reached.
//
// A pass is one graph task of the autograd engine, entered from outside any node; passes inside a
// node (activation checkpointing) belong to it. The engine announces neither begin nor end: a pass
// begins with its first node, and has ended when the next one begins, or an optimizer range, or a
// forward of a root.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/wire/record.h"
#include "shim/observe/thread/thread_state.h"

namespace at {
struct RecordFunction;
}

namespace nanwatch {

class BadValues;
class FindingRecords;
class InputTracking;
class KnownBad;
class LateFacts;
class LossRoots;
class PassLeaves;
class Poison;
class PoisonWatch;
class ProcessSegment;
class PythonNames;
class RecentValues;
class StepLosses;
class StepProgress;
struct StepMarks;
struct NamedTensor;

class BackwardPasses {
 public:
  // All outlive it.
  struct Uses {
    ProcessSegment& segment;
    FindingRecords& records;
    RecentValues& recent;
    KnownBad& known_bad;
    BadValues& bad_values;
    InputTracking& tracking;
    const PythonNames& names;
    Poison& poison;
    PoisonWatch& poison_watch;
    StepMarks& marks;
    StepProgress& progress;
    StepLosses& losses;
    LossRoots& roots;
    LateFacts& late;
    PassLeaves& leaves;
  };
  explicit BackwardPasses(const Uses& uses) noexcept : uses_(uses) {}

  // One that no other pass has.
  uint64_t DrawNumber() noexcept { return numbers_.fetch_add(1, std::memory_order_relaxed) + 1; }
  // A node begins in a graph task that this thread has not seen; `root` is what made the node. The
  // engine has a thread for each GPU: the first that comes begins the pass. Gives its number.
  uint64_t OnBegin(ThreadState* thread, int task, const SequenceEntry* root) noexcept;
  // The same once it is known what the root's value is; `number` is the pass's. `root_is_loss`:
  // and its number is not recorded yet.
  void RecordBegin(ThreadState* thread, uint64_t number, const SequenceEntry* root,
                   bool root_is_loss) noexcept;
  // AccumulateGrad begins. `range` carries its input while inputs are asked for.
  void OnLeaf(ThreadState* thread, const at::RecordFunction& range) noexcept;
  // The same once it is known what the leaf takes; null: nothing that is bad.
  void RecordLeaf(ThreadState* thread, const PlainTensor* gradient,
                  const NamedTensor* named) noexcept;
  // The first bad gradients that were found where an optimizer's step begins.
  struct BadLeaves {
    uint32_t count = 0;
    wire::Source sources[wire::kSourcesMax] = {};
    ValueRef values[wire::kSourcesMax] = {};
    const NamedTensor* names[wire::kSourcesMax] = {};  // null: not known

    // Beyond these a pass is known by the first ones.
    [[nodiscard]] bool IsFull() const noexcept { return count == wire::kSourcesMax; }
    void Add(ValueRef value, uint8_t kinds, const NamedTensor* named) noexcept;
  };
  // Where ops are not watched: `leaves_bad` of `leaves` gradients are bad, and then the loss is.
  void OnBadGradients(ThreadState* thread, uint32_t leaves, uint32_t leaves_bad,
                      const BadLeaves& bad) noexcept;
  void OnBadLoss(ThreadState* thread, ValueRef loss) noexcept;
  // The pass that is about to begin has this bad loss for its root, which no watched op made.
  void ExpectRoot(ValueRef loss) noexcept;
  // The root of the pass that is open or was last, if it was bad.
  [[nodiscard]] ValueRef BadRoot() noexcept;
  // Whether the newest pass has left a bad gradient.
  [[nodiscard]] bool NewestHasBadLeaf() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return record_.leaves_bad != 0;
  }
  // Something began that cannot be part of the pass that is open.
  void Close(ThreadState* thread) noexcept;

  // Asks for inputs from here to the end of the pass, because gradients come that no observed op
  // writes.
  void HoldInputs() noexcept;
  void ReleaseInputs() noexcept;

 private:
  // The bad passes that one place has caused.
  struct BadPasses {
    uint32_t site = 0;
    uint64_t count = 0;
  };
  static constexpr int kBadSitesMax = 64;

  // With mutex_ held, all of these.
  void CloseHeld(ThreadState* thread) noexcept;
  void ReleaseInputsHeld() noexcept;
  void RecordLossOf(const ThreadState* thread, const SequenceEntry& root) noexcept;
  void Emit(ThreadState* thread, uint32_t flags) noexcept;
  // Whether the record of the bad pass that is open goes out; counts it.
  bool IsWorthWriting() noexcept;
  bool SetRoot(ValueRef root) noexcept;
  void EmitBadRoot(ThreadState* thread, ValueRef root, uint32_t flags = 0) noexcept;

  const Uses uses_;

  std::mutex begin_mutex_;  // covers the next two; taken before mutex_
  int begun_task_ = -1;     // the graph task last seen, and the number of its pass
  uint64_t begun_number_ = 0;
  std::atomic<uint64_t> numbers_{0};  // drawn, one for each pass

  std::mutex mutex_;  // covers everything below
  bool open_ = false;
  wire::PassRecord record_{};  // of the open pass
  ValueRef expected_root_;     // of the pass that begins next
  ValueRef bad_root_;          // of the newest pass
  bool reached_leaf_ = false;
  bool counted_ = false;        // of the open pass, when it is first found bad
  bool scaled_ = false;         // likewise: its loss was scaled when it began
  bool worth_writing_ = false;  // what was found then
  bool holds_inputs_ = false;
  BadPasses bad_passes_[kBadSitesMax];
  int bad_sites_ = 0;  // entries of it
};

}  // namespace nanwatch
