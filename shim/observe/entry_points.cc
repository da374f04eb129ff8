// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/entry_points.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>

#include "shim/check/scan.h"
#include "shim/host/process_identity.h"
#include "shim/host/unwatched_mark.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/observer.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/torch_tensor.h"
#include "shim/observe/unseen/named_values.h"

namespace nanwatch::entry_points {
namespace {

// By an exception that nobody caught.
std::atomic<wire::EndRecord::Failed> failed{wire::EndRecord::Failed::kNot};

// Null before the observer is made, which is after the first calls from Python.
Observer* Made() noexcept { return Observer::Get(); }

// The observer, and this thread's state.
struct Here {
  Observer* observer;
  ThreadState* thread;
};

// False: there is no observer, it is off, or the thread is inside our own code.
bool FindHere(Here* here) noexcept {
  here->observer = Made();
  here->thread =
      here->observer != nullptr ? here->observer->op_path.activity.ThisThread() : nullptr;
  return here->thread != nullptr;
}

// The same, where tensors are checked outside ops.
bool FindHereInModule(Here* here) noexcept {
  const Observer* observer = Made();
  return observer != nullptr && WatchesEveryOp(observer->level.watched()) &&
         !observer->poison.Blind() && FindHere(here);
}

// Steps that an exception has ended are not told to have; those that are open, this one among them,
// stand on the thread's stack.
void LeaveSteps(const Here& here, uint32_t begun_now) noexcept {
  const PythonBridge& python = *here.observer->python;
  if (!python.ReportsSteps()) return;
  const uint32_t open = python.OptimizersOnThisThread();
  here.observer->steps.OnStepsLeft(here.thread, open - std::min(open, begun_now));
}

// 0: the process can have no segment.
uint32_t NameId(ProcessSegment& segment, const char* name) noexcept {
  Emitter* emitter = segment.Ensure();
  return emitter != nullptr ? InternText(*emitter, name) : 0;
}

}  // namespace

void OnStepBegin(const void* optimizer, const void* identity, const char* name) noexcept {
  if (Observer* made = Made(); made != nullptr && !made->Active()) Observer::WakeInChild();
  Here here;
  if (!FindHere(&here)) return;
  BusyScope busy(here.thread);
  here.observer->level.RecordIfHidden();
  here.observer->python->ReplaceSavesImportedLate();
  if (here.thread->optimizer_depth != 0) LeaveSteps(here, 1);
  const wire::Level watched = here.observer->level.watched();
  if ((watched == wire::Level::kCanary || watched == wire::Level::kFull) &&
      here.observer->python->FindDistributed() && watched == wire::Level::kCanary) {
    here.observer->level.ChooseRanges();
  }
  StepScope& steps = here.observer->steps;
  steps.OnStepBegin(here.thread, name, optimizer, identity);
  // The exception that is on its way will end it, and nobody would tell.
  if (here.thread->optimizer_stopped) steps.OnStepsLeft(here.thread, 0);
}

void OnStepEnd() noexcept {
  Here here;
  if (!FindHere(&here)) return;
  BusyScope busy(here.thread);
  here.observer->steps.OnStepEnd(here.thread);
}

void OnStepsTold() noexcept {
  Observer* observer = Made();
  if (observer != nullptr) observer->level.ChooseRanges();
}

void OnGraphCalled(const void* graph, GraphCall call) noexcept {
  Here here;
  if (!FindHere(&here) || !here.observer->gpu_events.On()) return;
  BusyScope busy(here.thread);
  here.observer->gpu_events.OnGraphCall(here.thread, graph, call);
}

PythonBridgeCallbacks::Wanted OnRootCall() noexcept {
  Here here;
  if (!FindHere(&here)) return {false, false, false};
  if (here.thread->optimizer_depth != 0) {
    BusyScope busy(here.thread);
    LeaveSteps(here, 0);
  }
  here.thread->root_with_gradients = c10::GradMode::is_enabled();
  LevelControl& level = here.observer->level;
  level.RecordIfHidden();
  if (!WatchesEveryOp(level.watched())) (void)here.observer->segment.EnsureForCall();
  level.Look(here.thread);
  {
    BusyScope busy(here.thread);
    here.observer->poison_watch.At(here.thread, PoisonWatch::Border::kCall);
    if (level.off_to_measure()) here.observer->measuring.OnRootCall(here.thread);
  }
  const bool blind = here.observer->poison.Blind();
  return {WatchesEveryOp(level.watched()) && !blind, level.watched() != wire::Level::kIdle,
          level.watched() == wire::Level::kSampled && !blind};
}

// Between two cells nothing of a training runs.
void OnCell() noexcept {
  Here here;
  if (!FindHere(&here)) return;
  here.observer->step_publisher.OnCell();
  here.observer->poison.Leave();
  here.observer->poison_watch.At(here.thread, PoisonWatch::Border::kCall);
  // So that `nanwatch attach` finds a kernel in which nothing was trained yet.
  (void)here.observer->segment.Ensure();
  here.observer->level.Look(here.thread);
}

void OnRootArguments(const at::TensorBase* const* tensors, const char* const* names,
                     size_t count) noexcept {
  Here here;
  if (!FindHereInModule(&here)) return;
  BusyScope busy(here.thread);
  // A closure that meets parameters which its own step has spoiled belongs to that step still.
  const bool in_step = here.thread->optimizer_depth != 0;
  if (!here.observer->gpu_events.On() && !in_step) here.observer->poison_watch.Settle();
  if (here.observer->poison.Ignores()) return;
  if (!here.observer->segment.EnsureForCall()) return;
  GpuTensors on_gpu(here.observer->gpu_events, here.thread);
  for (size_t i = 0; i < count; ++i) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (DescribeTensor(*tensors[i], &plain, &reason) != Readable::kYes) continue;
    if (plain.gpu >= 0) {
      on_gpu.Add(plain, wire::Target::kInputData, nullptr,
                 NameId(here.observer->segment, names[i]));
      continue;
    }
    // What comes from a GPU enters nowhere, and is known by what is known there.
    if (here.observer->gpu_events.MayBeUnderWay(plain)) {
      ++here.thread->counters.unchecked[static_cast<int>(wire::Unchecked::kAsync)];
      continue;
    }
    ++here.thread->counters.tensors_checked;
    here.thread->counters.bytes_checked += BytesOf(plain.view);
    if (!HasNonFinite(plain.view)) continue;
    here.observer->collective_results.CheckAll(here.thread, nullptr, 0);
    here.observer->named_values.ReportEntry(plain, wire::Target::kInputData,
                                            NameId(here.observer->segment, names[i]));
  }
  here.observer->gpu_events.EnqueueTensors(here.thread, CheckedAs::kEntries, on_gpu.list());
}

void OnModuleResult(const at::TensorBase* const* tensors, size_t count) noexcept {
  Here here;
  if (!FindHere(&here)) return;
  // Of tensors on a CPU all has been done where their ops ended.
  const bool samples = here.observer->level.watched() == wire::Level::kSampled;
  if (!samples || here.observer->poison.Poisoned()) return;
  const BusyScope busy(here.thread);
  here.observer->gpu_events.OnResults(here.thread, {tensors, count});
}

void OnRegionOutputs(const at::TensorBase* const* outputs, size_t output_count,
                     const at::TensorBase* const* inputs, const char* const* input_names,
                     size_t input_count) noexcept {
  Here here;
  if (!FindHereInModule(&here)) return;
  BusyScope busy(here.thread);
  here.observer->compiled_regions.OnOutputs(here.thread, {outputs, nullptr, output_count},
                                            {inputs, input_names, input_count});
}

void OnNewRoot(const Layer* root) noexcept try {
  Here here;
  Observer* const observer = Made();
  if (observer != nullptr) observer->progress.RecordNewRoot();
  if (observer != nullptr && observer->Active() &&
      observer->level.watched() != wire::Level::kIdle) {
    observer->canary_buffers.OnNewRoot(root);
  }
  if (!FindHereInModule(&here)) return;
  BusyScope busy(here.thread);
  here.observer->python->CallAtExitSoon();
  if (!here.observer->segment.EnsureForCall()) return;
  const PythonNames& names = here.observer->python->names();
  GpuTensors on_gpu(here.observer->gpu_events, here.thread);
  names.ForEachInRoot(root, [&](const NamedTensor& named) {
    const NamedReading reading(names, named);
    if (reading.OnGpu()) {
      on_gpu.Add(reading.tensor(), TargetOf(named), &named);
    } else if (reading.IsBad()) {
      here.observer->named_values.ReportEntry(reading.tensor(), TargetOf(named),
                                              NameId(here.observer->segment, named.name));
    }
  });
  here.observer->gpu_events.EnqueueTensors(here.thread, CheckedAs::kEntries, on_gpu.list());
} catch (...) {
}

// `here`: a Here.
static void OnReplaced(void* here, const at::TensorBase& tensor, const NamedTensor& named) {
  const Here& now = *static_cast<const Here*>(here);
  now.observer->exchanged_data.OnReplaced(now.thread, tensor, named);
}

void OnRootResult(const at::TensorBase* const* tensors, size_t count) noexcept {
  Here here;
  if (!FindHere(&here)) return;
  here.observer->loss_reads.OnRootResult(here.thread, tensors, count);
  if (!here.observer->known_bad.Any()) return;
  here.observer->python->ForEachReplacedBuffer(&OnReplaced, &here);
}

void OnScale(const at::TensorBase* loss) noexcept {
  Here here;
  if (FindHere(&here)) here.observer->loss_reads.OnScale(here.thread, loss);
}

void OnBackward(const at::TensorBase* const* roots, size_t count) noexcept {
  Here here;
  if (!FindHere(&here)) return;
  here.observer->level.RecordIfHidden();
  here.observer->loss_reads.OnBackward(here.thread, roots, count);
}

void OnScaleUpdated(const at::TensorBase& scale, const at::TensorBase& found_inf) noexcept {
  Here here;
  if (!FindHere(&here)) return;
  here.observer->level.RecordIfHidden();
  here.observer->scaler_watch.OnUpdatedUnseen(here.thread, scale, found_inf);
}

void OnNumberRead(const at::TensorBase& tensor, double number) noexcept {
  Here here;
  if (FindHere(&here)) here.observer->canary_reads.OnNumberRead(here.thread, tensor, number);
}

void OnAsked(const at::TensorBase& tensor) noexcept {
  Here here;
  if (FindHere(&here)) here.observer->canary_reads.OnAsked(here.thread, tensor);
}

void OnData(const at::TensorBase& tensor, const NamedTensor* named) noexcept {
  Here here;
  if (!FindHere(&here)) return;
  BusyScope busy(here.thread);
  here.observer->exchanged_data.OnData(here.thread, tensor, named);
  if (!here.observer->python->found_distributed()) {
    here.observer->plain_updates.OnData(here.thread, tensor);
  }
}

void OnMessage(const char* line) {
  if (Observer* observer = Made(); observer != nullptr) observer->entry()->say(line);
}

void OnRecordSwitch() {
  Here here;
  if (FindHere(&here)) here.observer->level.RecordIfHidden();
}

void BeforeProfiler() {
  if (Observer* observer = Made(); observer != nullptr) observer->op_kernels.OnProfiler();
}

void OnSettled() {
  if (Observer* observer = Made(); observer != nullptr) observer->segment.Listen();
}

void OnLate() {
  if (Observer* observer = Made(); observer != nullptr) observer->level.RecordCameLate();
}

static wire::EndRecord::Failed FailedBy(ExitCall::Ending ending) {
  using Failed = wire::EndRecord::Failed;
  if (ending == ExitCall::Ending::kFailedByBadValue) return Failed::kByBadValue;
  return ending == ExitCall::Ending::kFailed ? Failed::kByException : Failed::kNot;
}

void OnSaveBegins(unsigned save, const SavedTensors& saved) {
  Here here;
  if (!FindHere(&here)) return;
  BusyScope busy(here.thread);
  here.observer->checkpoints.Begin(save, saved);
}

void OnSaveWaits(unsigned save) noexcept {
  if (Observer* observer = Made(); observer != nullptr) observer->checkpoints.Wait(save);
}

void OnSaveEnds(unsigned save, const char* file, bool failed) {
  Here here;
  const bool here_is = FindHere(&here);
  if (here.observer == nullptr) return;
  if (!here_is) return here.observer->checkpoints.End(nullptr, save, file, failed);
  BusyScope busy(here.thread);
  here.observer->checkpoints.End(here.thread, save, file, failed);
}

void OnPythonEnds(ExitCall::Ending ending) {
  // In a notebook it was a cell's, and the kernel went on.
  if (Observer* observer = Made(); observer != nullptr && observer->python != nullptr) {
    if (observer->python->cell_epoch() == 0)
      failed.store(FailedBy(ending), std::memory_order_relaxed);
  }
  Here here;
  if (!FindHere(&here)) return;
  BusyScope busy(here.thread);
  // What the program puts into its modules last, and saves.
  if (here.observer->known_bad.Any()) {
    here.observer->python->ForEachReplacedAtLast(&OnReplaced, &here);
  }
  // After an exception nobody knows what has raised it, so steps that were not checked stay so.
  if (ending != ExitCall::Ending::kNormal) return;
  here.observer->measuring.OnExit(here.thread);
  const LevelControl& level = here.observer->level;
  const bool knows_all = WatchesEveryOp(level.watched()) && !level.forgot_bad_values() &&
                         !level.was_blind() && !here.observer->poison.Poisoned() &&
                         !here.observer->bad_values.lost();
  if (knows_all) here.observer->named_values.ReadAtEnd(here.thread);
}

void OnExit() {
  Observer* observer = Made();
  if (observer == nullptr || !observer->Active()) return;
  observer->gpu_events.SettleAtExit();
  observer->parameter_stats.EmitAllAwaited();
  observer->op_kernels.EmitAtExit();
  // A script without modules and steps has no segment yet; that its ops were clean is an answer.
  // Workers are many, and with nothing to report they leave nothing, spawned ones as forked ones.
  const bool ran_ops = ThreadStates::Sum().ops_seen != 0;
  if (ran_ops && !IsSpawnedWorker()) (void)observer->segment.EnsureForCall();
  if (observer->segment.emitter() == nullptr) SettleMark(ran_ops);
  observer->PublishLive(wire::LiveState::kExited);
  if (observer->segment.emitter() == nullptr) return;
  observer->segment.emitter()->End(wire::EndRecord::How::kExit,
                                   failed.load(std::memory_order_relaxed));
  observer->segment.emitter()->Retire();
}

// No exit handler follows. How the process ends is not told: the call may yet fail.
void BeforeOsExit() {
  Observer* observer = Made();
  if (observer == nullptr || !observer->Active() || !observer->gpu_events.On()) return;
  observer->gpu_events.SettleAtExit();
  observer->parameter_stats.EmitAllAwaited();
  observer->op_kernels.EmitAtExit();
}

}  // namespace nanwatch::entry_points
