// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/observer.h"

#include <unistd.h>

#include <new>

#include "shim/observe/forks.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {
namespace {

// The pid of the process that the current observer belongs to.
std::atomic<int32_t> owner_pid{0};

}  // namespace

std::atomic<Observer*> Observer::current_{nullptr};

Observer::Observer(const NanwatchEntry* entry_interface, const LevelAtStart& start,
                   PythonBridge* bridge) noexcept
    : entry_(entry_interface),
      op_path(Activity(entry_interface->active),
              {op_begin, op_end, autograd_nodes, ranges, headroom, live, &WakeInChild}),
      python(bridge),
      level(start, {*entry_interface, op_path.sample_limit, segment, records, *python, progress,
                    watch_switch, measuring, live}),
      segment(*entry_interface, level),
      bad_values(TorchWeakStorageOps(), &gpu_state.ring.clock()),
      poison(&gpu_state.ring.clock()),
      measuring(start.measure_share, {level, *python, segment, bad_values, gpu_events, poison,
                                      named_values, stops_on_anomaly}) {
  owner_pid.store(getpid(), std::memory_order_relaxed);
}

void Observer::WakeInChild() noexcept {
  // Inactive in its own process: it has stepped down, and stays so.
  if (!forks::TakeTurnToWake()) return;
  Observer* parents = Get();
  if (!parents->self_proven.load(std::memory_order_relaxed)) return;
  const int32_t parent = owner_pid.load(std::memory_order_relaxed);
  // The parent's object is leaked: its locks may be held by threads that do not exist here.
  auto* mine =
      new (std::nothrow) Observer(parents->entry_, parents->level.start(), parents->python);
  if (mine == nullptr) return;
  mine->segment.BecomeChildOf(parent);
  mine->python->WantWholeStacks(false);
  mine->stops_on_anomaly = parents->stops_on_anomaly;
  mine->parameter_stats.SetInterval(parents->parameter_stats.interval());
  mine->gpu_events.Set(parents->gpu_events.settings());
  if (parents->op_kernels.wanted()) mine->op_kernels.Want(parents->op_kernels.on_demand());
  mine->KeepCapsules(parents->capsules.settings());
  mine->self_proven.store(true, std::memory_order_relaxed);
  mine->input_tracking.Inherit(parents->input_tracking);
  mine->input_tracking.WatchEverywhere(WatchesEveryOp(mine->level.watched()));
  ThreadStates::AfterFork();
  Set(mine);
  mine->SetActive(true);
}

void Observer::KeepCapsules(const CapsuleSettings& settings) {
  if (!settings.on) return;
  capsules.Set(settings);
  input_tracking.Hold();  // for good: an op's arguments are never to be had once it has ended
}

void Observer::OnThreadEnds(ThreadState* ending) {
  Observer* mine = Get();
  if (!mine->Active() || !mine->gpu_events.On()) return;
  mine->gpu_events.AskStream(ending);
  mine->gpu_events.OnThreadEnd(ending);
}

bool Observer::OnMemoryWanted() {
  Observer* mine = Get();
  return mine != nullptr && mine->Active() && mine->gpu_events.LetGo();
}

void Observer::BeforeDriverEnds() {
  Observer* mine = Get();
  if (mine == nullptr || !mine->Active()) return;
  mine->gpu_events.SettleAtExit();
  mine->op_kernels.EmitAtExit();
}

}  // namespace nanwatch
