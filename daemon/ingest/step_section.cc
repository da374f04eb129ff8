// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/step_section.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "daemon/ingest/published.h"
#include "daemon/ingest/record_decoder.h"
#include "proto/wire/step_ring.h"

namespace nanwatch {
namespace {

using wire::SectionType;

// The telemetry of the step with this index, if it was not overwritten yet.
void ReadTelemetry(const SegmentFile& file, const NameCache& names, StepSummary& step) {
  using wire::TelemetryEntry;
  const SegmentFile::Section& section = file.section(SectionType::kTelemetry);
  const std::optional<wire::TelemetryReader> reader =
      wire::TelemetryReader::Open(section.data, section.bytes);
  TelemetryEntry entry;
  if (!reader || !reader->ReadAt(step.index(), entry)) return;
  const auto known = [&entry](TelemetryEntry::Known bit) { return (entry.known & bit) != 0; };
  if (known(TelemetryEntry::kLoss)) step.set_loss(entry.loss);
  if (known(TelemetryEntry::kStepTime)) step.set_seconds(static_cast<double>(entry.step_ns) * 1e-9);
  if (known(TelemetryEntry::kGradientNorm)) step.set_gradient_norm(entry.gradient_norm);
  if (known(TelemetryEntry::kScale)) step.set_scale(entry.scale);
  if (known(TelemetryEntry::kLearningRate)) step.set_learning_rate(entry.learning_rate);
  if (known(TelemetryEntry::kOverhead) && std::isfinite(entry.overhead_percent))
    step.set_overhead_percent(static_cast<double>(entry.overhead_percent));
  if (known(TelemetryEntry::kGradients)) {
    step.set_gradients(entry.gradients);
    step.set_gradients_missing(entry.gradients_missing);
    step.set_gradients_zero(entry.gradients_zero);
    step.set_gradients_bad(entry.gradients_bad);
  }
  if (known(TelemetryEntry::kNearLimit) && std::isfinite(entry.near_largest)) {
    step.set_near_largest(entry.near_largest);
    step.set_near_op(names.Text(entry.near_op));
    step.set_near_layer(names.Text(entry.near_layer));
    step.set_near_type(entry.near_type < wire::kElementTypeCount ? entry.near_type : 0);
  }
  step.set_level(entry.level <= static_cast<uint32_t>(wire::Level::kAuto) ? entry.level : 0);
}

StepSummary DecodeStep(const SegmentFile& file, const NameCache& names, uint64_t index,
                       const wire::StepEntry& entry) {
  StepSummary step;
  step.set_index(index);
  ReadTelemetry(file, names, step);
  step.set_time_ns(entry.time_ns);
  *step.mutable_clocks() = DecodeClocks(entry.clocks);
  if ((entry.flags & 1) != 0) step.set_loss(entry.loss);
  step.set_ops_seen(entry.ops_seen);
  step.set_tensors_checked(entry.tensors_checked);
  step.set_bytes_checked(entry.bytes_checked);
  step.set_values_bad(entry.values_bad);
  step.set_flags(entry.flags);
  step.set_optimizer(entry.optimizer);
  return step;
}

}  // namespace

void ReadSteps(const SegmentFile& file, const NameCache& names, ReadBudget& budget,
               SegmentCursor& cursor, RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kSteps);
  std::optional<wire::StepReader> reader =
      wire::StepReader::Open(section.data, section.bytes, cursor.steps);
  if (!reader) return;
  LapLimit lap(reader->capacity(), reader->cursor());
  wire::StepEntry entry;
  while (true) {
    const bool stop = lap.IsReached(reader->cursor()) || budget.is_spent();
    batch.more |= stop;
    if (stop || !reader->Read(entry)) break;
    batch.steps.push_back(DecodeStep(file, names, reader->cursor() - 1, entry));
    budget.Take(batch.steps.back());
  }
  cursor.steps = reader->cursor();
  cursor.steps_lost += reader->lost();
}

std::vector<StepSummary> ReadLastSteps(const SegmentFile& file, const NameCache& names,
                                       uint64_t steps_max) {
  const SegmentFile::Section& section = file.section(SectionType::kSteps);
  const uint64_t written = EntriesWritten(file, SectionType::kSteps);
  std::optional<wire::StepReader> reader =
      wire::StepReader::Open(section.data, section.bytes, written - std::min(written, steps_max));
  std::vector<StepSummary> steps;
  wire::StepEntry entry;
  if (!reader) return steps;
  LapLimit lap(reader->capacity(), reader->cursor());
  while (steps.size() < steps_max && !lap.IsReached(reader->cursor()) && reader->Read(entry)) {
    steps.push_back(DecodeStep(file, names, reader->cursor() - 1, entry));
  }
  return steps;
}

}  // namespace nanwatch
