#include "daemon/watch/step_cycles.h"

#include <algorithm>
#include <utility>

#include "proto/wire/cell_record.h"
#include "proto/wire/optimizer_habit.h"
#include "proto/wire/record.h"

namespace nanwatch {
namespace {

constexpr uint32_t kActiveShare = 32;
constexpr int kSlots = 4;  // of wire::Clocks::optimizer_steps

uint32_t Less(uint32_t from, uint32_t what) { return from - std::min(from, what); }

// Acts of a slot's optimizers in the span that lasts, until the last act of `until`.
uint32_t ActsInSpan(const StepCycles& cycles, int slot, const StepSlot& until) {
  const uint32_t acts = slot < until.acts_then_size() ? until.acts_then(slot) : 0;
  return Less(acts, cycles.slots(slot).base());
}

uint32_t ActsInSpan(const StepCycles& cycles, int slot) {
  return Less(cycles.slots(slot).acts(), cycles.slots(slot).base());
}

template <typename Acts>
int Closing(const StepCycles& cycles, const Acts& acts_of) {
  uint32_t busiest = 0;
  for (int i = 0; i < cycles.slots_size(); ++i) busiest = std::max(busiest, acts_of(i));
  int closing = -1;
  for (int i = 0; i < cycles.slots_size(); ++i) {
    const uint32_t acts = acts_of(i);
    if (acts == 0 || uint64_t{acts} * kActiveShare < busiest) continue;
    const bool first = closing < 0;
    if (first || acts < acts_of(closing) ||
        (acts == acts_of(closing) && cycles.slots(i).first() >= cycles.slots(closing).first()))
      closing = i;
  }
  return closing;
}

StepSpan SpanClosedBy(int slot, const StepCycles& cycles) {
  const StepSlot& by = cycles.slots(slot);
  StepSpan span;
  span.set_from(cycles.from());
  span.set_slot(static_cast<uint32_t>(slot));
  span.set_first(by.first());
  span.set_first_count(by.first_count());
  span.set_reused(by.reused());
  span.set_base_count(Less(by.count(), ActsInSpan(cycles, slot)));
  span.set_skips(cycles.skips());
  span.set_cycles_before(cycles.cycles());
  span.set_unwatched(cycles.unwatched());
  return span;
}

// The same optimizer closed the cycle before.
bool GoesOn(const StepSpan& span, const StepCycles& cycles) {
  if (cycles.spans().empty()) return false;
  const StepSpan& last = cycles.spans(cycles.spans_size() - 1);
  return last.slot() == span.slot() && last.first() == span.first();
}

void Keep(const StepSpan& span, StepCycles& cycles) {
  if (GoesOn(span, cycles)) {
    StepSpan& last = *cycles.mutable_spans(cycles.spans_size() - 1);
    last.set_unwatched(last.unwatched() + span.unwatched());
    return;
  }
  *cycles.add_spans() = span;
  if (cycles.spans_size() <= kSpansMax) return;
  StepSpan& forgotten = *cycles.mutable_spans(kSpansMax / 2);
  forgotten.set_slot(kSpanUnknown);
  cycles.mutable_spans()->erase(cycles.spans().begin() + kSpansMax / 2 + 1);
}

// The span that lasts has ended with the last act of `last`, and the next one has begun.
void EndSpan(const StepSlot last, StepCycles& cycles) {
  const auto acts = [&](int slot) { return ActsInSpan(cycles, slot, last); };
  if (const int closing = Closing(cycles, acts); closing >= 0) {
    Keep(SpanClosedBy(closing, cycles), cycles);
    cycles.set_cycles(cycles.cycles() + acts(closing));
  }
  for (int i = 0; i < cycles.slots_size(); ++i)
    cycles.mutable_slots(i)->set_base(i < last.acts_then_size() ? last.acts_then(i) : 0);
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

void Act(int i, uint32_t count, bool is_new, const Clocks& clocks, StepCycles& cycles) {
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
  slot.set_count(count);
  slot.set_acts(slot.acts() + acts);
  slot.set_last(ranges);
  slot.set_last_skips(clocks.scaler_skips());
  slot.set_retired(false);
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
  const uint32_t unseen = ranges - cycles.ranges() - 1;
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
    Act(i, count, is_new, clocks, cycles);
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

std::optional<StepSpan> NewestSpan(const StepCycles& cycles) {
  const int closing = Closing(cycles, [&](int slot) { return ActsInSpan(cycles, slot); });
  if (closing < 0) return std::nullopt;
  StepSpan span = SpanClosedBy(closing, cycles);
  return GoesOn(span, cycles) ? cycles.spans(cycles.spans_size() - 1) : std::move(span);
}

uint64_t CyclesClosed(const StepCycles& cycles) {
  const int closing = Closing(cycles, [&](int slot) { return ActsInSpan(cycles, slot); });
  return cycles.cycles() + (closing >= 0 ? ActsInSpan(cycles, closing) : 0);
}

}  // namespace nanwatch
