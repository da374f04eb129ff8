// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/canary.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "shim/check/scan.h"
#include "shim/check/squares.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/python/names/optimizer_tensors.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch::canary {
namespace {

uint64_t SumOfUnchecked(const ThreadState* thread) {
  const auto& unchecked = thread->counters.unchecked;
  return std::accumulate(std::begin(unchecked), std::end(unchecked), uint64_t{0});
}

void CountChecked(ThreadState* thread, const PlainTensor& plain) {
  ++thread->counters.tensors_checked;
  thread->counters.bytes_checked += plain.byte_end - plain.byte_begin;
}

// What a GradScaler has found for an optimizer that skips its step itself.
void ReadFoundInf(const at::TensorBase& found_inf, Gradients* told) {
  PlainTensor plain;
  wire::Unchecked reason;
  double number = 0;
  if (DescribeTensor(found_inf, &plain, &reason) != Readable::kYes) return;
  told->skips_by_itself = plain.gpu >= 0;
  told->skipped = !told->skips_by_itself && ReadNumber(plain.view, &number) && number != 0;
}

}  // namespace

// One reading of an optimizer's gradients.
struct UpdateReads::Reading {
  ThreadState* thread;
  bool unseen;         // ops have not reported all that made them bad,
  bool report;         // so this is where it is reported
  bool ops_told;       // ops have reported whatever they made bad
  ValueRef first_bad;  // a loss that was bad, else the first bad gradient
  uint64_t unchecked_before;
  GpuTensors on_gpu;
  std::shared_ptr<const UpdatePlan> plan;  // null: there is none
  BackwardPasses::BadLeaves bad{};
  Gradients told{};
};

// A fused optimizer under a GradScaler divides the gradients itself.
void UpdateReads::ReadScale(ThreadState* thread, const at::TensorBase& scale,
                            Gradients* told) noexcept {
  PlainTensor plain;
  wire::Unchecked reason;
  if (!scale.defined() || DescribeTensor(scale, &plain, &reason) != Readable::kYes) return;
  if (plain.gpu < 0) {
    if (!ReadNumber(plain.view, &told->scale) || !(told->scale > 0)) told->norm_known = false;
    return;
  }
  told->scale_on_gpu = true;
  GpuTensors on_gpu(uses_.late, thread, /*counts=*/false);
  on_gpu.Add(plain, wire::Target::kNone, nullptr);
  uses_.late.Enqueue(thread, TensorsToCheck{CheckedAs::kGradientScale, on_gpu.list()});
}

// Adds its squares to the norm. float16 counts an infinity as a number there.
bool UpdateReads::MayHoldBad(const PlainTensor& plain, Gradients* told) const noexcept {
  Squares squares;
  const bool summed =
      plain.IsDense() && SumOfSquares(plain.view.type, plain.view.data,
                                      static_cast<size_t>(plain.view.numel), &squares);
  told->norm_known = told->norm_known && summed;
  told->squares += squares.sum;
  told->zero += squares.all_zero;
  return !summed || plain.view.type == wire::ElementType::kFloat16 || !std::isfinite(squares.sum);
}

void UpdateReads::OnBadGradient(Reading& reading, const PlainTensor& plain,
                                const OptimizedTensor& tensor) noexcept {
  Gradients& told = reading.told;
  const NamedTensor* named = NameOf(tensor.parameter);
  if (told.bad++ == 0) {
    if (reading.report) uses_.sink.OnBadRead(reading.thread);
    told.first_bad = named;
    wire::Source known{};
    uses_.reports.known_bad().SourceOf(plain, &known, &told.first_bad_value);
  }
  if (!reading.report && !reading.ops_told) return;
  if (reading.bad.IsFull()) return uses_.reports.Remember(plain, reading.first_bad);
  ValueRef value =
      reading.report ? uses_.reports.OnBadGradient(reading.thread, plain, named, reading.first_bad)
                     : uses_.reports.OnGradientFromOutside(reading.thread, plain, named);
  if (reading.ops_told && value.ticket == 0) {
    // An op made it, as a part of the pass, which has told so, or after it (`p.grad = g / norm`).
    wire::Source known{};
    if (uses_.passes.NewestHasBadLeaf() ||
        !uses_.reports.known_bad().SourceOf(plain, &known, &value) || value.ticket == 0) {
      return;
    }
  }
  // One cause a step is all that can be told apart.
  if (reading.first_bad.ticket == 0) reading.first_bad = value;
  if (told.first_bad_value.ticket == 0) told.first_bad_value = value;
  reading.bad.Add(value, NonFiniteKinds(plain.view), named);
}

const NamedTensor* UpdateReads::NameOf(const c10::TensorImpl* parameter) const noexcept {
  return uses_.python.names().FindByImpl(parameter);
}

// One that the update writes, on a CPU: others may hold whatever they were made with.
void UpdateReads::ReadParameter(Reading& reading, const OptimizedTensor& tensor) noexcept {
  PlainTensor plain;
  wire::Unchecked reason;
  if (!tensor.gradient.defined() || !tensor.held.defined() ||
      DescribeTensor(tensor.held, &plain, &reason) != Readable::kYes || plain.gpu >= 0) {
    return;
  }
  CountChecked(reading.thread, plain);
  if (!HasNonFinite(plain.view)) return;
  uses_.reports.OnParameterFromOutside(reading.thread, plain, NameOf(tensor.parameter));
}

// `place`: among the parameters of its optimizer.
void UpdateReads::ReadGradient(Reading& reading, size_t place,
                               const OptimizedTensor& tensor) noexcept {
  Gradients& told = reading.told;
  ThreadState* thread = reading.thread;
  if (!tensor.gradient.defined()) {
    told.missing += tensor.requires_grad;
    return;
  }
  ++told.count;
  PlainTensor plain;
  if (ReadDenseOnGpu(tensor.gradient, &plain)) {
    ++told.on_gpu;
    const NamedTensor* named = nullptr;
    if (reading.plan == nullptr || !reading.plan->NameOf(place, tensor.parameter, &named)) {
      named = NameOf(tensor.parameter);
    }
    return reading.on_gpu.AddRun(plain, wire::Target::kGradient, named);
  }
  wire::Unchecked reason;
  const Readable readable = DescribeTensor(tensor.gradient, &plain, &reason);
  if (readable == Readable::kYes && plain.gpu >= 0) {
    ++told.on_gpu;
    return reading.on_gpu.AddListed(plain, wire::Target::kGradient, NameOf(tensor.parameter));
  }
  if (readable != Readable::kYes) {
    told.norm_known = false;
    if (reading.unseen && readable == Readable::kNo) {
      ++thread->counters.unchecked[static_cast<int>(reason)];
    }
    return;
  }
  if (reading.unseen) CountChecked(thread, plain);
  if (MayHoldBad(plain, &told) && HasNonFinite(plain.view)) OnBadGradient(reading, plain, tensor);
}

// On a GPU. Bad gradients alone say nothing: they may have become so after the scaler had looked.
void UpdateReads::EnqueueFoundInf(ThreadState* thread, const at::TensorBase& found_inf) noexcept {
  PlainTensor plain;
  wire::Unchecked reason;
  if (DescribeTensor(found_inf, &plain, &reason) != Readable::kYes) return;
  GpuTensors on_gpu(uses_.late, thread, /*counts=*/false);
  on_gpu.Add(plain, wire::Target::kNone, nullptr);
  uses_.late.Enqueue(thread, TensorsToCheck{CheckedAs::kFoundInf, on_gpu.list()});
}

void UpdateReads::EnqueueGpuGradients(Reading& reading) noexcept {
  Gradients& told = reading.told;
  const CheckedAs as = reading.unseen ? CheckedAs::kGradients : CheckedAs::kWatchedGradients;
  const bool all_seen = uses_.late.Enqueue(
      reading.thread, TensorsToCheck{as, reading.on_gpu.list(), reading.on_gpu.runs()});
  told.some_unseen = !all_seen || SumOfUnchecked(reading.thread) != reading.unchecked_before;
}

Gradients UpdateReads::ReadGradients(ThreadState* thread, const void* optimizer) noexcept try {
  const ValueRef bad_loss = uses_.late.On() ? ValueRef{} : uses_.losses.TakeBad();
  // Where everything was watched, the ops have reported more already.
  const uint32_t step = uses_.clock.completed();
  const bool unseen = uses_.level.watched() != wire::Level::kFull ||
                      uses_.level.raised_in_step(step) || uses_.level.switched_in_step() == step ||
                      uses_.poison_watch.ended_in_step() == step;
  // What a GPU's op leaves on the CPU is told late.
  const bool ops_told =
      !unseen && !uses_.late.On() && !uses_.poison.Ignores() && !uses_.poison.Poisoned();
  OptimizedTensors tensors;
  tensors.holds_parameters = ops_told;
  if (optimizer == nullptr || !uses_.python.ReadOptimizer(optimizer, &tensors)) return {};
  Reading reading{.thread = thread,
                  .unseen = unseen,
                  .report = false,
                  .ops_told = false,
                  .first_bad = bad_loss,
                  .unchecked_before = SumOfUnchecked(thread),
                  .on_gpu = GpuTensors(uses_.late, thread, /*counts=*/unseen),
                  .plan = plans_.Find(optimizer, uses_.python.names().generation())};
  Gradients& told = reading.told;
  told.known = told.norm_known = true;
  told.number_bad = tensors.number_bad;
  told.factor_bad = tensors.factor_bad;
  told.of_torch = tensors.is_of_torch;
  told.rate_known = tensors.rate_known;
  told.rate = tensors.rate;
  ReadFoundInf(tensors.found_inf, &told);
  reading.report = unseen && !told.skipped && !uses_.poison.Poisoned();
  told.parameters_read = reading.ops_told = ops_told && !told.skipped;
  if (uses_.late.On()) reading.on_gpu.Reserve(tensors.list.size());
  size_t place = 0;
  for (const OptimizedTensor& tensor : tensors.list) {
    ReadGradient(reading, place++, tensor);
    if (reading.ops_told) ReadParameter(reading, tensor);
  }
  if (told.skips_by_itself) EnqueueFoundInf(thread, tensors.found_inf);
  EnqueueGpuGradients(reading);
  ReadScale(thread, tensors.grad_scale, &told);
  told.waits_for_gpu = told.on_gpu != 0 && uses_.late.On();
  if (told.on_gpu != 0 && !told.waits_for_gpu) told.norm_known = false;
  told.norm = told.bad != 0 ? std::nan("") : std::sqrt(told.squares) / told.scale;
  if (reading.bad.count != 0 && (reading.report || reading.ops_told)) {
    uses_.passes.OnBadGradients(thread, told.count, told.bad, reading.bad);
  }
  return told;
} catch (...) {
  return {};
}

Gradients UpdateReads::ReadSkip(ThreadState* thread, const void* optimizer) noexcept try {
  Gradients told;
  // Only a fused optimizer under a GradScaler does.
  if (optimizer == nullptr || !uses_.losses.IsScaled()) return told;
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kSkip;
  if (!uses_.python.ReadOptimizer(optimizer, &tensors)) return told;
  ReadFoundInf(tensors.found_inf, &told);
  if (told.skips_by_itself) EnqueueFoundInf(thread, tensors.found_inf);
  return told;
} catch (...) {
  return {};
}

// A parameter or a state on the CPU.
void UpdateReads::ReadOnCpu(ThreadState* thread, const WrittenTensor& written,
                            const char* range_name, const Gradients& gradients,
                            const PlainTensor& plain) noexcept {
  CountChecked(thread, plain);
  if (!HasNonFinite(plain.view)) return;
  uses_.reports.OnBadWritten(thread, plain, NameOf(written.parameter), written.is_state, range_name,
                             gradients);
}

// As GpuTensors has it where the process ends, and nothing is launched any more.
void UpdateReads::EnqueuePlan(ThreadState* thread, const UpdatePlan& plan) noexcept {
  if (uses_.late.On()) {
    uses_.late.Enqueue(thread, TensorsToCheck{CheckedAs::kWritten, {}, plan.lists});
    return;
  }
  for (const TensorListPtr& list : plan.lists) {
    thread->counters.unchecked[static_cast<int>(wire::Unchecked::kOtherDevice)] += list->size();
  }
}

void UpdateReads::CheckUpdate(ThreadState* thread, const void* optimizer, const char* range_name,
                              const Gradients& gradients) noexcept try {
  const uint64_t names = uses_.python.names().generation();
  const std::shared_ptr<const UpdatePlan> plan = plans_.Find(optimizer, names);
  OptimizedTensors tensors;
  tensors.what = OptimizedTensors::For::kWritten;
  if (plan != nullptr) tensors.expected = plan->written;
  if (!uses_.python.ReadOptimizer(optimizer, &tensors)) return;
  if (tensors.is_expected) {
    thread->counters.tensors_checked += plan->numbers;
    thread->counters.bytes_checked += plan->number_bytes;
    plans_.OnMatch(optimizer);
    return EnqueuePlan(thread, *plan);
  }
  GpuTensors on_gpu(uses_.late, thread);
  if (uses_.late.On()) on_gpu.Reserve(tensors.written.size());
  PlanBuilder builder(plans_.MayBuild(optimizer), tensors.written.size());
  for (const WrittenTensor& written : tensors.written) {
    PlainTensor plain;
    wire::Unchecked reason;
    const wire::Target target =
        written.is_state ? wire::Target::kOptimizerState : wire::Target::kParameter;
    if (ReadDenseOnGpu(written.held, &plain)) {
      const NamedTensor* named = NameOf(written.parameter);
      builder.Add(written, plain, named);
      // Of counts there are as many as parameters, for nothing.
      if (!written.is_count) on_gpu.AddRun(plain, target, named);
      continue;
    }
    const Readable readable = DescribeTensor(written.held, &plain, &reason);
    if (readable == Readable::kYes && plain.gpu < 0) {
      builder.Add(written, plain, NameOf(written.parameter));
      ReadOnCpu(thread, written, range_name, gradients, plain);
      continue;
    }
    builder.GiveUp();
    if (readable == Readable::kYes && !written.is_count) {
      on_gpu.AddListed(plain, target, NameOf(written.parameter));
    } else if (readable == Readable::kNo) {
      ++thread->counters.unchecked[static_cast<int>(reason)];
    }
  }
  uses_.late.Enqueue(thread, TensorsToCheck{CheckedAs::kWritten, on_gpu.list(), on_gpu.runs()});
  auto built = builder.Build(optimizer, names, on_gpu.runs());
  if (built != nullptr) plans_.Keep(std::move(built));
} catch (...) {
}

}  // namespace nanwatch::canary
