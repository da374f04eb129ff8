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
// collectives.cc.
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
#include "shim/observe/capsule/capsules.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/pass_leaves.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/events/ruined_parameters.h"
#include "shim/observe/figures/checkpoints.h"
#include "shim/observe/figures/headroom.h"
#include "shim/observe/figures/parameter_stats.h"
#include "shim/observe/figures/trail.h"
#include "shim/observe/finding/clean_outputs.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/finding/loss_roots.h"
#include "shim/observe/finding/op_judge.h"
#include "shim/observe/finding/picked_values.h"
#include "shim/observe/finding/scalar_reads.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/finding/stacked_values.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/op_kernels.h"
#include "shim/observe/level/level_control.h"
#include "shim/observe/level/measuring.h"
#include "shim/observe/level/sampling.h"
#include "shim/observe/level/step_decisions.h"
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
#include "shim/observe/step/canary.h"
#include "shim/observe/step/canary_reads.h"
#include "shim/observe/step/loss.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/scaler.h"
#include "shim/observe/step/scaler_state.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/step/step_publisher.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/step/stop.h"
#include "shim/observe/thread/activity.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/op_table.h"
#include "shim/observe/torch/weak_storage.h"
#include "shim/observe/unseen/collective_records.h"
#include "shim/observe/unseen/collective_results.h"
#include "shim/observe/unseen/collectives.h"
#include "shim/observe/unseen/compiled_writer.h"
#include "shim/observe/unseen/exchanged_data.h"
#include "shim/observe/unseen/external_values.h"
#include "shim/observe/unseen/named_values.h"
#include "shim/observe/unseen/out_of_sight.h"
#include "shim/observe/unseen/read_numbers.h"
#include "shim/observe/unseen/shared_files.h"
#include "shim/observe/unseen/unobserved_writer.h"
#include "shim/observe/unseen/unread_inputs.h"

namespace nanwatch {

// The state of one process image. A forked child gets a new one with its first op.
class Observer {
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

  // Before the first op is seen.
  void KeepCapsules(const CapsuleSettings& settings);

  void PublishLive(wire::LiveState state) noexcept { live.Publish(state); }

  OpPath op_path;
  InputTracking& input_tracking{op_path.input_tracking};
  bool stops_on_anomaly = false;  // set before the first callback
  std::atomic<bool> self_proven{false};

  // ---- what is known
  PythonBridge* const python;
  StepProgress progress;
  StepLosses losses;
  ScalerState scaler_state;
  WatchSwitch watch_switch{input_tracking, *python, bad_values, passes, scaler_state};
  LevelControl level;
  ProcessSegment segment;
  GpuState gpu_state{*entry_};
  BadValues bad_values;
  RecentValues recent_values;
  FindingRecords records{segment, recent_values, *python, progress};
  KnownBad known_bad{bad_values, input_tracking, progress};
  Poison poison;
  RuinedParameters ruined_parameters;
  PassLeaves pass_leaves;

  // ---- figures
  ParameterStats parameter_stats{segment, *python, progress, gpu_events};
  Headroom headroom{segment};
  Trail trail{segment};
  Checkpoints checkpoints{segment, records, python->names()};
  Capsules capsules;

  // ---- what no observed op has written
  UnobservedWrites unobserved_writes{segment, records, known_bad, poison};
  CollectiveRecords collective_records{segment, records, unobserved_writes};
  CollectiveResults collective_results{known_bad, collective_records, poison, progress, gpu_events};
  Collectives collectives{{collective_results, collective_records, known_bad, poison, level,
                           input_tracking, progress, gpu_events}};
  SharedFiles shared_files{bad_values, collective_records, collective_results};
  ExternalValues external_values{segment, known_bad, shared_files};
  NamedValues named_values{
      {python->names(), level, recent_values, known_bad, external_values, unobserved_writes}};
  CompiledWrites compiled_writes{known_bad, unobserved_writes};
  ExchangedData exchanged_data{{known_bad, poison, unobserved_writes}};
  UnreadInputs unread_inputs{*python};
  ReadNumbers read_numbers{progress, input_tracking};
  OutOfSight out_of_sight{{segment, level, bad_values, collective_results, python->names(),
                           input_tracking, progress, unread_inputs}};

  // ---- findings
  LossRoots loss_roots;
  ScalarReads scalar_reads{
      {segment, records, recent_values, poison, read_numbers, loss_roots, compiled_writes}};
  SourceFinder source_finder{{known_bad, external_values, collective_results, recent_values,
                              python->names(), level, progress, gpu_events, ruined_parameters}};
  StackedValues stacked_values{bad_values};
  PickedValues picked_values{bad_values};
  OpJudge op_judge{*python,       source_finder, stacked_values, picked_values, read_numbers,
                   unread_inputs, progress,      op_path.steps,  pass_leaves};
  Findings findings{{segment, records, *python, recent_values, known_bad, poison, op_path.steps,
                     op_judge, shared_files, out_of_sight, trail, capsules, op_kernels,
                     pass_leaves}};
  CleanOutputs clean_outputs{{segment, records, bad_values, known_bad, poison, scalar_reads}};

  // ---- passes and steps
  PoisonWatch poison_watch{{*python, poison, bad_values, ruined_parameters, input_tracking, level,
                            progress, gpu_events, stops_on_anomaly}};
  BackwardPasses passes{{segment, records, recent_values, known_bad, bad_values, input_tracking,
                         python->names(), poison, poison_watch, op_path.steps, progress, losses,
                         loss_roots, gpu_events, pass_leaves}};
  canary::Reports canary_reports{
      {known_bad, recent_values, unobserved_writes, collective_results, level, step_decisions}};
  canary::UpdateReads update_reads{{*python, level, poison, poison_watch, progress, losses, passes,
                                    canary_reports, gpu_events, step_decisions}};
  canary::Reads canary_reads{
      {segment, level, poison, known_bad, unobserved_writes, scalar_reads, losses}};
  canary::Buffers canary_buffers{
      {python->names(), level, poison, known_bad, unobserved_writes, losses, step_decisions}};
  LossReads loss_reads{{level, poison, known_bad, unobserved_writes, compiled_writes, canary_reads,
                        passes, poison_watch, losses, gpu_events}};
  JobStop job_stop{*entry_, segment, *python, recent_values};
  StepPublisher step_publisher{{*entry_, segment, records, *python, bad_values, input_tracking,
                                level, poison, poison_watch, op_path.steps, progress, losses,
                                scaler_state, read_numbers, headroom, capsules, step_decisions}};
  StepScope steps{{*entry_,        *python,         segment,         records,        bad_values,
                   input_tracking, level,           poison,          poison_watch,   op_path.steps,
                   progress,       losses,          scaler_state,    step_publisher, passes,
                   update_reads,   canary_buffers,  parameter_stats, job_stop,       gpu_events,
                   step_decisions, stops_on_anomaly}};
  ScalerWatch scaler_watch{
      {level, poison, poison_watch, named_values, scaler_state, steps, gpu_events}};

  // ---- levels, and kernels of a GPU
  Measuring measuring;
  Sampling sampling{
      {segment, *python, level, level, progress, poison, bad_values, findings, gpu_events}};
  StepDecisions step_decisions{level, measuring, sampling, poison, live};
  OpKernels op_kernels{*entry_, *python, segment};
  canary::GpuGradients gpu_gradients{canary_reports, passes, losses, gpu_events};
  GpuResolver gpu_resolver{gpu_state,
                           {segment,         *python,       input_tracking,  level,
                            level,           bad_values,    known_bad,       poison,
                            progress,        findings,      clean_outputs,   scalar_reads,
                            steps,           losses,        scaler_state,    passes,
                            poison_watch,    gpu_gradients, loss_reads,      parameter_stats,
                            external_values, named_values,  compiled_writes, collective_records}};
  GpuEventQueue gpu_events{gpu_state,
                           gpu_resolver,
                           {*entry_,
                            op_path.activity,
                            segment,
                            *python,
                            input_tracking,
                            level,
                            op_path.steps,
                            steps,
                            parameter_stats,
                            bad_values,
                            poison,
                            op_kernels,
                            level,
                            {&OnThreadEnds, &BeforeDriverEnds, &OnMemoryWanted}}};
  LiveStatus live{segment, progress, losses, level, measuring, gpu_events};

  // ---- the path of an op that is not of the commonest kind
  CompiledRegions compiled_regions{{segment, python->names(), poison, bad_values, known_bad,
                                    external_values, compiled_writes, input_tracking, passes,
                                    gpu_events, canary_buffers}};
  InputRecorder input_recorder{shared_files, bad_values, level, gpu_events};
  RunningStatistics running_statistics{findings, python->names(), bad_values};
  OutputChecker output_checker{bad_values,    gpu_events, sampling,          op_path.sample_limit,
                               op_path.steps, headroom,   running_statistics};
  SpecialOps special_ops{scalar_reads, scaler_watch, gpu_events, running_statistics,
                         collective_results};
  WatchedOps watched_ops{scalar_reads, clean_outputs, bad_values,    input_tracking,
                         gpu_events,   sampling,      output_checker};
  PlainUpdates plain_updates{python->names(), pass_leaves, steps};
  OpBegin op_begin{op_path.ops, input_tracking,   input_recorder,     gpu_events,
                   op_kernels,  compiled_regions, collective_results, capsules};
  OpEnd op_end{{input_tracking, level, op_path.steps, steps, gpu_events, op_kernels,
                compiled_regions, output_checker, special_ops, watched_ops, plain_updates,
                capsules}};
  AutogradNodes autograd_nodes{op_path.ops, passes, compiled_regions};
  Ranges ranges{collectives, *python, steps};

  const NanwatchEntry* entry() const noexcept { return entry_; }

 private:
  // What the event queue has called without an object (GpuEventQueue::Hooks).
  static void OnThreadEnds(ThreadState* ending);
  static bool OnMemoryWanted();
  static void BeforeDriverEnds();
};

}  // namespace nanwatch
