#include "shim/observe/figures/parameter_stats.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>

#include "shim/check/element_sample.h"
#include "shim/check/moments.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/figures/layer_peaks.h"
#include "shim/observe/observer.h"
#include "shim/observe/python/optimizer_tensors.h"
#include "shim/observe/tensor_stats.h"
#include "shim/observe/torch_tensor.h"

namespace nanwatch {
namespace {

constexpr size_t kElementsMax = 4096;           // of one parameter's sample
constexpr size_t kElementsInAllMax = 1u << 20;  // of all of them

// Frozen ones are no parameters of the step.
bool IsTrained(const OptimizedTensor& tensor) { return tensor.requires_grad; }

// The tensor lies in one piece of the CPU's memory, is of a type that MomentsOf reads, and has
// elements. Else one of `unread`'s counters goes up, unless there is nothing that could be read.
bool DescribeWhole(const at::TensorBase& tensor, PlainTensor* plain, wire::StatsHead* unread) {
  wire::Unchecked reason;
  const Readable readable = DescribeTensor(tensor, plain, &reason);
  if (readable == Readable::kNothing) return false;
  if (readable == Readable::kYes && plain->gpu >= 0) {
    ++unread->on_gpu;
    return false;
  }
  const bool whole = readable == Readable::kYes && tensor.layout() == c10::kStrided &&
                     plain->IsDense() && HasMoments(plain->view.type);
  if (!whole) ++unread->unreadable;
  return whole;
}

void AddGradient(const at::TensorBase& gradient, wire::StatsParameter* told) {
  using wire::StatsParameter;
  if (!gradient.defined()) return;
  told->flags |= StatsParameter::kHasGradient;
  PlainTensor plain;
  wire::StatsHead ignored{};  // it is told of the parameter that it was not read
  Moments moments;
  if (!DescribeWhole(gradient, &plain, &ignored)) return;
  const auto count = static_cast<size_t>(plain.view.numel);
  if (!MomentsOf(plain.view.type, plain.view.data, count, &moments)) return;
  told->flags |= StatsParameter::kGradientRead;
  told->gradient_mean = moments.Mean(count);
  told->gradient_std = moments.StandardDeviation(count);
  told->gradient_max_abs = moments.max_abs;
  told->gradient_norm = std::sqrt(moments.squares_sum);
  told->gradient_zeros = moments.zeros;
}

}  // namespace

void ParameterStats::SetInterval(uint32_t steps) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  interval_ = steps;
  turns_count_ = 0;
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
  // One that was left open, because its end was not seen, is begun anew.
  if (turn->steps_left > 0 || !may_look || (open_ != nullptr && open_ != optimizer)) return false;
  turn->steps_left = interval_;
  open_ = optimizer;
  open_thread_ = ThreadStates::Mine();
  *index = static_cast<uint32_t>(turn - turns_);
  return true;
}

void ParameterStats::OnOptimizerBegin(Observer& observer, const void* optimizer,
                                      std::string_view class_name, bool may_look) noexcept try {
  if (interval_ == 0 || optimizer == nullptr) return;
  uint32_t index = 0;
  if (!IsDue(optimizer, may_look, &index)) return;
  Emitter* emitter = observer.EnsureEmitter();
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kStats;
  before_.clear();
  if (emitter == nullptr || !observer.python->ReadOptimizer(optimizer, &tensors)) return;
  head_ = {};
  head_.clocks = observer.steps.Now();
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
  elements_max_ = std::min(kElementsMax, kElementsInAllMax / count / kSampleRun * kSampleRun);
  sample_now_.resize(elements_max_ * sizeof(double));
  samples_.clear();
  size_t at = 0;
  wire::StatsHead ignored{};  // counted when the step ends
  for (const OptimizedTensor& tensor : tensors.list) {
    if (at == count) return;
    if (!IsTrained(tensor)) continue;
    Before& before = before_[at++];
    PlainTensor plain;
    if (!DescribeWhole(tensor.held, &plain, &ignored)) continue;
    const auto numel = static_cast<size_t>(plain.view.numel);
    const size_t width = ElementBytes(plain.view.type);
    before = {tensor.parameter, plain.view.data, samples_.size(), 0,
              plain.view.numel, plain.view.type};
    samples_.resize(samples_.size() + std::min(numel, elements_max_) * width);
    before.sampled = static_cast<uint32_t>(CopySample(plain.view.data, numel, width, elements_max_,
                                                      samples_.data() + before.sample_begin));
  }
}

void ParameterStats::OnOptimizerEnd(Observer& observer, bool stopped) noexcept {
  if (interval_ == 0) return;
  const void* optimizer = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (open_ == nullptr || open_thread_ != ThreadStates::Mine()) return;
    optimizer = open_;
  }
  // It is alive as long as its frame says so.
  const bool whole =
      !stopped && !before_.empty() && observer.python->OptimizerOnThisThread() == optimizer;
  if (whole) Finish(observer, optimizer);
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = nullptr;
}

void ParameterStats::Finish(Observer& observer, const void* optimizer) noexcept try {
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kStats;
  if (!observer.python->ReadOptimizer(optimizer, &tensors)) return;
  told_.clear();
  uint32_t trained = 0;
  for (uint32_t position = 0; position < tensors.list.size(); ++position) {
    const OptimizedTensor& tensor = tensors.list[position];
    if (!IsTrained(tensor)) continue;
    if (trained++ < before_.size()) {
      Tell(observer, tensor, position, before_[trained - 1]);
    } else {
      ++head_.left_out;
    }
  }
  Emitter& emitter = *observer.emitter();
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
  emitter.PublishStats(head_, told_, layers_told_, MonotonicNs());
} catch (const std::exception&) {
}

void ParameterStats::Tell(Observer& observer, const OptimizedTensor& tensor, uint32_t position,
                          const Before& before) {
  using wire::StatsParameter;
  PlainTensor plain;
  if (!DescribeWhole(tensor.held, &plain, &head_)) return;
  StatsParameter told{};
  const NamedTensor* named = observer.python->names().FindByImpl(tensor.parameter);
  if (named != nullptr) {
    told.name = InternText(*observer.emitter(), named->name);
    told.root = named->layer != nullptr ? InternText(*observer.emitter(), named->layer->root) : 0;
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
  AddGradient(tensor.gradient, &told);
  AddUpdate(plain.view, tensor.parameter, before, &told);
  told_.push_back(told);
}

// A parameter that is another by now (replaced, or moved to other memory) has no update.
void ParameterStats::AddUpdate(const TensorView& now, const void* impl, const Before& before,
                               wire::StatsParameter* told) {
  if (before.impl != impl || before.data != now.data || before.numel != now.numel ||
      before.type != now.type) {
    return;
  }
  CopySample(now.data, static_cast<size_t>(now.numel), ElementBytes(now.type), elements_max_,
             sample_now_.data());
  Change change;
  if (!ChangeOf(now.type, samples_.data() + before.sample_begin, sample_now_.data(), before.sampled,
                &change)) {
    return;
  }
  told->flags |= wire::StatsParameter::kUpdateRead;
  told->sampled = before.sampled;
  told->update_norm = std::sqrt(change.change_squares);
  told->weight_norm = std::sqrt(change.before_squares);
}

}  // namespace nanwatch
