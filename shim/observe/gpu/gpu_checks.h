// SPDX-License-Identifier: Apache-2.0
// The checker of the process's GPUs as the observer uses it: made when the first tensor of a GPU is
// seen, asked with the observer's own tensors, and its answers kept until the events that they
// belong to are told (event_queue.h).
//
// Threads: Check from any; Collect and Find from one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>

#include "shim/device/device_checker.h"
#include "shim/observe/events/tensor_list.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

// What a launch found. `result` is not filled in unless the outcome is kBad.
struct GpuAnswer {
  uint64_t ticket;
  device::Finished::Outcome outcome;
  const device::CheckResult* result;
  const device::ListSums* sums = nullptr;     // of a list that was summed
  const device::Measure* measures = nullptr;  // of one that was measured
};

// One run of memory, for a list or a batch.
inline device::ListEntry EntryOf(const InputSeen& seen) noexcept {
  return device::MakeEntry(reinterpret_cast<uintptr_t>(seen.data),
                           static_cast<uint64_t>(seen.numel), static_cast<uint8_t>(seen.type));
}

class GpuChecks {
 public:
  // False, with a line for the user: there is no driver that the checks can use.
  bool Begin(const char** why) noexcept;

  // What is looked at in one launch: the first kOutputsMax and kInputsMax. All on one GPU.
  struct Launched {
    uint64_t ticket = 0;  // 0: nothing was launched, and `reason` says why
    wire::Unchecked reason = wire::Unchecked::kGpuNotReady;
    const char* down =
        nullptr;  // why this GPU is not checked any more, the first time that it is so
    bool nothing_to_check = false;
    // The check is a node of this graph, counted from 1 on each GPU, and answers in this slot.
    uint32_t graph = 0;
    uint32_t slot = 0;
  };
  // `reports`: the stream tells how far it is when it gets there, as every one but the default
  // does.
  Launched Check(ThreadState* thread, std::span<const InputSeen* const> outputs,
                 std::span<const InputSeen* const> inputs, bool reports) noexcept;
  // The same of a list (device/list_launch.h). With `sums` it is summed besides, which is told but
  // of what is captured into a graph. `kinds_only`: it is only asked which are bad.
  Launched CheckList(ThreadState* thread, const TensorList& list, bool reports, bool sums,
                     bool kinds_only) noexcept;
  // The same of a batch (device/batch_launch.h), on the stream on which all of it was written: the
  // others are read on a hit alone, and of large entries `phase` says which sixteenth is read.
  Launched CheckBatch(int gpu, device::CuStream stream, std::span<const device::BatchEntry> entries,
                      std::span<const device::BatchEntry> others, uint32_t phase) noexcept;
  // The current stream, on which this thread is about to have something checked.
  [[nodiscard]] device::CuStream EnterStream(ThreadState* thread, int gpu) noexcept;
  // Whether the stream is being captured into a graph.
  [[nodiscard]] bool IsCaptured(int gpu, device::CuStream stream) const noexcept {
    return checker_->CapturedInto(gpu, stream) != 0;
  }
  // Measures each tensor of such a list, device::kMeasuredMax at most; or compares the sample of
  // each, where there are any.
  Launched MeasureList(ThreadState* thread, std::span<const InputSeen* const> list,
                       std::span<const device::SampleSpan> samples) noexcept;

  // The default stream, if this thread has last had something checked there, tells how far it is
  // when it gets there. (Every other stream does with each launch.)
  void Ask(const ThreadState* thread) noexcept;
  // The same of the default streams of all GPUs, whoever has launched there.
  void AskAll() noexcept;
  // Whether all GPUs that were seen answer by now, or never will.
  [[nodiscard]] bool AllSetUp() noexcept;
  // A step has ended, in the order of the current stream.
  void AddStep(const ThreadState* thread) noexcept;

  // ---- graphs (gpu_graphs.h)
  struct Graph {
    int gpu = 0;
    uint32_t number = 0;  // 0: none
    [[nodiscard]] uint32_t key() const noexcept {
      return number << 5 | static_cast<uint32_t>(gpu);  // as many GPUs as gpus_seen_ has bits
    }
  };
  // What the current stream is captured into. Something may be asked of what nothing has been
  // checked in yet.
  [[nodiscard]] Graph CapturedInto(const ThreadState* thread) const noexcept;
  // A ticket that is answered when the current stream has come here; 0: it cannot be.
  [[nodiscard]] uint64_t Mark(int gpu) noexcept;
  // What a check of the graph has found in a span of its replays; false: nothing. The answer lives
  // until the next call.
  [[nodiscard]] bool FindReplayed(int gpu, uint32_t slot, uint64_t after, uint64_t through,
                                  GpuAnswer* answer) noexcept;
  void Forget(int gpu, uint32_t slot) noexcept { checker_->Forget(gpu, slot); }
  // Tickets of checks in graphs that have found something since the last call, a few at a time.
  [[nodiscard]] std::span<const uint64_t> TakeNoticed() noexcept;

  // Takes in what has been answered since.
  void Collect() noexcept;
  // Null: not answered yet. `*lost`: it never will be.
  [[nodiscard]] const GpuAnswer* Find(uint64_t ticket, bool* lost) noexcept;

  [[nodiscard]] uint32_t gpus_seen() const noexcept {
    return gpus_seen_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t newest_answer() const noexcept { return newest_answer_; }
  // Whether the driver is initialised, and has not ended with the process yet.
  [[nodiscard]] bool DriverIsUp() const noexcept;
  // The one that is current to the calling thread; -1: that is not known.
  [[nodiscard]] int CurrentGpu() const noexcept;
  // Of the current GPU the driver has little left to give.
  [[nodiscard]] bool IsMemoryScarce() const noexcept;
  // The answers lie in memory of this process's own, which outlives CUDA.
  [[nodiscard]] bool ReadableForEver() const noexcept;

  // Of the calling thread. The default stream once its thread-locals are being destroyed, among
  // which libtorch's current streams are: nobody can say then which it was.
  [[nodiscard]] device::CuStream CurrentStream(int gpu) const noexcept;
  // The calling thread runs the process's exit handlers: from here on it may have things checked on
  // the default stream, though it has no current streams any more.
  void BeginExit() noexcept;
  [[nodiscard]] bool AtExit() const noexcept { return at_exit_.load(std::memory_order_acquire); }
  // Whether a check has found more than masks (-Inf alone) since this was last asked.
  [[nodiscard]] bool TakeHit() noexcept { return std::exchange(hit_, false); }

 private:
  // Whether what the calling thread launches comes behind what it has launched before.
  [[nodiscard]] bool MayLaunch() const noexcept;
  [[nodiscard]] Launched WhatBecameOf(const device::Enqueued& enqueued, int gpu) noexcept;
  static void OnFinished(void* self, const device::Finished& finished);

  // More than launches can be under way, so that answers do not get in each other's way.
  static constexpr uint64_t kAnswers = 8192;

  device::DeviceChecker* checker_ = nullptr;  // never destroyed
  std::atomic<uint32_t> gpus_seen_{0};        // bit i: GPU i
  std::atomic<uint32_t> gpus_down_{0};
  // Several tables, because hardly any launch finds anything: the second is touched where one does.
  uint64_t newest_answer_ = 0;
  GpuAnswer* answers_ = nullptr;
  device::CheckResult* results_ = nullptr;
  device::ListSums* sums_ = nullptr;  // few launches have any
  device::CheckResult replayed_ = {};
  // Only where the replays of a graph are not announced does it matter what was noticed.
  static constexpr size_t kNoticedMax = 64;
  uint64_t noticed_[kNoticedMax] = {};
  size_t noticed_count_ = 0;
  bool hit_ = false;
  std::atomic<bool> at_exit_{false};
  int32_t (*current_stream_)(int32_t gpu, void** stream) = nullptr;
  device::CuResult (*context_get_current_)(device::CuContext* context) = nullptr;
  device::CuResult (*mem_get_info_)(size_t* free, size_t* total) = nullptr;     // may stay null
  device::CuResult (*context_get_device_)(device::CuDevice* device) = nullptr;  // may stay null
};

}  // namespace nanwatch
