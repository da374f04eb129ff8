// The checker of the process's GPUs as the observer uses it: made when the first tensor of a GPU is
// seen, asked with the observer's own tensors, and its answers kept until the events that they
// belong to are told (timeline.h).
//
// Threads: Check from any; Collect and Find from one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "shim/device/device_checker.h"
#include "shim/observe/thread_state.h"

namespace nanwatch {

// What a launch found. `result` is not filled in unless the outcome is kBad.
struct GpuAnswer {
  uint64_t ticket;
  device::Finished::Outcome outcome;
  const device::CheckResult* result;
};

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
  };
  Launched Check(ThreadState* thread, std::span<const InputSeen* const> outputs,
                 std::span<const InputSeen* const> inputs) noexcept;

  // The default stream, if this thread has last had something checked there, tells how far it is
  // when it gets there. (Every other stream does with each launch.)
  void Ask(const ThreadState* thread) noexcept;
  // A step has ended, in the order of the current stream.
  void AddStep(const ThreadState* thread) noexcept;

  // Takes in what has been answered since.
  void Collect() noexcept;
  // Null: not answered yet. `*lost`: it never will be.
  [[nodiscard]] const GpuAnswer* Find(uint64_t ticket, bool* lost) noexcept;

  [[nodiscard]] uint32_t gpus_seen() const noexcept {
    return gpus_seen_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t newest_answer() const noexcept { return newest_answer_; }
  // The answers lie in memory of this process's own, which outlives CUDA.
  [[nodiscard]] bool ReadableForEver() const noexcept;

 private:
  [[nodiscard]] device::CuStream CurrentStream(int gpu) const noexcept;
  static void OnFinished(void* self, const device::Finished& finished);

  // More than launches can be under way, so that answers do not get in each other's way.
  static constexpr uint64_t kAnswers = 8192;

  device::DeviceChecker* checker_ = nullptr;  // never destroyed
  std::atomic<uint32_t> gpus_seen_{0};        // bit i: GPU i
  std::atomic<uint32_t> gpus_down_{0};
  // Two tables, because hardly any launch finds anything: the second is touched where one does.
  uint64_t newest_answer_ = 0;
  GpuAnswer* answers_ = nullptr;
  device::CheckResult* results_ = nullptr;
  int32_t (*current_stream_)(int32_t gpu, void** stream) = nullptr;
};

}  // namespace nanwatch
