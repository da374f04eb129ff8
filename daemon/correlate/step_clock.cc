// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/step_clock.h"

#include <algorithm>

#include "daemon/watch/step_cycles.h"

namespace nanwatch {
namespace {

constexpr uint32_t kActiveShare = 32;

void RaiseTo(Clocks& largest, const Clocks& seen) {
  for (int i = 0; i < seen.optimizer_steps_size(); ++i) {
    if (i == largest.optimizer_steps_size()) largest.add_optimizer_steps(0);
    largest.set_optimizer_steps(i, std::max(largest.optimizer_steps(i), seen.optimizer_steps(i)));
  }
  largest.set_optimizer_ranges(std::max(largest.optimizer_ranges(), seen.optimizer_ranges()));
  largest.set_scaler_skips(std::max(largest.scaler_skips(), seen.scaler_skips()));
  largest.set_passes(std::max(largest.passes(), seen.passes()));
  largest.set_plain_updates(std::max(largest.plain_updates(), seen.plain_updates()));
  largest.set_optimizer_count(std::max(largest.optimizer_count(), seen.optimizer_count()));
}

int ClosingOptimizer(const Clocks& last) {
  uint32_t busiest = 0;
  for (const uint32_t count : last.optimizer_steps()) busiest = std::max(busiest, count);
  int closing = -1;
  for (int i = 0; i < last.optimizer_steps_size(); ++i) {
    const uint32_t count = last.optimizer_steps(i);
    if (count == 0 || uint64_t{count} * kActiveShare < busiest) continue;
    if (closing < 0 || count <= last.optimizer_steps(closing)) closing = i;
  }
  return closing;
}

// The newest counts in any record or in the run's state.
const Clocks& NewestClocks(const RunFacts& facts) {
  const Clocks* newest = &facts.state().clocks();
  for (const Record& record : facts.records()) {
    if (record.clocks().optimizer_ranges() > newest->optimizer_ranges()) newest = &record.clocks();
  }
  return *newest;
}

// Whether several optimizers share the steps: a side optimizer that acted now and then does not.
bool IsShared(int64_t updates, int64_t steps) {
  return updates > steps && 2 * updates >= 3 * steps;
}

void ReadSpan(const StepSpan& span, const Clocks& clocks, StepReading& reading) {
  reading.source = "optimizer";
  reading.micro_step = clocks.micro_passes();
  const auto slot = static_cast<int>(std::min(span.slot(), 1'000u));
  if (span.slot() == kSpanUnknown) {
    reading.iteration_of_run = static_cast<int64_t>(span.cycles_before()) + clocks.scaler_skips();
    return;
  }
  reading.ambiguous |= span.ambiguous();
  int64_t own = slot < clocks.optimizer_steps_size() ? clocks.optimizer_steps(slot) : 0;
  if (span.reused() && clocks.optimizer_ranges() < span.first()) {
    // The slot still was another one's. It acted in none of these ranges or in all of them.
    const uint32_t before = span.first() - clocks.optimizer_ranges();
    own = span.first_count() - std::min(span.first_count(), before);
  }
  const int64_t in_span = std::max<int64_t>(0, own - span.base_count());
  reading.step = span.steps_before() > 0 ? span.steps_before() + in_span : own;
  const int64_t skips = clocks.scaler_skips();
  reading.iteration = reading.step + std::max<int64_t>(0, skips - span.skips());
  if (IsShared(int64_t{clocks.optimizer_ranges()} - span.from(), in_span))
    reading.updates = clocks.optimizer_ranges();
  reading.iteration_of_run = static_cast<int64_t>(span.cycles_before()) + skips + in_span;
}

// Its training began with the span before: its optimizer joined late.
bool GoesOn(const StepSpan& span) { return span.steps_before() > 0; }

}  // namespace

StepClock::StepClock(const RunFacts& facts) : cycles_(facts.training().cycles()) {
  RaiseTo(last_, facts.state().clocks());
  for (const Record& record : facts.records()) RaiseTo(last_, record.clocks());
  for (const Record& record : facts.records()) {
    if (!record.has_cell()) continue;
    cells_.push_back({.ranges = record.clocks().optimizer_ranges(),
                      .number = record.cell().number(),
                      .began_ns = record.cell().began_ns()});
  }
  std::sort(cells_.begin(), cells_.end(),
            [](const Cell& a, const Cell& b) { return a.ranges < b.ranges; });
  for (const StepSummary& step : facts.steps_read())
    FoldStep(step.clocks(), TraitsOf(step), cycles_);
  if (cycles_.slots().empty()) {
    closing_ = ClosingOptimizer(last_);
    return;
  }
  FoldStep(NewestClocks(facts), std::nullopt, cycles_);
  spans_ = SpansOf(cycles_);
}

uint64_t StepClock::BeginOf(const StepSpan& span) const {
  for (const Cell& cell : cells_) {
    if (cell.ranges > span.from()) return cell.began_ns;
  }
  return 0;
}

int StepClock::OrdinalOf(const StepSpan& span) const {
  int ordinal = 0;
  for (const StepSpan& each : spans_) {
    if (!GoesOn(each)) ++ordinal;
    if (&each == &span) break;
  }
  return ordinal;
}

int StepClock::TrainingOf(const StepSpan& span) const {
  if (OrdinalOf(spans_.back()) < 2) return 0;
  const auto is_forgotten = [](const StepSpan& each) { return each.slot() == kSpanUnknown; };
  const bool known = !span.ambiguous() && std::none_of(spans_.begin(), spans_.end(), is_forgotten);
  return known || IsNotebook() ? OrdinalOf(span) : 0;
}

std::vector<TrainingSpan> StepClock::Trainings() const {
  std::vector<TrainingSpan> trainings;
  if (cells_.empty()) return trainings;
  const size_t count = spans_.size();
  for (size_t i = 0; i < count; ++i) {
    const StepSpan& span = spans_[i];
    const bool lasts = i + 1 == count;
    const uint64_t cycles_after = lasts ? CyclesClosed(cycles_) : spans_[i + 1].cycles_before();
    const uint32_t ranges_after = lasts ? UINT32_MAX : spans_[i + 1].from();
    // The first begins one, whatever it says: facts may come from elsewhere.
    if (!GoesOn(span) || trainings.empty()) trainings.emplace_back().ordinal = OrdinalOf(span);
    TrainingSpan& training = trainings.back();
    training.steps += static_cast<int64_t>(cycles_after - span.cycles_before());
    training.unwatched += span.unwatched();
    for (const Cell& cell : cells_) {
      if (cell.ranges <= span.from() || cell.ranges > ranges_after) continue;
      if (training.first_cell == 0) training.first_cell = cell.number;
      training.last_cell = cell.number;
    }
  }
  return trainings;
}

// Null where no optimizer with a count of its own is known.
const StepSpan* StepClock::SpanOf(const Clocks& clocks, uint64_t time_ns) const {
  const uint32_t ranges = clocks.optimizer_ranges();
  for (size_t i = spans_.size(); i-- > 0;) {
    const StepSpan& span = spans_[i];
    if (ranges < span.from()) continue;
    // What was found behind the last step of a training is not the next one's. In a notebook the
    // cell says which it is, elsewhere the model.
    const bool is_border = ranges == span.from() && i > 0 && !GoesOn(span);
    if (is_border && (time_ns != 0 && time_ns < BeginOf(span))) continue;
    if (is_border && !IsNotebook() && clocks.root_is_older()) continue;
    return &span;
  }
  return nullptr;
}

StepReading StepClock::Read(const Clocks& clocks, uint64_t time_ns) const {
  StepReading reading;
  reading.ambiguous = clocks.threads_train();
  if (const StepSpan* span = SpanOf(clocks, time_ns); span != nullptr) {
    ReadSpan(*span, clocks, reading);
    // The first step of another optimizer of the same model, or one that the training before left.
    const bool is_border =
        span != &spans_.front() && !GoesOn(*span) && clocks.optimizer_ranges() == span->from();
    reading.ambiguous |= is_border && clocks.root_may_be_older() && !IsNotebook();
    reading.training = TrainingOf(*span);
    return reading;
  }
  if (closing_ >= 0) {
    reading.step = closing_ < clocks.optimizer_steps_size() ? clocks.optimizer_steps(closing_) : 0;
    reading.source = "optimizer";
    if (IsShared(clocks.optimizer_ranges(), reading.step))
      reading.updates = clocks.optimizer_ranges();
  } else if (last_.optimizer_ranges() > 0 || last_.optimizer_count() > 0) {
    reading.step = clocks.optimizer_ranges();
    reading.source = "optimizer";
  } else if (last_.scaler_skips() > 0) {
    reading.step = clocks.plain_updates();
    reading.source = "scaler";
  } else if (last_.passes() > 0 || last_.plain_updates() > 0) {
    reading.step = clocks.plain_updates();
    reading.source = "backward";
    // Gradients are accumulated, or the program gives its parameters other tensors
    // (`w.data = w.data - rate * w.grad`), which no op announces.
    reading.ambiguous |= last_.plain_updates() == 0 && last_.passes() > 1 && clocks.passes() > 0;
  } else {
    return reading;
  }
  reading.iteration = reading.step + clocks.scaler_skips();
  reading.micro_step = clocks.micro_passes();
  reading.iteration_of_run = reading.iteration;
  return reading;
}

uint64_t StepClock::UpdatesSeen() const {
  if (!spans_.empty()) return CyclesClosed(cycles_) + last_.scaler_skips();
  return static_cast<uint64_t>(std::max<int64_t>(0, Read(last_).iteration));
}

}  // namespace nanwatch
