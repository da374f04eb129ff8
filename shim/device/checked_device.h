// SPDX-License-Identifier: Apache-2.0
// One device as the checker knows it: what was set up there, and the launches under way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shim/device/check_launch.h"
#include "shim/device/device_checker.h"
#include "shim/device/driver.h"
#include "shim/device/launch_table.h"

namespace nanwatch::device {

// Where things lie in the memory that host and device both see. Words first, each written by the
// kernel and read by the host: that of the warm-up, then one per stream.
struct HostLayout {
  uint32_t slots = 0;
  uint32_t captured_slots = 0;

  static constexpr size_t kWordsBytes = size_t{(kStreamsMax + 1 + 7) / 8} * 64;
  [[nodiscard]] constexpr size_t Progress(uint32_t stream) const {
    return (size_t{1} + stream) * 8;
  }
  [[nodiscard]] constexpr size_t Result(uint32_t slot) const {
    return kWordsBytes + size_t{slot} * sizeof(CheckResult);
  }
  // Captured slots follow the others, in this memory and in that of the scratch.
  [[nodiscard]] constexpr uint32_t All() const { return slots + captured_slots; }
  [[nodiscard]] constexpr size_t Bytes() const { return Result(All()); }
};

// Graphs of a device in which something is checked.
inline constexpr uint32_t kGraphsMax = 1024;
// One word for the steps of the device, which comes first, and one for the replays of each graph.
inline constexpr size_t kStepWordsBytes = (1 + size_t{kGraphsMax}) * sizeof(StepWords);

// A word in memory that the GPU writes.
[[nodiscard]] inline uint64_t LoadAcquire(const uint64_t* word) noexcept {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

class CurrentContext;

class CheckedDevice {
 public:
  CheckedDevice(CheckerShared& shared, int ordinal) noexcept : shared_(shared), ordinal_(ordinal) {}

  Skip Enqueue(const CheckRequest& request, Enqueued* enqueued) noexcept;
  Skip EnqueueList(const CheckListRequest& request, Enqueued* enqueued) noexcept;
  Skip EnqueueBatch(const CheckBatchRequest& request, Enqueued* enqueued) noexcept;
  Skip AddStep(CuStream stream) noexcept;
  Skip Flush(CuStream stream) noexcept;
  Skip Mark(CuStream stream, Enqueued* enqueued) noexcept;
  [[nodiscard]] uint32_t CapturedInto(CuStream stream) noexcept;
  [[nodiscard]] Found FoundIn(uint32_t captured_slot, uint64_t after, uint64_t through,
                              CheckResult* result) const noexcept;
  void Forget(uint32_t captured_slot) noexcept;
  size_t Poll(FinishedCallback callback, void* context) noexcept;

  [[nodiscard]] bool Ready() noexcept;
  [[nodiscard]] const char* Reason() const noexcept;
  [[nodiscard]] bool UsesGivenMemory() const noexcept;

 private:
  enum class State : uint8_t { kUnseen, kSettingUp, kWarming, kReady, kDown };

  // A call of ours, and what it answered.
  struct Call {
    const char* function = nullptr;
    CuResult result = kCuSuccess;
    [[nodiscard]] bool Failed() const { return result != kCuSuccess; }
  };

  // kNone if checks are made on this device now. A device not seen before is set up, if it may be.
  Skip Enter(CuStream stream) noexcept;
  Skip SetUp(CuStream stream) noexcept;
  Skip SetUpInContext(CuStream stream) noexcept;
  Skip WaitForWarmUp() noexcept;
  // kNone if the context is current now.
  Skip SkipFor(const CurrentContext& current) noexcept;
  // Asks for the state of the stream's own capture; kNone if something may be launched on it.
  Skip CaptureState(CuStream stream, bool* capturing) noexcept;
  // The same of a stream that captures: the capture's id, plus one.
  Skip CaptureId(CuStream stream, uint64_t* id) noexcept;
  // The parts of setting up. What an earlier attempt got is kept.
  Skip RetainContext() noexcept;
  Call LoadKernels() noexcept;
  Call LoadKernelsFrom(const void* image) noexcept;
  Call AllocateOnDevice() noexcept;
  Call AllocateForBoth() noexcept;
  Call UseGivenMemory() noexcept;
  Call WarmUp() noexcept;

  // The parameters of a batch, complete but for the head.
  struct Batch {
    BatchLaunch launch;
    uint32_t tiles;
  };

  // What one launch looks at: outputs, a list, or a batch; nothing: it is a mark.
  struct Part {
    std::span<const DeviceTensor> outputs;
    std::span<const DeviceTensor> inputs;
    std::span<const ListEntry> gate;
    std::span<const ListEntry> others;
    uint64_t ticket = 0;
    CuStream stream = nullptr;
    CuDeviceAddress step_word = 0;
    bool sums = false;
    bool kinds_only = false;
    bool measures = false;
    std::span<const SampleSpan> samples = {};  // of the gate, where it is compared
    Batch* batch = nullptr;
    uint32_t tiles = 0;  // of the gate; 0: not known

    [[nodiscard]] bool IsMark() const noexcept {
      return outputs.empty() && gate.empty() && batch == nullptr;
    }
  };
  // All of an op or of a list, cut into launches; of a batch or of nothing, one.
  struct Parts {
    std::span<const DeviceTensor> outputs;
    std::span<const DeviceTensor> inputs;
    std::span<const ListEntry> gate;
    std::span<const ListEntry> others;
    CuStream stream = nullptr;
    CuDeviceAddress step_word = 0;
    bool sums = false;
    bool kinds_only = false;
    bool measures = false;
    std::span<const SampleSpan> samples = {};  // of the gate, where it is compared
    Batch* batch = nullptr;
    uint32_t tiles = 0;

    [[nodiscard]] uint32_t Count() const noexcept;
    [[nodiscard]] Part At(uint32_t i, uint64_t first_ticket) const noexcept;
  };
  Skip EnqueueParts(Parts parts, bool reports, Enqueued* enqueued) noexcept;
  Skip CaptureAll(Parts parts, Enqueued* enqueued) noexcept;
  // The graph's number, from 1. One that was not seen before begins with the node that counts its
  // replays.
  Skip GraphFor(CuStream stream, uint32_t* graph) noexcept;
  [[nodiscard]] uint32_t GraphOf(uint64_t capture_id) const noexcept;
  [[nodiscard]] CuDeviceAddress ReplayWord(uint32_t graph) const noexcept {
    return step_word_ + graph * sizeof(StepWords);
  }
  // Here and below: `progress` is the device's address of the stream's word.
  Skip LaunchAll(const Parts& parts, uint32_t index, bool report_now, Enqueued* enqueued) noexcept;
  // With progress 0 the launch does not tell how far the stream is; else the caller has the right.
  Skip LaunchOnStream(const Part& part, LaunchStream& stream, uint64_t progress,
                      bool has_right) noexcept;
  Skip LaunchCaptured(const Part& part, uint32_t* slot) noexcept;
  Skip AskForProgress(CuStream handle, LaunchStream& stream, uint64_t progress) noexcept;
  [[nodiscard]] LaunchHead HeadFor(const Part& part, uint32_t slot) const noexcept;
  CuResult LaunchCheck(const LaunchHead& head, const Part& part) noexcept;
  CuResult LaunchTensors(const LaunchHead& head, const Part& part) noexcept;
  CuResult LaunchList(const LaunchHead& head, const Part& part) noexcept;
  CuResult LaunchComparison(ListLaunch* launch, const Part& part) noexcept;
  CuResult LaunchBatch(const LaunchHead& head, const Part& part) noexcept;
  CuResult Launch(CuFunction function, uint32_t blocks, uint32_t threads, void* parameter,
                  CuStream stream) const noexcept;
  // Whether the stream has not reported for so long that it should; says so once for each span.
  [[nodiscard]] bool IsLongSince(LaunchStream& stream) const noexcept;
  // Index in the table; kStreamsMax: no room.
  [[nodiscard]] uint32_t StreamFor(CuStream stream) noexcept;
  [[nodiscard]] uint64_t ProgressOf(uint32_t stream) const noexcept;

  // Whether what the GPU has written can be read. Memory of the driver's own goes with the context
  // (cudaDeviceReset): then the device is down.
  [[nodiscard]] bool MayRead() noexcept;
  size_t PollStream(uint32_t index, bool lost, FinishedCallback callback, void* context) noexcept;
  size_t PollCaptured(FinishedCallback callback, void* context) noexcept;

  [[nodiscard]] bool TakeSteps(uint64_t* steps) noexcept;

  // Counts a failed call and draws the consequence for the device.
  Skip Judge(const Call& call) noexcept;
  void CountFailure(const Call& call) noexcept;
  void StepDown(const Call& call, const char* why) noexcept;

  [[nodiscard]] uint64_t* Word(size_t offset) const noexcept {
    return reinterpret_cast<uint64_t*>(host_ + offset);
  }
  [[nodiscard]] CheckResult* Result(uint32_t slot) const noexcept {
    return reinterpret_cast<CheckResult*>(host_ + layout_.Result(slot));
  }

  CheckerShared& shared_;
  const int ordinal_;
  std::atomic<State> state_{State::kUnseen};
  std::atomic<bool> context_lost_{false};
  std::atomic<bool> reason_taken_{false};
  std::atomic<uint64_t> down_ns_{0};  // CLOCK_MONOTONIC of stepping down
  std::atomic<uint32_t> failures_in_a_row_{0};
  std::atomic<bool> has_counted_{false};  // a launch that is in no graph, since the last AddStep
  // Steps that nanwatch_add_step was not told of, where something may still be counted against
  // them.
  std::atomic<uint32_t> steps_untold_{kStepsUntilForgotten};
  char reason_[256] = {};

  // Written while setting up, constant after.
  CuDevice device_ = 0;
  CuContext context_ = nullptr;
  CuModule module_ = nullptr;
  CuFunction check_few_ = nullptr;
  CuFunction check_many_ = nullptr;
  CuFunction check_list_ = nullptr;
  CuFunction sum_list_ = nullptr;
  CuFunction measure_list_ = nullptr;
  CuFunction compare_list_ = nullptr;
  CuFunction check_batch_ = nullptr;
  CuFunction add_step_ = nullptr;
  bool binary_refused_ = false;
  char image_log_[160] = {};  // the driver's words on a module it did not take
  CuStream warm_stream_ = nullptr;
  int multiprocessors_ = 1;
  HostLayout layout_;
  bool given_memory_used_ = false;
  bool memory_asked_for_ = false;
  std::atomic<bool> memory_gone_{false};
  std::byte* host_ = nullptr;         // HostLayout
  CuDeviceAddress host_address_ = 0;  // the same, as the device sees it
  CuDeviceAddress step_word_ = 0;     // kStepWordsBytes
  CuDeviceAddress scratch_ = 0;       // layout_.All() of LaunchScratch
  CuDeviceAddress measures_ = 0;      // layout_.slots of MeasureScratch
  CuDeviceAddress samples_ = 0;       // kSampleDoubles
  size_t device_bytes_ = 0;           // of all that begins with step_word_
  std::unique_ptr<LaunchTable> table_;

  struct CapturedLaunch {
    std::atomic<uint64_t> ticket{0};  // 0: not in a graph (yet)
    uint64_t hits_told = 0;           // only for the thread that polls
  };
  std::unique_ptr<CapturedLaunch[]> captured_;
  std::atomic<uint32_t> captured_used_{0};         // may go beyond the number there is
  uint32_t captured_next_ = 0;                     // where the next Poll goes on
  std::atomic<uint64_t> graphs_[kGraphsMax] = {};  // ids of their captures, plus one; 0: no more
  std::atomic<uint32_t> newest_graph_{0};
};

}  // namespace nanwatch::device
