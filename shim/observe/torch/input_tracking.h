// SPDX-License-Identifier: Apache-2.0
// The two callbacks of RECORDS: A (outputs) is there while the level checks ops; B (inputs) only
// while something bad and transient is alive, because asking for inputs costs 1 to 3 % and, from
// torch 2.10 on, makes libtorch take the GIL inside ops.
//
// B has no code: while it is there, libtorch boxes every op's arguments, and A finds them. Adding
// it takes effect with the next op, also from inside a callback.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace at {
struct ObserverContext;
struct RecordFunction;
}  // namespace at

namespace nanwatch {

// What libtorch calls (op/callbacks.h).
struct OpCallbacks {
  using Start = std::unique_ptr<at::ObserverContext> (*)(const at::RecordFunction&);
  using End = void (*)(const at::RecordFunction&, at::ObserverContext*);
  Start start;  // A: ops, autograd nodes and ranges
  End end;
  Start range_start;  // A, for a level that checks no op: ranges alone
  End range_end;
  Start input_start;  // B
};

class InputTracking {
 public:
  explicit InputTracking(const OpCallbacks& callbacks) noexcept : callbacks_(callbacks) {}

  // Registers A; without `check_ops` one that only sees ranges.
  void Register(bool check_ops) noexcept;
  // A sees ops while they are watched everywhere, or in an open range; else ranges alone, or, where
  // nobody needs them, there is no callback. Takes effect with the next op; does nothing before
  // Register and after Unregister.
  void WatchEverywhere(bool on) noexcept;
  void WatchRanges(bool on) noexcept;
  // No op is seen, wherever it was asked for, until this is taken back.
  void Suspend(bool on) noexcept;
  void BeginWatchedRange() noexcept;
  // True when that was the last one and ops go unwatched from here on.
  bool EndWatchedRange() noexcept;
  // Removes both, until Register is called again.
  void Unregister() noexcept;

  // Covers every call of ours into libtorch's table of callbacks. For a thread that forks
  // (forks.h).
  [[nodiscard]] std::mutex& callbacks_mutex() noexcept { return mutex_; }
  // Whether this process was forked from one that was observed.
  [[nodiscard]] bool inherited() const noexcept { return inherited_; }
  // In a forked child: takes over the registrations, which the child shares with its parent's
  // memory.
  void Inherit(const InputTracking& parents) noexcept;

  bool armed() const noexcept { return armed_.load(std::memory_order_relaxed); }
  // Asks for inputs until Disarm.
  void Arm() noexcept;
  // Inputs were asked for since Disarm, or ops, and libtorch's lock could not be had: nobody saw
  // them.
  bool refused() const noexcept {
    return refused_.load(std::memory_order_relaxed) || behind_.load(std::memory_order_relaxed);
  }
  // The same for a step that ends. What was refused is over once inputs are there.
  bool TakeRefused() noexcept;
  void Disarm() noexcept;
  // While held, Disarm does nothing: an optimizer range whose writes can only be seen with inputs
  // is open.
  void Hold() noexcept;
  void Release() noexcept;

 private:
  void Switch(bool on) noexcept;
  enum class Sees : uint8_t { kNothing, kRanges, kOps };
  // With mutex_ held:
  [[nodiscard]] Sees Wanted() const noexcept;
  void Watch() noexcept;  // as is wanted now
  [[nodiscard]] bool checks_ops() const noexcept { return sees_ == Sees::kOps; }
  [[nodiscard]] uint64_t AddOutputsCallback() const;
  [[nodiscard]] uint64_t AddRangeCallback() const;
  [[nodiscard]] uint64_t AddInputCallback() const;
  // False in a forked child that would wait for libtorch's lock for ever: what its parent has
  // registered then stays.
  [[nodiscard]] bool MayChange() const noexcept;

  const OpCallbacks callbacks_;
  std::atomic<bool> armed_{false};
  std::atomic<bool> refused_{false};
  std::atomic<bool> behind_{false};  // ops are to be seen, and are not
  std::mutex mutex_;
  bool inherited_ = false;  // from the parent of a forked child
  bool registered_ = false;
  Sees sees_ = Sees::kNothing;
  bool everywhere_ = false;
  bool ranges_ = true;
  bool suspended_ = false;
  int watched_ranges_ = 0;
  int holds_ = 0;
  // Handles of libtorch's; 0: not registered.
  uint64_t callback_ = 0;
  uint64_t input_callback_ = 0;
};

}  // namespace nanwatch
