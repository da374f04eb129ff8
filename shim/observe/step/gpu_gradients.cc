// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>

#include "shim/check/scan.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch::canary {

void GpuGradients::AddSums(double squares, uint32_t count, uint32_t zero) noexcept {
  state_.squares += squares;
  state_.summed += count;
  state_.zero += zero;
}

void GpuGradients::Report(ThreadState* thread, const PlainTensor& gradient,
                          const NamedTensor* named) noexcept {
  BackwardPasses::BadLeaves& leaves = state_.leaves;
  if (state_.count++ == 0) state_.first = named;
  if (leaves.IsFull()) return reports_.Remember(gradient, state_.first_value);
  const ValueRef from = leaves.count != 0 ? leaves.values[0] : losses_.TakeBad();
  if (from.ticket == 0) late_.ResolveReceived(thread, gradient);
  leaves.Add(reports_.OnBadGradient(thread, gradient, named, from), NonFiniteKinds(gradient.view),
             named);
  state_.first_value = leaves.values[0];
}

void GpuGradients::ReportWatched(const PlainTensor& gradient, const NamedTensor* named) noexcept {
  if (state_.count++ != 0) return;
  state_.first = named;
  wire::Source known{};
  reports_.known_bad().SourceOf(gradient, &known, &state_.first_value);
}

void GpuGradients::Settle(ThreadState* thread, const char* range_name,
                          Gradients* gradients) noexcept {
  gradients->waits_for_gpu = false;
  gradients->some_unseen |= state_.some_unseen;
  gradients->zero += state_.zero;
  if (state_.summed != gradients->on_gpu) gradients->norm_known = false;
  gradients->squares += state_.squares;
  if (gradients->scale_on_gpu) {
    gradients->scale = state_.scale;
    if (!(state_.scale > 0)) gradients->norm_known = false;
  }
  gradients->norm = gradients->bad == 0 && std::isfinite(gradients->squares)
                        ? std::sqrt(gradients->squares) / gradients->scale
                        : std::nan("");
  if (state_.count != 0) {
    gradients->bad += state_.count;
    gradients->norm = std::nan("");
    gradients->first_bad = state_.first;
    gradients->first_bad_value = state_.first_value;
    if (state_.leaves.count != 0) {
      passes_.OnBadGradients(thread, gradients->count, state_.count, state_.leaves);
    }
  }
  // One that led to no gradient explains none of a later step.
  (void)losses_.TakeBad();
  state_ = {};
  update_ = *gradients;
  update_thread_ = thread->told != nullptr ? thread->told->thread : thread;
  std::snprintf(range_name_, sizeof range_name_, "%s", range_name);
}

void GpuGradients::ReportWritten(ThreadState* thread, const PlainTensor& tensor,
                                 const NamedTensor* named, bool is_state) const noexcept {
  // One that has skipped itself has written nothing.
  if (update_.skipped) return;
  reports_.OnBadWritten(thread, tensor, named, is_state, range_name_, update_);
}

}  // namespace nanwatch::canary
