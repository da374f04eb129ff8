// SPDX-License-Identifier: Apache-2.0
// All of the observer below the GPU's queue, the path of an op and the levels, put together without
// them: facts in, records out. What would go up is recorded.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "shim/observe/capsule/capsules.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/pass_leaves.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/ruined_parameters.h"
#include "shim/observe/events/step_marks.h"
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
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/step/canary_reads.h"
#include "shim/observe/step/loss.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/step/step_publisher.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/step/stop.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/op_table.h"
#include "shim/observe/torch/weak_storage.h"
#include "shim/observe/unseen/collective_records.h"
#include "shim/observe/unseen/collective_results.h"
#include "shim/observe/unseen/compiled_writer.h"
#include "shim/observe/unseen/external_values.h"
#include "shim/observe/unseen/out_of_sight.h"
#include "shim/observe/unseen/read_numbers.h"
#include "shim/observe/unseen/shared_files.h"
#include "shim/observe/unseen/unobserved_writer.h"
#include "shim/observe/unseen/unread_inputs.h"
#include "tests/shim/observe/events/observed_process.h"

namespace nanwatch {

// A GPU's queue that never answers.
class RecordingLateFacts final : public LateFacts {
 public:
  bool on = false;
  std::vector<uint64_t> passes;
  std::vector<bool> leaves;  // whether a gradient was seen
  uint32_t updates_begun = 0;
  std::vector<bool> updates_ended;  // whether they were stopped
  uint32_t plain_updates = 0;
  std::vector<CheckedAs> checked;
  std::vector<bool> collectives;  // whether tensors were given in
  bool assumes = false;           // what was found last has left everything

  bool Begin() noexcept override { return on; }
  [[nodiscard]] bool On() const noexcept override { return on; }
  void Enqueue(ThreadState*, const PassBegan& fact) noexcept override {
    passes.push_back(fact.number);
  }
  void Enqueue(ThreadState*, const LeafReached& fact) noexcept override {
    leaves.push_back(fact.gradient != nullptr);
  }
  uint64_t Enqueue(ThreadState*, const UpdateBegan&) noexcept override { return ++updates_begun; }
  void Enqueue(ThreadState*, const UpdateEnded& fact) noexcept override {
    updates_ended.push_back(fact.stopped);
  }
  void Enqueue(ThreadState*, const PlainUpdate&) noexcept override { ++plain_updates; }
  void Enqueue(ThreadState*, const CollectiveTensors& fact) noexcept override {
    collectives.push_back(fact.given_in);
  }
  bool Enqueue(ThreadState*, const TensorsToCheck& fact) noexcept override {
    checked.push_back(fact.as);
    return true;
  }
  bool Enqueue(ThreadState*, const TensorsToMeasure& fact) noexcept override {
    checked.push_back(fact.as);
    return true;
  }
  bool Enqueue(ThreadState*, const SnapshotTaken&) noexcept override { return true; }
  [[nodiscard]] bool MayMeasure(const ThreadState*) noexcept override { return on; }
  [[nodiscard]] uint64_t NextEvent() const noexcept override { return 1; }
  bool ResolveReceived(ThreadState*, const PlainTensor&) noexcept override { return false; }
  bool AssumeSource(const ThreadState*, const PlainTensor&, wire::Source* source,
                    ValueRef* value) const noexcept override {
    if (!assumes) return false;
    source->kind = static_cast<uint8_t>(wire::SourceKind::kValue);
    source->value = 77;
    *value = {77, 0};
    return true;
  }
  bool WaitForGpu(ThreadState*, uint64_t) noexcept override { return false; }
  bool WaitForSetUp() noexcept override { return false; }
};

class RecordingStepSink final : public StepSink {
 public:
  uint32_t boundaries = 0;
  uint32_t bad_reads = 0;
  std::vector<StepEnded> steps;
  bool reads_after_step = false;
  bool unread = false;
  bool cut_short = false;

  void OnBoundary(ThreadState*) noexcept override { ++boundaries; }
  void OnBadRead(ThreadState*) noexcept override { ++bad_reads; }
  void OnStep(ThreadState*, const StepEnded& step) noexcept override { steps.push_back(step); }
  [[nodiscard]] bool ReadsAfterStep() const noexcept override { return reads_after_step; }
  [[nodiscard]] bool IsUnread() const noexcept override { return unread; }
  [[nodiscard]] bool TakeCutShort() noexcept override { return cut_short; }
  void RecordStepEnded() noexcept override {}
  void ReadAfter(ThreadState*) noexcept override {}
};

class RecordingFindingSink final : public FindingSink {
 public:
  std::vector<uint64_t> tickets;
  void RecordFinding(const Frame&, const wire::RecordHeader& finding) noexcept override {
    tickets.push_back(finding.ticket);
  }
};

class SettableLevel final : public LevelState {
 public:
  explicit SettableLevel(wire::Level level) noexcept : LevelState(level, level) {}
  void SetWatched(wire::Level level) { watched_ = level; }
  void SetOffToMeasure(bool off) { off_to_measure_ = off; }
  void SetHidden() { hidden_ = true; }
};

// One training in a process of its own. What the job never frees is not freed here either.
class ObservedTraining {
 public:
  ObservedTraining() {
    thread.small_id = 1;
    thread.graph_task = -1;
  }

  const OpTraits& Op(const char* name, const char* overload = "") {
    return *ops.Find(&c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).schema());
  }
  // As DescribeTensor has it. The tensor outlives the answer.
  static PlainTensor Plain(const at::TensorBase& tensor) {
    PlainTensor plain{};
    wire::Unchecked reason{};
    if (DescribeTensor(tensor, &plain, &reason) != Readable::kYes) std::abort();
    return plain;
  }
  // All records of this kind, in their order.
  template <class Record>
  std::vector<Record> Emitted(wire::RecordKind kind) {
    MappedSegment mapped(process.place());
    auto reader = mapped.Read<wire::RingReader>(wire::SectionType::kFindings);
    std::vector<Record> records_of_kind;
    auto copy = std::make_unique<wire::RecordCopy>();
    while (reader.Read(*copy, wire::Holes::kWait) == wire::RingRead::kRecord) {
      if (copy->header().kind != static_cast<uint16_t>(kind)) continue;
      std::memcpy(&records_of_kind.emplace_back(), copy->bytes, sizeof(Record));
    }
    return records_of_kind;
  }
  std::vector<wire::ValueRecord> Values() {
    return Emitted<wire::ValueRecord>(wire::RecordKind::kValue);
  }
  [[nodiscard]] wire::FindingClass ClassOf(ValueRef value) {
    RecentValues::Kept kept;
    return recent.Look(value, &kept) ? kept.finding_class : wire::FindingClass{};
  }

  ObservedProcess process;
  RecordingLevel requests;
  RecordingLateFacts late;
  RecordingStepSink sink;
  RecordingFindingSink finding_sink;
  SettableLevel level{wire::Level::kFull};
  bool stops_on_anomaly = false;
  StepMarks marks;
  OpTable& ops = *new OpTable;
  ThreadState& thread = *new ThreadState();
  PythonBridge& python = *new PythonBridge({});
  ProcessSegment& segment = *new ProcessSegment(process.entry(), requests);
  Emitter& emitter = *segment.Ensure();
  EventClock event_clock;
  BadValues bad_values{TorchWeakStorageOps()};
  RecentValues& recent = *new RecentValues;
  InputTracking tracking{OpCallbacks{}};
  StepProgress progress;
  StepLosses losses;
  ScalerState scaler;
  FindingRecords records{segment, recent, python, progress};
  KnownBad known_bad{bad_values, tracking, progress};
  Poison poison{&event_clock};
  RuinedParameters ruined;
  PassLeaves pass_leaves;
  ParameterStats stats{segment, python, progress, late};
  Headroom headroom{segment};
  Trail trail{segment};
  Capsules capsules;
  UnobservedWrites writes{segment, records, known_bad, poison};
  CollectiveRecords collective_records{segment, records, writes};
  CollectiveResults collective_results{known_bad, collective_records, poison, progress, late};
  SharedFiles shared_files{bad_values, collective_records, collective_results};
  ExternalValues external{segment, known_bad, shared_files};
  CompiledWrites compiled_writes{known_bad, writes};
  UnreadInputs unread_inputs{python};
  ReadNumbers read_numbers{progress, tracking};
  OutOfSight out_of_sight{{segment, level, bad_values, collective_results, python.names(), tracking,
                           progress, unread_inputs}};
  LossRoots loss_roots;
  ScalarReads scalar_reads{
      {segment, records, recent, poison, read_numbers, loss_roots, compiled_writes}};
  SourceFinder sources{{known_bad, external, collective_results, recent, python.names(), level,
                        progress, late, ruined}};
  StackedValues stacked_values{bad_values};
  PickedValues picked_values{bad_values};
  OpJudge judge{python,        sources,  stacked_values, picked_values, read_numbers,
                unread_inputs, progress, marks,          pass_leaves};
  Findings findings{{segment, records, python, recent, known_bad, poison, marks, judge,
                     shared_files, out_of_sight, trail, capsules, finding_sink, pass_leaves}};
  CleanOutputs clean_outputs{{segment, records, bad_values, known_bad, poison, scalar_reads}};
  PoisonWatch poison_watch{
      {python, poison, bad_values, ruined, tracking, level, progress, late, stops_on_anomaly}};
  BackwardPasses passes{{segment, records, recent, known_bad, bad_values, tracking, python.names(),
                         poison, poison_watch, marks, progress, losses, loss_roots, late,
                         pass_leaves}};
  canary::Reports reports{{known_bad, recent, writes, collective_results, level, sink}};
  canary::UpdateReads update_reads{
      {python, level, poison, poison_watch, progress, losses, passes, reports, late, sink}};
  canary::Reads canary_reads{{segment, level, poison, known_bad, writes, scalar_reads, losses}};
  canary::Buffers buffers{{python.names(), level, poison, known_bad, writes, losses, sink}};
  LossReads loss_reads{{level, poison, known_bad, writes, compiled_writes, canary_reads, passes,
                        poison_watch, losses, late}};
  JobStop stop{process.entry(), segment, python, recent};
  StepPublisher publisher{{process.entry(), segment, records, python, bad_values, tracking, level,
                           poison, poison_watch, marks, progress, losses, scaler, read_numbers,
                           headroom, capsules, sink}};
  StepScope steps{
      {process.entry(), python,       segment, records,  bad_values, tracking, level,
       poison,          poison_watch, marks,   progress, losses,     scaler,   publisher,
       passes,          update_reads, buffers, stats,    stop,       late,     sink,
       stops_on_anomaly}};
};

}  // namespace nanwatch
