// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/step_cycles.h"

#include <algorithm>
#include <utility>

#include "daemon/watch/open_spans.h"
#include "proto/wire/cell_record.h"
#include "proto/wire/optimizer_habit.h"
#include "proto/wire/record.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

constexpr int kSlots = 4;  // of wire::Clocks::optimizer_steps

// The same optimizer closes the cycle in both, and goes on counting.
bool IsSame(const StepSpan& before, const StepSpan& span) {
  return before.slot() == span.slot() && before.first() == span.first() && span.steps_before() == 0;
}

// Makes `span` a part of the one before; false: it is one of its own.
bool GoesOn(const StepSpan& span, StepSpan& before) {
  if (!IsSame(before, span)) return false;
  before.set_unwatched(before.unwatched() + span.unwatched());
  before.set_ambiguous(before.ambiguous() || span.ambiguous());
  return true;
}

void Keep(const StepSpan& span, StepCycles& cycles) {
  if (!cycles.spans().empty() && GoesOn(span, *cycles.mutable_spans(cycles.spans_size() - 1)))
    return;
  *cycles.add_spans() = span;
  if (cycles.spans_size() <= kSpansMax) return;
  StepSpan& forgotten = *cycles.mutable_spans(kSpansMax / 2);
  forgotten.set_slot(kSpanUnknown);
  cycles.mutable_spans()->erase(cycles.spans().begin() + kSpansMax / 2 + 1);
}

// The part that lasts has ended with the last act of `last`, and the next one has begun.
void EndSpan(const StepSlot last, StepCycles& cycles) {
  const OpenSpans ended = DivideOpen(cycles, &last);
  for (const StepSpan& span : ended.spans) Keep(span, cycles);
  cycles.set_cycles(ended.cycles);
  for (int i = 0; i < cycles.slots_size(); ++i) {
    StepSlot& slot = *cycles.mutable_slots(i);
    slot.set_base(i < last.acts_then_size() ? last.acts_then(i) : 0);
    if (slot.began() > last.last()) continue;
    slot.set_alternates(false);
    slot.set_repeats(false);
    slot.set_order_unseen(false);
    slot.set_unwatched(0);
    // When it acted first in the next one is not known; from the beginning, as far as it did.
    slot.set_began(slot.acts() > slot.base() ? last.last() + 1 : 0);
    slot.set_second(0);
    *slot.mutable_acts_at_first() = last.acts_then();
  }
  cycles.set_unwatched(0);
  cycles.set_from(last.last());
  cycles.set_skips(last.last_skips());
}

// Another training begins with the first act of slot `but`.
void RetireOthers(int but, StepCycles& cycles) {
  int newest = -1;
  for (int i = 0; i < cycles.slots_size(); ++i) {
    if (i == but || cycles.slots(i).last() == cycles.ranges() || ActsInSpan(cycles, i) == 0)
      continue;
    cycles.mutable_slots(i)->set_retired(true);
    if (newest < 0 || cycles.slots(i).last() > cycles.slots(newest).last()) newest = i;
  }
  if (newest >= 0) EndSpan(cycles.slots(newest), cycles);
}

// Another optimizer has the slot from now on.
void Replace(uint32_t count, const Clocks& clocks, StepSlot& slot) {
  slot.set_reused(slot.acts() > 0);
  slot.set_first(clocks.optimizer_ranges());
  slot.set_first_count(count);
}

// Steps between two of its acts, of all optimizers; of those that went unseen the mean.
uint32_t MeanGap(uint32_t ranges, uint32_t acts) {
  return static_cast<uint32_t>((uint64_t{ranges} + acts - 1) / std::max(acts, 1u));
}

void ListActs(const StepCycles& cycles, google::protobuf::RepeatedField<uint32_t>& acts) {
  acts.Clear();
  for (const StepSlot& slot : cycles.slots()) acts.Add(slot.acts());
}

bool OthersActed(int but, const StepCycles& cycles) {
  for (int i = 0; i < cycles.slots_size(); ++i) {
    if (i != but && ActsInSpan(cycles, i) > 0) return true;
  }
  return false;
}

// When it acted in the part that lasts. `alone`: nobody else acted since the clocks before.
void RememberTurn(int i, uint32_t acts, bool alone, uint32_t ranges_before, StepCycles& cycles) {
  StepSlot& slot = *cycles.mutable_slots(i);
  const uint32_t acts_before = ActsInSpan(cycles, i);
  if (!alone) slot.set_order_unseen(true);
  const bool goes_on = acts_before > 0 && slot.last() == ranges_before;
  if (alone && (acts > 1 || goes_on) && OthersActed(i, cycles)) slot.set_repeats(true);
  if (acts_before == 0) {
    // Without another one's acts between, those that went unseen came right before.
    const uint32_t earliest = alone ? Less(cycles.ranges(), acts) : ranges_before;
    slot.set_began(std::max(earliest, cycles.from()) + 1);
    slot.set_second(0);
    ListActs(cycles, *slot.mutable_acts_at_first());
    return;
  }
  if (alone && slot.last() < ranges_before) slot.set_alternates(true);
  if (acts_before > 1 || acts > 1 || !alone) return;
  slot.set_second(cycles.ranges());
  ListActs(cycles, *slot.mutable_acts_at_second());
}

void Act(int i, uint32_t count, bool is_new, bool alone, uint32_t ranges_before,
         const Clocks& clocks, StepCycles& cycles) {
  StepSlot& slot = *cycles.mutable_slots(i);
  const uint32_t ranges = clocks.optimizer_ranges();
  const bool acted_once = slot.count() == 1 && slot.first_count() == 1;
  uint32_t acts = 0;
  if (is_new) {
    Replace(count, clocks, slot);
    // What it did before it had a slot belongs to the span as far as there was time for it.
    acts = std::min(count, ranges - std::min(ranges, cycles.from()));
    slot.set_longest_gap(std::min(MeanGap(Less(ranges, cycles.from()), count), wire::kFirstGapMax));
  } else {
    acts = count - slot.count();
    const uint32_t gap = MeanGap(Less(ranges, slot.last()), acts);
    slot.set_longest_gap(acted_once ? gap : std::max(slot.longest_gap(), gap));
  }
  RememberTurn(i, acts, alone, ranges_before, cycles);
  slot.set_count(count);
  slot.set_acts(slot.acts() + acts);
  slot.set_last(ranges);
  slot.set_last_skips(clocks.scaler_skips());
  slot.set_retired(false);
}

// Nobody but slot `i` acted between `ranges_before` and these clocks.
bool ActedAlone(int i, uint32_t ranges_before, const Clocks& clocks, const StepCycles& cycles) {
  const uint32_t ranges = clocks.optimizer_ranges();
  if (ranges == ranges_before + 1) return true;
  const uint32_t count = clocks.optimizer_steps(i);
  const uint32_t known = cycles.slots(i).count();
  return count > known && count - known == ranges - ranges_before;
}

void RememberActs(StepCycles& cycles) {
  for (StepSlot& slot : *cycles.mutable_slots()) {
    if (slot.last() != cycles.ranges()) continue;
    slot.clear_acts_then();
    for (const StepSlot& other : cycles.slots()) slot.add_acts_then(other.acts());
  }
}

// The one that was silent longest of those that have retired now; null when there is none. As long
// as nobody else acts that can be told of, it stays.
StepSlot* NewlyRetired(StepCycles& cycles) {
  StepSlot* found = nullptr;
  for (StepSlot& slot : *cycles.mutable_slots()) {
    if (slot.retired() || slot.acts() == 0) continue;
    if (!wire::HasRetired(Less(cycles.ranges(), slot.last()), slot.longest_gap())) continue;
    const bool others =
        std::any_of(cycles.slots().begin(), cycles.slots().end(),
                    [&](const StepSlot& other) { return other.last() > slot.last(); });
    if (others && (found == nullptr || slot.last() < found->last())) found = &slot;
  }
  return found;
}

}  // namespace

StepTraits TraitsOf(const StepSummary& step) {
  return {.optimizer = step.optimizer(),
          .begins_cell = (step.flags() & wire::kStepBeginsCell) != 0,
          .idle = step.level() == static_cast<uint32_t>(wire::Level::kIdle)};
}

void FoldStep(const Clocks& clocks, const StepTraits& traits, StepCycles& cycles) {
  const std::optional<uint32_t> optimizer = traits.optimizer;
  const uint32_t ranges = clocks.optimizer_ranges();
  if (ranges <= cycles.ranges()) return;
  const bool is_next = ranges == cycles.ranges() + 1;
  const uint32_t ranges_before = cycles.ranges();
  const uint32_t unseen = ranges - ranges_before - 1;
  cycles.set_ranges(ranges);
  const int slots = std::min(clocks.optimizer_steps_size(), kSlots);
  while (cycles.slots_size() < slots) cycles.add_slots();
  for (int i = 0; i < slots; ++i) {
    const uint32_t count = clocks.optimizer_steps(i);
    StepSlot& slot = *cycles.mutable_slots(i);
    if (count == slot.count() || count == 0) continue;
    const bool other = is_next && optimizer && slot.has_optimizer() &&
                       (slot.optimizer() != *optimizer || count != slot.count() + 1);
    const bool is_new = slot.acts() == 0 || count < slot.count() || other;
    if (is_new && ActsInSpan(cycles, i) > 0) EndSpan(slot, cycles);
    if (is_new && traits.begins_cell) RetireOthers(i, cycles);
    Act(i, count, is_new, ActedAlone(i, ranges_before, clocks, cycles), ranges_before, clocks,
        cycles);
    slot.set_unwatched(slot.unwatched() + unseen + (traits.idle ? 1 : 0));
    if (is_next && optimizer) {
      slot.set_optimizer(*optimizer);
    } else if (is_new) {
      slot.clear_optimizer();
    }
  }
  cycles.set_unwatched(cycles.unwatched() + unseen + (traits.idle ? 1 : 0));
  RememberActs(cycles);
  while (StepSlot* slot = NewlyRetired(cycles)) {
    slot->set_retired(true);
    if (slot->acts() > slot->base()) EndSpan(*slot, cycles);
  }
}

std::vector<StepSpan> SpansOf(const StepCycles& cycles) {
  std::vector<StepSpan> spans(cycles.spans().begin(), cycles.spans().end());
  for (StepSpan& open : DivideOpen(cycles, nullptr).spans) {
    if (!spans.empty() && GoesOn(open, spans.back())) continue;
    spans.push_back(std::move(open));
  }
  return spans;
}

uint64_t CyclesClosed(const StepCycles& cycles) { return DivideOpen(cycles, nullptr).cycles; }

}  // namespace nanwatch
