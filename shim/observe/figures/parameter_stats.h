// SPDX-License-Identifier: Apache-2.0
// What parameters, their gradients and their updates are like, in one step of every so many of each
// optimizer: the figures by which people see that a layer has died or a learning rate is too high.
//
// A sample of each parameter (check/element_sample.h: at most 4,096 elements, fewer where there are
// more than 256 parameters) is copied where the step begins, and compared where it ends. The
// gradients are read whole, and at the end too: a closure makes them inside the step, and a fused
// optimizer unscales them. Both read memory and nothing else, so the job's results are what they
// were. Left out, and counted: what is not dense or of another type than the four that
// check/moments.h reads, what there is no room for in the segment, and what lies on a GPU that is
// not checked.
//
// Gradients on a GPU are measured there, whole, where the step ends: behind the update in the order
// of its stream, 28 in a launch (device/measure_launch.h). Samples of its parameters never leave
// it: at most 131,072 elements of all are kept there where the step begins, and compared where it
// ends, 28 in a launch each time. Layers' results there are measured in the forward before it
// alone: at level full those of each op, one launch for each, at level sampled what modules return,
// one for each call. The snapshot is published when the event queue comes to its end, with what was
// answered by then; nobody waits. The first one comes when the GPU is set up, and of what is
// captured into a graph there is none. Two optimizers that take turns on streams of their own would
// have to be ordered by the job for their samples to be apart; they always are where they share a
// forward.
//
// Any thread. One snapshot is under way at a time: an optimizer that begins its step on a second
// thread meanwhile waits for its next. Between snapshots a step costs a lock and a few loads. The
// clocks told are those of the step. The copies take at most 8 MiB and are kept; allocation happens
// in a snapshot, where it has to grow. What a snapshot costs is in the root's README.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "proto/wire/segment.h"
#include "shim/check/moments.h"
#include "shim/check/tensor_view.h"
#include "shim/observe/figures/awaited_snapshots.h"

namespace nanwatch {

class GpuTensors;
class LateFacts;
class ProcessSegment;
class PythonBridge;
class StepClock;
struct PlainTensor;
struct OptimizedTensor;
struct OptimizedTensors;

class ParameterStats {
 public:
  // All outlive it.
  ParameterStats(ProcessSegment& segment, PythonBridge& python, StepClock& clock,
                 LateFacts& late) noexcept
      : segment_(segment), python_(python), clock_(clock), late_(late) {}

  // Steps of an optimizer from one snapshot to the next, the first one included; 0: none. Also
  // starts the count anew.
  void SetInterval(uint32_t steps) noexcept;
  [[nodiscard]] uint32_t interval() const noexcept { return interval_; }

  // Where the step of `optimizer` (null: not known) begins and ends, on its thread. `may_look`: the
  // level lets us read anything, and the step is going to update something; if not, it is the next
  // step's turn. `class_name` need not outlive the call.
  void OnOptimizerBegin(const void* optimizer, std::string_view class_name, bool may_look) noexcept;
  // `stopped`: it was not let begin.
  void OnOptimizerEnd(bool stopped) noexcept;

  // Whether the forward that runs now is of a step whose snapshot will be taken, so that results on
  // a GPU are measured for LayerPeaks. A load.
  [[nodiscard]] bool MeasuresLayers() const noexcept {
    return layer_launches_.load(std::memory_order_relaxed) > 0;
  }
  // Asked for each launch that does it: false when there were too many of them.
  [[nodiscard]] bool TakeLayerLaunch() noexcept {
    return layer_launches_.fetch_sub(1, std::memory_order_relaxed) > 0;
  }

  // For the event queue: what a GPU says of the gradient and of the update at `place` of snapshot
  // `number`; and that all was told of this one.
  void AddGradient(uint64_t number, uint32_t place, const Moments& moments) noexcept {
    awaited_.AddGradient(number, place, moments);
  }
  void AddUpdate(uint64_t number, uint32_t place, const Change& change) noexcept {
    awaited_.AddUpdate(number, place, change);
  }
  void EmitLast(uint64_t number) noexcept;
  // The process ends: nothing more will be told.
  void EmitAllAwaited() noexcept;

 private:
  static constexpr uint32_t kOptimizersMax = 8;  // further ones are not looked at
  // A program that has trained may go on without its optimizers for ever.
  static constexpr int32_t kLayerLaunchesMax = 4096;
  // Steps of others after which an optimizer is taken for one that is used no more.
  static constexpr uint32_t kPassedOverMax = 16;

  struct Turn {
    const void* optimizer = nullptr;
    uint32_t steps_left = 0;   // until it is its turn
    uint32_t passed_over = 0;  // steps of others since its last
  };
  // A parameter as the step found it.
  struct Before {
    const void* impl = nullptr;
    const void* data = nullptr;
    size_t sample_begin = 0;  // in samples_, or in the memory that the GPU has for them
    uint32_t sampled = 0;
    int64_t numel = 0;
    wire::ElementType type = wire::ElementType::kNone;
  };

  bool IsDue(const void* optimizer, bool may_look, uint32_t* index) noexcept;
  // Whether the step that comes next may be one of a snapshot. With the mutex held.
  void LookAhead(const Turn& last) noexcept;
  // Whether the GPU, if there is one, can answer now.
  bool MayMeasure() noexcept;
  void TakeSamples(const OptimizedTensors& tensors, uint32_t parameters_max);
  void Finish(const void* optimizer) noexcept;
  // What a GPU is asked at the end of a step: names are places in told_.
  struct Asked;
  void Emit(const OptimizedTensor& tensor, uint32_t position, const Before& before, Asked* asked);
  void Publish(const AwaitedSnapshots::Snapshot& snapshot) noexcept;
  void AddUpdate(const PlainTensor& now, const void* impl, const Before& before,
                 wire::StatsParameter* told, Asked* asked);

  ProcessSegment& segment_;
  PythonBridge& python_;
  StepClock& clock_;
  LateFacts& late_;

  uint32_t interval_ = 0;
  std::atomic<int32_t> layer_launches_{0};  // that may be made until the next step
  std::mutex mutex_;
  Turn turns_[kOptimizersMax];
  uint32_t turns_count_ = 0;
  const void* open_ = nullptr;  // the optimizer whose snapshot is under way
  const void* open_thread_ = nullptr;

  // Of the thread whose snapshot is under way.
  wire::StatsHead head_{};
  size_t elements_max_ = 0;
  bool sampled_on_gpu_ = false;
  std::vector<Before> before_;  // of those that are trained, in the order of param_groups
  std::vector<unsigned char> samples_;
  std::vector<unsigned char> sample_now_;
  std::vector<wire::StatsParameter> told_;

  AwaitedSnapshots awaited_;
  std::mutex publishing_;  // covers the last
  std::vector<wire::StatsLayer> layers_told_;
};

}  // namespace nanwatch
