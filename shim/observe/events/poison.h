// SPDX-License-Identifier: Apache-2.0
// The poisoned state: parameters are bad, so every value computed from them is, and there is
// nothing to learn from any of them. Nothing is watched then (poison_watch.h), until the parameters
// are clean again: a checkpoint was loaded, or the model was made anew.
//
// Of a parameter on the CPU the place of one bad element is kept. While that is bad, nothing else
// is read to know that the parameter is.
//
// Threads: Poisoned() and the like are loads; everything else locks, and is called at steps and on cold paths.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "shim/check/tensor_view.h"
#include "shim/classify/bad_values.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class Poison {
 public:
  // As for BadValues: where a GPU's values are told of late, a parameter whose storage has died
  // holds until everything is told that was noted before its death was seen.
  explicit Poison(const EventClock* clock) noexcept : clock_(clock) {}

  bool Poisoned() const noexcept { return poisoned_.load(std::memory_order_relaxed); }
  // Because of that ops have no callback now, and nothing is read (step/poison_watch.h).
  [[nodiscard]] bool Blind() const noexcept { return blind_.load(std::memory_order_relaxed); }
  // Ops are watched though it is not known yet that the parameters are good again.
  [[nodiscard]] bool Hopeful() const noexcept { return hopeful_.load(std::memory_order_relaxed); }
  // What happens now will not be reported: for those who would record it.
  [[nodiscard]] bool Ignores() const noexcept { return Poisoned() && !Hopeful(); }
  void SetWatched(bool blind, bool hopeful) noexcept {
    blind_.store(blind, std::memory_order_relaxed);
    hopeful_.store(hopeful, std::memory_order_relaxed);
  }

  // A parameter was left bad. `named` is null for one that no module holds (a bare leaf, a C++
  // program): it is then told by its memory, which is held weakly.
  void Mark(const NamedTensor* named, const PlainTensor& tensor) noexcept;

  // A named parameter has this memory now. On a GPU nobody has looked at it: what was bad counts as
  // bad still.
  void Move(const NamedTensor& named, const PlainTensor& tensor) noexcept;

  // Known of a GPU's memory, which cannot be looked at here: it was written, and is good.
  void RecordCleanWrite(const void* storage, uint64_t byte_begin, uint64_t byte_end) noexcept;

  // All parameters on GPUs were found to hold nothing bad.
  void RecordCleanGpus() noexcept;
  // fn(const PlainTensor&) for each listed parameter on a GPU that no module holds and that lives:
  // one row of all its memory.
  template <typename Fn>
  void ForEachNamelessOnGpu(Fn&& fn) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (uint32_t i = 0; i < count_; ++i) {
      HeldParameter held;
      if (parameters_[i].named == nullptr && Hold(parameters_[i], &held)) fn(held.tensor);
    }
  }

  // A loss is finite though parameters are bad: a row of an embedding that is never looked up, a
  // model that another one is trained beside. What goes on has nothing of them, so the state is
  // left, or not entered. False: neither. Until a loss is bad nothing enters it again, and after a
  // few times (models that train by turns) nothing ever does.
  bool LeaveAlone() noexcept;
  void OnBadLoss() noexcept { idle_.store(false, std::memory_order_relaxed); }

  // Leaves the state whatever the parameters are: a notebook's next cell may train another model
  // while the bad one is still alive. The next update that leaves one bad enters it again.
  void Leave() noexcept;

  enum class Change : uint8_t { kNone, kEntered, kLeft };
  // At a point where the program begins something new: enters the state when a parameter was marked
  // since, and leaves it when none is bad any more.
  Change Settle(const PythonNames& names) noexcept;

 private:
  // One bad parameter. Where there are many, the first few speak for all until they are clean.
  struct Parameter {
    const NamedTensor* named;
    WeakStorage storage;  // of a nameless one, and of one on a GPU
    wire::ElementType type;
    uint64_t byte_begin;
    uint64_t byte_end;
    bool on_gpu;
    bool clean_again;  // told of one on a GPU
    uint64_t gone_by;  // likewise: as in BadEntry
    int64_t bad_at;    // of one on the CPU: an element that was bad, in the order of its memory
    int8_t gpu;
  };
  // Such a parameter, while its memory is held.
  struct HeldParameter {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    int64_t numel = 0;
    int64_t stride = 1;
    PlainTensor tensor{};
  };
  static constexpr uint32_t kParametersMax = 8;
  static constexpr uint32_t kLeftAloneMax = 3;

  bool IsKnown(const NamedTensor* named, const PlainTensor& tensor) const noexcept;
  bool IsBad(const PythonNames& names, Parameter& parameter) const noexcept;
  bool IsGone(Parameter& parameter) const noexcept;
  bool AnyIsBad(const PythonNames& names) noexcept;
  void LeaveLocked() noexcept;
  bool DropOneGone() noexcept;  // of those on the CPU
  void Forget() noexcept;       // all that are listed
  static bool Hold(const Parameter& parameter, HeldParameter* held) noexcept;

  const EventClock* const clock_;
  std::mutex mutex_;
  std::atomic<bool> poisoned_{false};
  std::atomic<bool> blind_{false};
  std::atomic<bool> hopeful_{false};
  std::atomic<bool> idle_{false};  // what is bad has spoiled no loss since
  uint32_t left_alone_ = 0;
  bool due_ = false;
  bool more_ = false;  // than stand in the list
  uint32_t count_ = 0;
  Parameter parameters_[kParametersMax] = {};
};

}  // namespace nanwatch
