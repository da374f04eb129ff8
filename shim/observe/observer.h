// SPDX-License-Identifier: Apache-2.0
// The observer: one object per process, made when libtorch is there, never destroyed.
//
// Lifecycle of an op (numbers are the order in time):
//   1 callbacks.cc       Start: push a frame, remember the layer for the op's autograd node
//   2 (while tracking)   op_begin.cc, inputs.cc: record the inputs, check whether any is bad
//   3 callbacks.cc       End: check the output; clean and nothing bad alive: done
//     output_scan.h      the same of an op that is not of the commonest kind
//   4 findings.cc        a bad value: class, sources, site, record
//   On a GPU 2 to 4 take place later, when it has answered: event_queue.h.
//   5 input_tracking.h   ask for inputs from now on, until nothing transient and bad is alive
// Steps, backward passes and collectives arrive by ranges: step_scope.cc, backward_pass.cc,
// collective_results.cc.
//
// Threads: callbacks run on every thread of the job. What they share is atomic, or behind a mutex
// of this process that is taken only while something bad is alive, at steps and at backward roots.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/wire/segment.h"
#include "shim/classify/bad_values.h"
#include "shim/classify/recent_values.h"
#include "shim/entry/observer_interface.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/figures/headroom.h"
#include "shim/observe/figures/parameter_stats.h"
#include "shim/observe/figures/trail.h"
#include "shim/observe/finding/finding_record.h"
#include "shim/observe/finding/read_sites.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/op_kernels.h"
#include "shim/observe/level/cuts.h"
#include "shim/observe/level/level_control.h"
#include "shim/observe/level/measuring.h"
#include "shim/observe/level/watch_switch.h"
#include "shim/observe/live_status.h"
#include "shim/observe/op/autograd_nodes.h"
#include "shim/observe/op/batch_norm.h"
#include "shim/observe/op/compiled_regions.h"
#include "shim/observe/op/inputs.h"
#include "shim/observe/op/op_begin.h"
#include "shim/observe/op/op_end.h"
#include "shim/observe/op/op_path.h"
#include "shim/observe/op/output_scan.h"
#include "shim/observe/op/plain_updates.h"
#include "shim/observe/op/ranges.h"
#include "shim/observe/op/special_ops.h"
#include "shim/observe/op/watched_ops.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/step/canary_reads.h"
#include "shim/observe/step/poison.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/thread/activity.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/op_table.h"
#include "shim/observe/torch/weak_storage.h"
#include "shim/observe/unseen/collective_results.h"
#include "shim/observe/unseen/read_numbers.h"
#include "shim/observe/unseen/unread_inputs.h"

namespace nanwatch {

// The state of one process image. A forked child gets a new one with its first op.
class Observer {
 public:
 private:
  static std::atomic<Observer*> current_;

  // Declared before the parts, some of which are handed them.
  const NanwatchEntry* entry_;

 public:
  Observer(const NanwatchEntry* entry_interface, const LevelAtStart& start,
           PythonBridge* python) noexcept;

  // The observer of this process; nullptr before it is made.
  static Observer* Get() noexcept { return current_.load(std::memory_order_relaxed); }
  static void Set(Observer* observer) noexcept {
    current_.store(observer);
    OpPath::SetCurrent(&observer->op_path);
  }

  // False in a forked child that has run no op yet, and after stepping down.
  bool Active() const noexcept { return op_path.activity.On(); }
  void SetActive(bool on) noexcept { op_path.activity.Set(on); }

  // For callbacks that find the observer inactive: in a forked child, makes it speak up again with
  // a state of its own, and a segment once there is something to report.
  static void WakeInChild() noexcept;

  void PublishLive(wire::LiveState state) noexcept { live.Publish(state); }

  // Parameters are bad, so nothing is reported (poison.h).
  bool Poisoned() const noexcept { return poison.Poisoned(); }
  // Because of that ops have no callback now, and nothing is read (poison_watch.h).
  bool Blind() const noexcept { return poison_watch.Blind(); }
  // Because of that what happens now will not be reported: for those who would record it.
  bool Ignores() const noexcept { return Poisoned() && !poison_watch.Hopeful(); }
  // For TakeMoment.
  [[nodiscard]] MomentParts moment_parts() noexcept {
    return {segment, *python, gpu_events.calls()};
  }
  // At a point where the program begins something new: enters or leaves that state.
  void SettlePoison() noexcept;

  OpPath op_path;
  InputTracking& input_tracking{op_path.input_tracking};
  std::atomic<bool>& plain_update_due{op_path.steps.plain_update_due};

  PythonBridge* const python;
  WatchSwitch watch_switch{*this, input_tracking, *python, bad_values, passes, steps};
  LevelControl level;
  ProcessSegment segment;
  GpuEventQueue gpu_events;
  BadValues bad_values;
  RecentValues recent_values;
  StepScope steps{op_path.steps};
  FindingRecords records{segment, recent_values, *python, steps};
  ParameterStats parameter_stats;
  BackwardPasses passes;
  Poison poison;
  PoisonWatch poison_watch;
  canary::Buffers canary_buffers;
  CollectiveResults collective_results;
  Measuring measuring;
  Cuts cuts{*this};
  Headroom headroom{segment};
  Trail trail{segment};
  OpKernels op_kernels{*entry_, *python, segment};
  LiveStatus live{segment, steps, level, measuring, gpu_events};
  UnreadInputs unread_inputs{*python};
  ReadSites read_sites;
  ReadNumbers read_numbers;
  std::atomic<uint32_t> shared_file_looks{0};  // shared_files.h
  std::atomic<uint32_t> model_looks{0};        // for bad parameters of other layers (findings.cc),
  std::atomic<uint32_t> model_look_step{0};    // and the step of the last one, plus one

  std::atomic<bool> self_proven{false};
  bool stops_on_anomaly = false;  // set before the first callback

  // ---- the path of an op that is not of the commonest kind
  CompiledRegions compiled_regions{*this,          segment, python->names(), bad_values,
                                   input_tracking, passes,  gpu_events};
  InputRecorder input_recorder{*this, bad_values, level, gpu_events};
  OutputChecker output_checker{*this, bad_values, gpu_events, cuts, op_path.steps, headroom};
  RunningStatistics running_statistics{*this, python->names(), bad_values};
  SpecialOps special_ops{*this, gpu_events, running_statistics, collective_results};
  WatchedOps watched_ops{*this, bad_values, input_tracking, gpu_events, cuts, output_checker};
  PlainUpdates plain_updates{*this, python->names(), steps};
  OpBegin op_begin{*this,      op_path.ops, input_tracking,   input_recorder,
                   gpu_events, op_kernels,  compiled_regions, collective_results};
  OpEnd op_end{{input_tracking, level, op_path.steps, steps, gpu_events, op_kernels,
                compiled_regions, output_checker, special_ops, watched_ops, plain_updates}};
  AutogradNodes autograd_nodes{*this, op_path.ops, passes, compiled_regions,
                               level, gpu_events,  cuts};
  Ranges ranges{*this, *python, steps};

  const NanwatchEntry* entry() const noexcept { return entry_; }
};

// The observer, if it is on, and this thread's state, if it is not inside our own code.
struct Here {
  Observer* observer;
  ThreadState* thread;
};
inline bool FindHere(Here* here) noexcept {
  here->observer = Observer::Get();
  here->thread = here->observer->op_path.activity.ThisThread();
  return __builtin_expect(here->thread != nullptr, 1);
}

// The same for what modules' calls bring: they come before the observer is there, too, and at a
// level at which no tensor is looked at.
inline bool FindHereInModule(Here* here) noexcept {
  const Observer* observer = Observer::Get();
  return observer != nullptr && WatchesEveryOp(observer->level.watched()) && !observer->Blind() &&
         FindHere(here);
}

}  // namespace nanwatch
