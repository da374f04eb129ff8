// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/canary.h"

#include <cmath>
#include <cstdio>

#include "shim/check/scan.h"
#include "shim/check/squares.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/finding/written_tensor.h"
#include "shim/observe/observer.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/torch_tensor.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch::canary {
namespace {

// An op is named for what nobody saw, so that the reader knows where it was met.
constexpr char kAccumulate[] = "torch::autograd::AccumulateGrad";
// Beyond these a pass is told by the first ones.
constexpr uint32_t kBadGradientsToldMax = wire::kSourcesMax;

// Steps went by with the checks off, and it may have been made in them.
uint32_t UncheckedBefore(const Observer& observer) {
  return observer.measuring.IsUnread() ? uint32_t{wire::ValueRecord::kUnseenMeasuring} : 0u;
}

// A gradient that is bad, and that no watched op is known to have made so.
ValueRef RecordBadGradient(Observer& observer, ThreadState* thread, const PlainTensor& plain,
                           const NamedTensor* named, ValueRef from) {
  wire::Source known{};
  ValueRef value;
  if (SourceOf(observer, plain, &known, &value)) return value;
  UnobservedWriter writer = UnseenAt(kAccumulate, named != nullptr ? named->layer : nullptr,
                                     wire::Phase::kBackward, NonFiniteKinds(plain.view), from);
  writer.flags |= UncheckedBefore(observer);
  return OnUnobservedWrite(observer, thread, plain, writer);
}

// One more bad gradient than a record has room for: it comes of what the first does, so that the
// update's ops do not take it for something new.
void RememberGradient(Observer& observer, const PlainTensor& plain, ValueRef from) {
  wire::Source known{};
  ValueRef value;
  RecentValues::Kept kept;
  if (SourceOf(observer, plain, &known, &value) || !observer.recent_values.Look(from, &kept)) {
    return;
  }
  const BadOutput output{plain, 0, false};
  Remember(observer, &output, 1, from, kept.record.site, Written{}, /*in_optimizer=*/false,
           /*count_elements=*/false);
}

// What an update has written and left bad.
void ReportBadWritten(Observer& observer, ThreadState* thread, const PlainTensor& tensor,
                      const NamedTensor* named, bool is_state, const char* range_name,
                      const Gradients& gradients) {
  wire::Source known{};
  ValueRef value;
  if (SourceOf(observer, tensor, &known, &value)) return;
  UnobservedWriter writer =
      UnseenAt(range_name, named != nullptr ? named->layer : nullptr, wire::Phase::kOptimizer,
               NonFiniteKinds(tensor.view), gradients.first_bad_value);
  writer.flags |= UncheckedBefore(observer);
  // Gradients and parameters were finite: the update made it.
  if (gradients.bad == 0 && gradients.known && !gradients.some_unseen && !gradients.waits_for_gpu) {
    writer.source_count = 0;
    writer.finding_class = wire::FindingClass::kProduce;
  }
  if (!is_state) {
    writer.named = named;
    writer.target = wire::Target::kParameter;
  }
  OnUnobservedWrite(observer, thread, tensor, writer);
}

// A fused optimizer under a GradScaler divides the gradients itself.
void ReadScale(Observer& observer, ThreadState* thread, const at::TensorBase& scale,
               Gradients* told) {
  PlainTensor plain;
  wire::Unchecked reason;
  if (!scale.defined() || DescribeTensor(scale, &plain, &reason) != Readable::kYes) return;
  if (plain.gpu < 0) {
    if (!ReadNumber(plain.view, &told->scale) || !(told->scale > 0)) told->norm_known = false;
    return;
  }
  told->scale_on_gpu = true;
  GpuTensors on_gpu(observer, thread, /*counts=*/false);
  on_gpu.Add(plain, wire::Target::kNone, nullptr);
  observer.gpu_events.EnqueueTensors(observer, thread, GpuEventQueue::CheckedAs::kGradientScale,
                                     on_gpu.list());
}

}  // namespace

Gradients ReadGradients(Observer& observer, ThreadState* thread, const void* optimizer) noexcept
    try {
  Gradients told;
  // A loss that was bad, else the first bad gradient: one cause a step is all that can be told.
  ValueRef first_bad = observer.gpu_events.On() ? ValueRef{} : observer.steps.TakeBadLoss();
  OptimizedTensors tensors;
  if (optimizer == nullptr || !observer.python->ReadOptimizer(optimizer, &tensors)) return told;
  told.known = told.norm_known = true;
  told.number_bad = tensors.number_bad;
  const auto unchecked = [thread] {
    uint64_t sum = 0;
    for (const auto& count : thread->counters.unchecked) sum += count;
    return sum;
  };
  const uint64_t unchecked_before = unchecked();
  PlainTensor plain;
  wire::Unchecked reason;
  double found_inf = 0;
  if (DescribeTensor(tensors.found_inf, &plain, &reason) == Readable::kYes) {
    told.skips_by_itself = plain.gpu >= 0;
    told.skipped = !told.skips_by_itself && ReadNumber(plain.view, &found_inf) && found_inf != 0;
  }
  // Where everything was watched, the ops have told more already; else this is where it is met.
  const bool ops_unseen = observer.level.watched() != wire::Level::kFull ||
                          observer.level.raised_in_step(observer.steps.completed());
  const bool unseen = ops_unseen ||
                      observer.level.switched_in_step() == observer.steps.completed() ||
                      observer.poison_watch.ended_in_step() == observer.steps.completed();
  const bool tell = unseen && !told.skipped && !observer.Poisoned();
  BackwardPasses::BadLeaves bad;
  GpuTensors on_gpu(observer, thread, /*counts=*/unseen);
  for (const OptimizedTensor& tensor : tensors.list) {
    if (!tensor.gradient.defined()) {
      told.missing += tensor.requires_grad;
      continue;
    }
    ++told.count;
    const Readable readable = DescribeTensor(tensor.gradient, &plain, &reason);
    if (readable == Readable::kYes && plain.gpu >= 0) {
      ++told.on_gpu;
      on_gpu.Add(plain, wire::Target::kGradient,
                 observer.python->names().FindByImpl(tensor.parameter));
      continue;
    }
    if (readable != Readable::kYes) {
      told.norm_known = false;
      if (unseen && readable == Readable::kNo) {
        ++thread->counters.unchecked[static_cast<int>(reason)];
      }
      continue;
    }
    if (unseen) {
      ++thread->counters.tensors_checked;
      thread->counters.bytes_checked += plain.byte_end - plain.byte_begin;
    }
    Squares squares;
    const bool summed =
        plain.IsDense() && SumOfSquares(plain.view.type, plain.view.data,
                                        static_cast<size_t>(plain.view.numel), &squares);
    told.norm_known = told.norm_known && summed;
    told.squares += squares.sum;
    told.zero += squares.all_zero;
    // float16 counts an infinity as a number there.
    const bool may_be_bad =
        !summed || plain.view.type == wire::ElementType::kFloat16 || !std::isfinite(squares.sum);
    if (!may_be_bad || !HasNonFinite(plain.view)) continue;
    const NamedTensor* named = observer.python->names().FindByImpl(tensor.parameter);
    if (told.bad++ == 0) {
      if (tell) observer.cuts.Resolve(observer, thread, nullptr);
      told.first_bad = named;
      wire::Source known{};
      SourceOf(observer, plain, &known, &told.first_bad_value);
    }
    if (!tell) continue;
    if (bad.count == kBadGradientsToldMax) {
      RememberGradient(observer, plain, first_bad);
      continue;
    }
    const ValueRef value = RecordBadGradient(observer, thread, plain, named, first_bad);
    if (first_bad.ticket == 0) first_bad = value;
    if (told.first_bad_value.ticket == 0) told.first_bad_value = value;
    bad.Add(value, NonFiniteKinds(plain.view), named);
  }
  using CheckedAs = GpuEventQueue::CheckedAs;
  const CheckedAs as = told.skips_by_itself ? CheckedAs::kSkippableGradients
                       : unseen             ? CheckedAs::kGradients
                                            : CheckedAs::kWatchedGradients;
  const bool all_seen = observer.gpu_events.EnqueueTensors(observer, thread, as, on_gpu.list());
  told.some_unseen = !all_seen || unchecked() != unchecked_before;
  ReadScale(observer, thread, tensors.grad_scale, &told);
  told.waits_for_gpu = told.on_gpu != 0 && observer.gpu_events.On();
  if (told.on_gpu != 0 && !told.waits_for_gpu) told.norm_known = false;
  told.norm = told.bad != 0 ? std::nan("") : std::sqrt(told.squares) / told.scale;
  if (tell && told.bad != 0 && ops_unseen) {
    observer.passes.OnBadGradients(observer, thread, told.count, told.bad, bad);
  }
  return told;
} catch (...) {
  return {};
}

Gradients ReadSkip(Observer& observer, ThreadState* thread, const void* optimizer) noexcept try {
  Gradients told;
  // Only a fused optimizer under a GradScaler does.
  if (optimizer == nullptr || !observer.steps.LossIsScaled()) return told;
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kSkip;
  PlainTensor plain;
  wire::Unchecked reason;
  if (!observer.python->ReadOptimizer(optimizer, &tensors) || !tensors.found_inf.defined() ||
      DescribeTensor(tensors.found_inf, &plain, &reason) != Readable::kYes) {
    return told;
  }
  double found_inf = 0;
  if (plain.gpu < 0) {
    told.skipped = ReadNumber(plain.view, &found_inf) && found_inf != 0;
    return told;
  }
  told.skips_by_itself = true;
  GpuTensors on_gpu(observer, thread, /*counts=*/false);
  on_gpu.Add(plain, wire::Target::kNone, nullptr);
  observer.gpu_events.EnqueueTensors(observer, thread, GpuEventQueue::CheckedAs::kFoundInf,
                                     on_gpu.list());
  return told;
} catch (...) {
  return {};
}

void CheckUpdate(Observer& observer, ThreadState* thread, const void* optimizer,
                 const char* range_name, const Gradients& gradients) noexcept try {
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kWritten;
  if (!observer.python->ReadOptimizer(optimizer, &tensors)) return;
  GpuTensors on_gpu(observer, thread);
  for (const WrittenTensor& written : tensors.written) {
    PlainTensor plain;
    wire::Unchecked reason;
    const Readable readable = DescribeTensor(written.held, &plain, &reason);
    const NamedTensor* named = nullptr;
    if (readable == Readable::kYes && plain.gpu >= 0) {
      if (written.is_count) continue;  // as many entries as there are parameters, for nothing
      named = observer.python->names().FindByImpl(written.parameter);
      on_gpu.Add(plain, written.is_state ? wire::Target::kOptimizerState : wire::Target::kParameter,
                 named);
      continue;
    }
    if (readable != Readable::kYes) {
      if (readable == Readable::kNo) ++thread->counters.unchecked[static_cast<int>(reason)];
      continue;
    }
    ++thread->counters.tensors_checked;
    thread->counters.bytes_checked += plain.byte_end - plain.byte_begin;
    if (!HasNonFinite(plain.view)) continue;
    named = observer.python->names().FindByImpl(written.parameter);
    ReportBadWritten(observer, thread, plain, named, written.is_state, range_name, gradients);
  }
  observer.gpu_events.EnqueueTensors(observer, thread, GpuEventQueue::CheckedAs::kWritten,
                                     on_gpu.list());
} catch (...) {
}

void GpuGradients::AddSums(double squares, uint32_t count, uint32_t zero) noexcept {
  squares_ += squares;
  summed_ += count;
  zero_ += zero;
}

void GpuGradients::Report(Observer& observer, ThreadState* thread, const PlainTensor& gradient,
                          const NamedTensor* named) noexcept {
  if (count_++ == 0) first_ = named;
  if (leaves_.count == kBadGradientsToldMax) {
    return RememberGradient(observer, gradient, first_value_);
  }
  const ValueRef from = leaves_.count != 0 ? leaves_.values[0] : observer.steps.TakeBadLoss();
  if (from.ticket == 0) observer.gpu_events.ResolveReceived(observer, thread, gradient);
  leaves_.Add(RecordBadGradient(observer, thread, gradient, named, from),
              NonFiniteKinds(gradient.view), named);
  first_value_ = leaves_.values[0];
}

void GpuGradients::ReportWatched(Observer& observer, const PlainTensor& gradient,
                                 const NamedTensor* named) noexcept {
  if (count_++ != 0) return;
  first_ = named;
  wire::Source known{};
  SourceOf(observer, gradient, &known, &first_value_);
}

void GpuGradients::Settle(Observer& observer, ThreadState* thread, const char* range_name,
                          Gradients* gradients) noexcept {
  gradients->waits_for_gpu = false;
  gradients->some_unseen |= some_unseen_;
  gradients->zero += zero_;
  if (summed_ != gradients->on_gpu) gradients->norm_known = false;
  gradients->squares += squares_;
  if (gradients->scale_on_gpu) {
    gradients->scale = scale_;
    if (!(scale_ > 0)) gradients->norm_known = false;
  }
  gradients->norm = gradients->bad == 0 && std::isfinite(gradients->squares)
                        ? std::sqrt(gradients->squares) / gradients->scale
                        : std::nan("");
  if (count_ != 0) {
    gradients->bad += count_;
    gradients->norm = std::nan("");
    gradients->first_bad = first_;
    gradients->first_bad_value = first_value_;
    if (leaves_.count != 0) {
      observer.passes.OnBadGradients(observer, thread, gradients->count, count_, leaves_);
    }
  }
  // One that led to no gradient explains none of a later step.
  (void)observer.steps.TakeBadLoss();
  *this = {};
  update_ = *gradients;
  std::snprintf(range_name_, sizeof range_name_, "%s", range_name);
}

void GpuGradients::ReportWritten(Observer& observer, ThreadState* thread, const PlainTensor& tensor,
                                 const NamedTensor* named, bool is_state) const noexcept try {
  // One that has skipped itself has written nothing.
  if (update_.skipped) return;
  ReportBadWritten(observer, thread, tensor, named, is_state, range_name_, update_);
} catch (...) {
}

}  // namespace nanwatch::canary
