// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/step_scope.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/figures/parameter_stats.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/step/canary_reads.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/step/step_publisher.h"
#include "shim/observe/step/stop.h"
#include "shim/observe/step/update_record.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/torch_threads.h"

namespace nanwatch {
namespace {

// "Optimizer.step#AdamW.step" -> "AdamW"
std::string_view ClassOf(const char* range_name) {
  std::string_view name(range_name);
  const size_t hash = name.find('#');
  if (hash != std::string_view::npos) name.remove_prefix(hash + 1);
  const size_t dot = name.rfind(".step");
  return dot != std::string_view::npos ? name.substr(0, dot) : name;
}

// The step that is open on this thread.
struct OpenUpdate {
  const void* optimizer = nullptr;  // a torch.optim.Optimizer; null: none, or it cannot be read
  bool is_checked = false;          // what it writes is read where it ends
  Gradients gradients;              // these two are of one that is
  char range_name[96] = {};
};
thread_local OpenUpdate open_update;

}  // namespace

// Once: who has asked for a stop is told that it may not come.
void StepScope::SayUnseen() const noexcept {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  uses_.entry.say(
      "gradients on a GPU could not be looked at before their update was applied: a bad one there "
      "does not stop the job (--on-anomaly stop)");
}

void StepScope::OnStepBegin(ThreadState* thread, const char* range_name, const void* optimizer,
                            const void* identity) noexcept {
  if (thread->optimizer_depth++ != 0) return;
  thread->optimizer_pass_plus_one = torch::autograd::get_current_graph_task_id() + 1;
  uses_.sink.OnBoundary(thread);
  uses_.poison_watch.At(thread, PoisonWatch::Border::kStepBegins, optimizer);
  OnOptimizerBegin(thread, range_name, optimizer, identity != nullptr ? identity : optimizer);
}

void StepScope::OnStepEnd(ThreadState* thread) noexcept {
  if (thread->optimizer_depth == 0 || --thread->optimizer_depth != 0) return;
  uses_.losses.SetScaled(false);
  OnOptimizerEnd(thread);
  uses_.sink.OnBoundary(thread);
  uses_.poison_watch.At(thread, PoisonWatch::Border::kStepEnded);
}

void StepScope::OnStepsLeft(ThreadState* thread, uint32_t open) noexcept {
  if (thread->optimizer_depth <= open) return;
  thread->optimizer_depth = open;
  if (open != 0) return;
  thread->optimizer_stopped = true;
  OnOptimizerEnd(thread);
}

Gradients StepScope::ReadGradients(ThreadState* thread, const void* optimizer) noexcept {
  if (uses_.poison.Blind() || uses_.level.off_to_measure()) {
    return uses_.reads.ReadSkip(thread, optimizer);
  }
  if (uses_.level.watched() == wire::Level::kIdle && !uses_.stops_on_anomaly) return {};
  const auto& not_ready =
      thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuNotReady)];
  const uint64_t not_ready_before = not_ready;
  const Gradients gradients = uses_.reads.ReadGradients(thread, optimizer);
  // Where the first tensors of a GPU are gradients, it has only now begun to be set up.
  if (uses_.stops_on_anomaly && not_ready != not_ready_before && uses_.late.WaitForSetUp()) {
    return uses_.reads.ReadGradients(thread, optimizer);
  }
  return gradients;
}

// Waits for a GPU where that was asked for, and stops the job. `event`: the update's, where facts
// wait for a GPU. True: the update skips itself.
bool StepScope::StopIfBad(ThreadState* thread, uint64_t event, Gradients* gradients) noexcept {
  const bool stops = uses_.stops_on_anomaly;
  bool resolved = !uses_.late.On();
  if (!resolved && stops && gradients->waits_for_gpu) {
    resolved = uses_.late.WaitForGpu(thread, event);
    if (resolved) *gradients = uses_.publisher.gradients();
    if (!resolved || gradients->some_unseen) SayUnseen();
  }
  // A fused optimizer under a GradScaler skips inside its kernel.
  const bool skipped = gradients->skipped || (resolved && uses_.scaler.FoundInf());
  if (gradients->bad != 0 && !skipped && stops) {
    thread->optimizer_stopped = uses_.stop.StopBeforeUpdate(
        *gradients, uses_.progress.StepsOfNewest(), uses_.passes.BadRoot());
  }
  return skipped;
}

void StepScope::OnOptimizerBegin(ThreadState* thread, const char* range_name, const void* optimizer,
                                 const void* identity) noexcept {
  uses_.passes.ReleaseInputs();
  open_update.optimizer = optimizer;
  if (uses_.segment.Ensure() == nullptr) return;
  const bool later_at_first = uses_.late.On();
  if (!later_at_first) uses_.poison_watch.Settle();
  Gradients gradients = ReadGradients(thread, optimizer);
  thread->optimizer_factor_bad = gradients.factor_bad;
  thread->optimizer_is_of_torch = gradients.of_torch;
  thread->optimizer_parameters_read = gradients.parameters_read;
  thread->given_finite_after_passes_plus_one =
      gradients.AreFinite() ? uint64_t{uses_.progress.Now().passes} + 1 : 0;
  const bool later = uses_.late.On();
  const UpdateBegan update{identity, range_name, gradients};
  uint64_t event = 0;
  if (later) {
    event = uses_.late.Enqueue(thread, update);
  } else {
    RecordOptimizerBegin(thread, update);
  }
  const bool skipped = StopIfBad(thread, event, &gradients);
  WatchUpdate(thread, range_name, optimizer, gradients, skipped);
  // At level sampled nothing on a GPU is known of what an op was given, unless it is asked for.
  const bool needs_inputs =
      later ? uses_.level.watched() == wire::Level::kSampled && thread->optimizer_watches_ops
            : NeedsInputs(thread->optimizer_index);
  thread->optimizer_holds_inputs = needs_inputs && !uses_.poison.Ignores();
  if (thread->optimizer_holds_inputs) uses_.tracking.Hold();
}

// How the update that begins is watched. A skipped one does nothing but take the scale from the
// gradients.
void StepScope::WatchUpdate(ThreadState* thread, const char* range_name, const void* optimizer,
                            const Gradients& gradients, bool skipped) noexcept {
  const wire::Level watched = uses_.level.watched();
  const bool blind = uses_.poison.Blind();
  const bool watches = watched != wire::Level::kIdle && !skipped && !blind;
  // What an update writes on a GPU is read at its end, but in the first steps.
  const bool by_list = watched == wire::Level::kSampled && uses_.late.On();
  const bool canary = watches && (watched == wire::Level::kCanary || by_list);
  const uint32_t until =
      by_list ? std::min(ops_watched_until_, kAskedForInputs) : ops_watched_until_;
  // Ops that the program has hidden are none to watch: what they write is read.
  const bool by_ops =
      optimizer == nullptr || (uses_.marks.iteration.load(std::memory_order_relaxed) < until &&
                               at::isRecordFunctionEnabled());
  thread->optimizer_watches_ops = canary && by_ops;
  const bool after_off = uses_.sink.ReadsAfterStep() && !skipped && !blind;
  open_update.is_checked = false;
  if ((canary && !by_ops) || after_off) {
    open_update = {optimizer, optimizer != nullptr, gradients, {}};
    if (after_off) {
      // What went in was not read in all of these steps.
      open_update.gradients.known = false;
      open_update.gradients.some_unseen = true;
    }
    std::strncpy(open_update.range_name, range_name, sizeof open_update.range_name - 1);
  }
  if (thread->optimizer_watches_ops) {
    uses_.tracking.BeginWatchedRange();
    // A gradient that is bad: what its update makes of it comes of it.
    if (!uses_.poison.Ignores() && uses_.bad_values.transient() != 0) uses_.tracking.Arm();
  }
  uses_.stats.OnOptimizerBegin(optimizer, ClassOf(range_name), watches && !uses_.poison.Ignores());
}

void StepScope::RecordOptimizerBegin(ThreadState* thread, const UpdateBegan& update) noexcept {
  if (thread->told != nullptr) uses_.poison_watch.Settle();
  const uint32_t number =
      uses_.progress.NumberOf(update.optimizer, ClassOf(update.range_name), uses_.segment.Ensure());
  thread->optimizer_index = number;
  uses_.publisher.SetGradients(update.gradients);
  uses_.progress.Begin(number);
}

// The first range shows whether the optimizer writes what only shows with inputs.
bool StepScope::NeedsInputs(uint32_t optimizer) noexcept {
  return uses_.progress.HasBegunOnce(optimizer) || fused_seen_.load(std::memory_order_relaxed);
}

void StepScope::CheckUpdate(ThreadState* thread, bool stopped) noexcept {
  const bool checked = open_update.is_checked;
  const bool after_off = checked && !stopped && uses_.sink.ReadsAfterStep();
  if (after_off) uses_.sink.RecordStepEnded();
  if (checked && !stopped && !uses_.poison.Ignores()) {
    uses_.reads.CheckUpdate(thread, open_update.optimizer, open_update.range_name,
                            open_update.gradients);
  }
  open_update.is_checked = false;
  if (!stopped) uses_.buffers.OnStepEnd(thread);
  if (after_off) uses_.sink.ReadAfter(thread);
}

void StepScope::OnOptimizerEnd(ThreadState* thread) noexcept {
  const bool hold = thread->optimizer_holds_inputs;
  thread->optimizer_holds_inputs = false;
  const bool stopped = thread->optimizer_stopped;
  thread->optimizer_stopped = false;
  thread->optimizer_factor_bad = thread->optimizer_parameters_read = false;
  thread->given_finite_after_passes_plus_one = 0;
  if (hold) {
    uses_.tracking.Release();
    if (uses_.late.On() && uses_.bad_values.transient() == 0) uses_.tracking.Disarm();
  }
  uses_.stats.OnOptimizerEnd(stopped);
  const bool checked = open_update.is_checked;
  CheckUpdate(thread, stopped);
  RecordThreadTrains();
  // Between two updates nothing is followed at level canary.
  const bool follows =
      WatchesEveryOp(uses_.level.watched()) || uses_.level.asked() == wire::Level::kFull;
  const bool unwatched =
      (checked && !follows) || (thread->optimizer_watches_ops && uses_.tracking.EndWatchedRange());
  thread->optimizer_watches_ops = false;
  uses_.marks.plain_update_due.store(false, std::memory_order_relaxed);
  const UpdateEnded update{stopped, unwatched};
  if (uses_.late.On()) return uses_.late.Enqueue(thread, update);
  RecordOptimizerEnd(thread, update);
}

void StepScope::RecordOptimizerEnd(ThreadState* thread, const UpdateEnded& update) noexcept {
  const uint32_t number = thread->optimizer_index;
  // The pass that ended with this update is closed only now: a closure runs it inside the range.
  uses_.passes.Close(thread);
  if (!uses_.poison.Poisoned() && uses_.bad_values.size() != 0) {
    const bool here = thread->told == nullptr && !update.stopped;
    RecordUpdate(uses_.segment, uses_.records, uses_.bad_values, uses_.python, thread,
                 {uses_.progress.range(), number, uses_.progress.ClassOf(number),
                  here ? open_update.optimizer : nullptr, &updates_named_});
  }
  if (update.ops_unwatched) uses_.level.ForgetBadValues(uses_.bad_values);
  // A fused optimizer under a GradScaler skips inside its kernel: its range is no step.
  const bool skipped = uses_.publisher.gradients().skipped ||
                       (fused_seen_.load(std::memory_order_relaxed) && uses_.scaler.FoundInf());
  const ThreadState* ran_on = thread->told != nullptr ? thread->told->thread : thread;
  uses_.progress.End(number, /*counts=*/!skipped && !update.stopped, ran_on->small_id);
  // The update of the scale publishes the step that was skipped.
  if (!skipped) uses_.publisher.Publish(thread, number, false);
}

bool StepScope::AwaitsFirstKindOfUpdate() const noexcept {
  return uses_.marks.plain_update_due.load(std::memory_order_relaxed) &&
         uses_.progress.Now().optimizer_ranges == 0;
}

void StepScope::OnPlainUpdate(ThreadState* thread) noexcept {
  uses_.marks.plain_update_due.store(false, std::memory_order_relaxed);
  RecordThreadTrains();
  if (uses_.late.On()) return uses_.late.Enqueue(thread, PlainUpdate{});
  RecordPlainUpdate(thread);
}

void StepScope::RecordPlainUpdate(ThreadState* thread) noexcept {
  if (uses_.progress.CompletePlain()) uses_.publisher.Publish(thread, 0, false);
}

void StepScope::OnScaleUpdate(ThreadState* thread, const ScalerState::Update& update) noexcept {
  wire::ScalerRecord record = uses_.scaler.OnUpdate(update);
  if ((record.flags & wire::ScalerRecord::kSkipped) == 0) return;
  uses_.passes.Close(thread);
  Emitter* emitter = uses_.segment.Ensure();
  if (emitter != nullptr) {
    record.header =
        uses_.records.MakeHeader(thread, *emitter, wire::RecordKind::kScaler, sizeof record);
    emitter->Emit(record.header);
  }
  uses_.progress.CompleteSkip();
  uses_.publisher.Publish(thread, 0, true);
}

}  // namespace nanwatch
