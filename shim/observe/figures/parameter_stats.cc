// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/parameter_stats.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "shim/check/element_sample.h"
#include "shim/check/moments.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/figures/layer_peaks.h"
#include "shim/observe/python/names/optimizer_tensors.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {
namespace {

constexpr size_t kElementsMax = 4096;           // of one parameter's sample
constexpr size_t kElementsInAllMax = 1u << 20;  // of all of them

// Of one parameter's, where there are `count`.
size_t ElementsMax(size_t in_all, size_t count) {
  return std::min(kElementsMax, in_all / count / kSampleRun * kSampleRun);
}

// Frozen ones are no parameters of the step.
bool IsTrained(const OptimizedTensor& tensor) { return tensor.requires_grad; }

// The tensor lies in one piece of memory, of the CPU or of a GPU that is looked at, is of a type
// that MomentsOf reads, and has elements. Else one of `unread`'s counters goes up, unless there is
// nothing that could be read.
bool DescribeWhole(const LateFacts& late, const at::TensorBase& tensor, PlainTensor* plain,
                   wire::StatsHead* unread) {
  wire::Unchecked reason;
  const Readable readable = DescribeTensor(tensor, plain, &reason);
  if (readable == Readable::kNothing) return false;
  if (readable == Readable::kYes && plain->gpu >= 0 && !late.On()) {
    ++unread->on_gpu;
    return false;
  }
  const bool whole = readable == Readable::kYes && tensor.layout() == c10::kStrided &&
                     plain->IsDense() && HasMoments(plain->view.type);
  if (!whole) ++unread->unreadable;
  return whole;
}

// Of one on a GPU the figures are told later, under `place`.
void MeasureGradient(const LateFacts& late, const at::TensorBase& gradient, size_t place,
                     wire::StatsParameter* told, GpuTensors* on_gpu) {
  using wire::StatsParameter;
  if (!gradient.defined()) return;
  told->flags |= StatsParameter::kHasGradient;
  PlainTensor plain;
  wire::StatsHead ignored{};  // it is told of the parameter that it was not read
  Moments moments;
  if (!DescribeWhole(late, gradient, &plain, &ignored)) return;
  if (plain.gpu >= 0) {
    return on_gpu->Add(plain, wire::Target::kGradient, nullptr, static_cast<uint32_t>(place));
  }
  const auto count = static_cast<size_t>(plain.view.numel);
  if (!MomentsOf(plain.view.type, plain.view.data, count, &moments)) return;
  FillGradient(moments, count, told);
}

}  // namespace

void ParameterStats::SetInterval(uint32_t steps) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  interval_ = steps;
  turns_count_ = 0;
  layer_launches_.store(0, std::memory_order_relaxed);
}

// On true the snapshot of `optimizer` is under way.
bool ParameterStats::IsDue(const void* optimizer, bool may_look, uint32_t* index) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  Turn* const end = turns_ + turns_count_;
  Turn* turn = std::find_if(turns_, end, [&](const Turn& t) { return t.optimizer == optimizer; });
  if (turn == end) {
    if (turns_count_ == kOptimizersMax) return false;
    *turn = {optimizer, 0};
    ++turns_count_;
  }
  if (turn->steps_left > 0) --turn->steps_left;
  LookAhead(*turn);
  // One that was left open, because its end was not seen, is begun anew.
  if (turn->steps_left > 0 || !may_look || (open_ != nullptr && open_ != optimizer) ||
      !MayMeasure()) {
    return false;
  }
  turn->steps_left = interval_;
  LookAhead(*turn);
  open_ = optimizer;
  open_thread_ = ThreadStates::Mine();
  *index = static_cast<uint32_t>(turn - turns_);
  return true;
}

void ParameterStats::LookAhead(const Turn& last) noexcept {
  bool comes = false;
  for (uint32_t i = 0; i < turns_count_; ++i) {
    Turn& turn = turns_[i];
    if (&turn == &last) {
      turn.passed_over = 0;
    } else if (turn.passed_over < kPassedOverMax) {
      ++turn.passed_over;
    }
    comes |= turn.steps_left <= 1 && turn.passed_over < kPassedOverMax;
  }
  layer_launches_.store(comes ? kLayerLaunchesMax : 0, std::memory_order_relaxed);
}

bool ParameterStats::MayMeasure() noexcept {
  if (!late_.On()) return true;
  return awaited_.HasRoom() && late_.MayMeasure(ThreadStates::Mine());
}

void ParameterStats::OnOptimizerBegin(const void* optimizer, std::string_view class_name,
                                      bool may_look) noexcept try {
  if (interval_ == 0 || optimizer == nullptr) return;
  uint32_t index = 0;
  if (!IsDue(optimizer, may_look, &index)) return;
  Emitter* emitter = segment_.Ensure();
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kStats;
  before_.clear();
  if (emitter == nullptr || !python_.ReadOptimizer(optimizer, &tensors)) return;
  head_ = {};
  head_.clocks = clock_.Now();
  head_.optimizer = index;
  head_.optimizer_class = emitter->Intern(class_name);
  head_.interval = interval_;
  TakeSamples(tensors, emitter->stats_parameters_max());
} catch (const std::exception&) {
  before_.clear();
}

void ParameterStats::TakeSamples(const OptimizedTensors& tensors, uint32_t parameters_max) {
  const auto trained =
      static_cast<size_t>(std::count_if(tensors.list.begin(), tensors.list.end(), IsTrained));
  const size_t count = std::min<size_t>(trained, parameters_max);
  before_.resize(count);
  if (count == 0) return;
  elements_max_ = ElementsMax(kElementsInAllMax, count);
  const size_t on_gpu_max = ElementsMax(device::kSampleDoubles, count);
  GpuTensors on_gpu(late_, ThreadStates::Mine(), /*counts=*/false);
  std::vector<device::SampleSpan> spans;
  uint32_t spans_end = 0;
  sample_now_.resize(elements_max_ * sizeof(double));
  samples_.clear();
  size_t at = 0;
  wire::StatsHead ignored{};  // counted when the step ends
  for (const OptimizedTensor& tensor : tensors.list) {
    if (at == count) break;
    if (!IsTrained(tensor)) continue;
    Before& before = before_[at++];
    PlainTensor plain;
    if (!DescribeWhole(late_, tensor.held, &plain, &ignored)) continue;
    const auto numel = static_cast<size_t>(plain.view.numel);
    if (plain.gpu >= 0) {
      const auto sampled = static_cast<uint32_t>(std::min(numel, on_gpu_max));
      on_gpu.Add(plain, wire::Target::kParameter, nullptr);
      if (on_gpu.list().size() == spans.size()) continue;  // it was not taken
      before = {tensor.parameter, plain.view.data,  spans_end,
                sampled,          plain.view.numel, plain.view.type};
      spans.push_back({spans_end, sampled});
      spans_end += sampled;
      continue;
    }
    const size_t width = ElementBytes(plain.view.type);
    before = {tensor.parameter, plain.view.data, samples_.size(), 0,
              plain.view.numel, plain.view.type};
    samples_.resize(samples_.size() + std::min(numel, elements_max_) * width);
    before.sampled = static_cast<uint32_t>(CopySample(plain.view.data, numel, width, elements_max_,
                                                      samples_.data() + before.sample_begin));
  }
  sampled_on_gpu_ = late_.Enqueue(ThreadStates::Mine(),
                                  TensorsToMeasure{CheckedAs::kSampled, on_gpu.list(), 0, spans});
}

void ParameterStats::OnOptimizerEnd(bool stopped) noexcept {
  if (interval_ == 0) return;
  const void* optimizer = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (open_ == nullptr || open_thread_ != ThreadStates::Mine()) return;
    optimizer = open_;
  }
  // It is alive as long as its frame says so.
  const bool whole = !stopped && !before_.empty() && python_.OptimizerOnThisThread() == optimizer;
  if (whole) Finish(optimizer);
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = nullptr;
}

struct ParameterStats::Asked {
  explicit Asked(LateFacts& late)
      : gradients(late, ThreadStates::Mine(), /*counts=*/false),
        parameters(late, ThreadStates::Mine(), /*counts=*/false) {}

  GpuTensors gradients;
  GpuTensors parameters;
  std::vector<device::SampleSpan> samples;  // of these
};

void ParameterStats::Finish(const void* optimizer) noexcept try {
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kStats;
  if (!python_.ReadOptimizer(optimizer, &tensors)) return;
  told_.clear();
  Asked asked(late_);
  uint32_t trained = 0;
  for (uint32_t position = 0; position < tensors.list.size(); ++position) {
    const OptimizedTensor& tensor = tensors.list[position];
    if (!IsTrained(tensor)) continue;
    if (trained++ < before_.size()) {
      Emit(tensor, position, before_[trained - 1], &asked);
    } else {
      ++head_.left_out;
    }
  }
  AwaitedSnapshots::Snapshot snapshot = {head_, told_, MonotonicNs()};
  if (!late_.On()) return Publish(snapshot);
  ThreadState* thread = ThreadStates::Mine();
  const uint64_t number = awaited_.Await(std::move(snapshot));
  (void)late_.Enqueue(
      thread, TensorsToMeasure{CheckedAs::kMeasuredGradients, asked.gradients.list(), number, {}});
  (void)late_.Enqueue(thread, TensorsToMeasure{CheckedAs::kMeasuredUpdates, asked.parameters.list(),
                                               number, asked.samples});
  if (!late_.Enqueue(thread, SnapshotTaken{number})) EmitLast(number);
} catch (const std::exception&) {
}

// The steps told before this one are those that came before it: now their clocks are its own.
void ParameterStats::EmitLast(uint64_t number) noexcept {
  AwaitedSnapshots::Snapshot snapshot;
  if (!awaited_.Take(number, &snapshot)) return;
  snapshot.head.clocks = clock_.Now();
  Publish(snapshot);
}

void ParameterStats::EmitAllAwaited() noexcept {
  AwaitedSnapshots::Snapshot snapshot;
  while (awaited_.TakeFirst(&snapshot)) Publish(snapshot);
}

void ParameterStats::Publish(const AwaitedSnapshots::Snapshot& snapshot) noexcept try {
  Emitter& emitter = *segment_.emitter();
  const std::lock_guard<std::mutex> lock(publishing_);
  layers_told_.clear();
  LayerPeaks::Take([&](const LayerPeaks::Peak& peak) {
    if (layers_told_.size() == emitter.stats_parameters_max()) return;
    wire::StatsLayer& told = layers_told_.emplace_back();
    told = {};
    told.largest = peak.largest;
    told.layer = InternText(emitter, peak.layer->path);
    told.root = InternText(emitter, peak.layer->root);
    told.element_type = static_cast<uint8_t>(peak.type);
    told.at_least = peak.at_least;
  });
  emitter.PublishStats(snapshot.head, snapshot.parameters, layers_told_, snapshot.time_ns);
} catch (const std::exception&) {
}

void ParameterStats::Emit(const OptimizedTensor& tensor, uint32_t position, const Before& before,
                          Asked* asked) {
  using wire::StatsParameter;
  PlainTensor plain;
  if (!DescribeWhole(late_, tensor.held, &plain, &head_)) return;
  StatsParameter told{};
  const NamedTensor* named = python_.names().FindByImpl(tensor.parameter);
  if (named != nullptr) {
    told.name = InternText(*segment_.emitter(), named->name);
    told.root = named->layer != nullptr ? InternText(*segment_.emitter(), named->layer->root) : 0;
  }
  told.position = position;
  told.numel = static_cast<uint64_t>(plain.view.numel);
  told.element_type = static_cast<uint8_t>(plain.view.type);
  told.dims = static_cast<uint8_t>(std::min(plain.view.ndim, 255));
  if (tensor.eps >= 0) {
    told.eps = tensor.eps;
    told.flags |= StatsParameter::kEps;
  }
  if (tensor.fused) told.flags |= StatsParameter::kFused;
  MeasureGradient(late_, tensor.gradient, told_.size(), &told, &asked->gradients);
  AddUpdate(plain, tensor.parameter, before, &told, asked);
  told_.push_back(told);
}

// A parameter that is another by now (replaced, or moved to other memory) has no update.
void ParameterStats::AddUpdate(const PlainTensor& tensor, const void* impl, const Before& before,
                               wire::StatsParameter* told, Asked* asked) {
  const TensorView& now = tensor.view;
  if (before.impl != impl || before.data != now.data || before.numel != now.numel ||
      before.type != now.type) {
    return;
  }
  if (tensor.gpu >= 0) {
    if (!sampled_on_gpu_) return;
    asked->parameters.Add(tensor, wire::Target::kParameter, nullptr,
                          static_cast<uint32_t>(told_.size()));
    if (asked->parameters.list().size() == asked->samples.size()) return;
    asked->samples.push_back({static_cast<uint32_t>(before.sample_begin), before.sampled});
    told->sampled = before.sampled;
    return;
  }
  CopySample(now.data, static_cast<size_t>(now.numel), ElementBytes(now.type), elements_max_,
             sample_now_.data());
  Change change;
  if (!ChangeOf(now.type, samples_.data() + before.sample_begin, sample_now_.data(), before.sampled,
                &change)) {
    return;
  }
  told->sampled = before.sampled;
  FillUpdate(change, told);
}

}  // namespace nanwatch
