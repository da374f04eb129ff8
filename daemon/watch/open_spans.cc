// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/open_spans.h"

#include <algorithm>
#include <utility>

namespace nanwatch {
namespace {

constexpr uint32_t kActiveShare = 32;

uint32_t At(const google::protobuf::RepeatedField<uint32_t>& acts, int slot) {
  return slot < acts.size() ? acts.Get(slot) : 0;
}

// One optimizer in the part that lasts.
struct Member {
  int slot = 0;
  uint32_t began = 0;  // Clocks.optimizer_ranges after its first act,
  uint32_t last = 0;   // and after its last
  uint32_t acts = 0;
};

// Optimizers whose times overlap, by the time when they began.
struct Group {
  std::vector<Member> members;
  uint32_t from = 0;
  uint32_t last = 0;
  uint32_t skips = 0;  // Clocks.scaler_skips at `from`
};

bool ActedOnceEach(const Group& group) {
  return std::all_of(group.members.begin(), group.members.end(),
                     [](const Member& member) { return member.acts == 1; });
}

std::vector<Member> MembersOf(const StepCycles& cycles, const StepSlot* until) {
  std::vector<Member> members;
  for (int i = 0; i < cycles.slots_size(); ++i) {
    const StepSlot& slot = cycles.slots(i);
    const uint32_t acts =
        until != nullptr ? Less(At(until->acts_then(), i), slot.base()) : ActsInSpan(cycles, i);
    if (acts == 0) continue;
    const uint32_t last = until != nullptr ? std::min(slot.last(), until->last()) : slot.last();
    // A history that an older daemon left has no `began`.
    const uint32_t began = slot.began() != 0 ? slot.began() : cycles.from() + 1;
    members.push_back({.slot = i, .began = std::min(began, last), .last = last, .acts = acts});
  }
  std::sort(members.begin(), members.end(), [&](const Member& a, const Member& b) {
    if (a.began != b.began) return a.began < b.began;
    return cycles.slots(a.slot).first() < cycles.slots(b.slot).first();
  });
  return members;
}

std::vector<Group> GroupsOf(const StepCycles& cycles, const StepSlot* until) {
  std::vector<Group> groups;
  for (const Member& member : MembersOf(cycles, until)) {
    if (groups.empty()) {
      groups.push_back({.members = {}, .from = cycles.from(), .last = 0, .skips = cycles.skips()});
    } else if (member.began > groups.back().last) {
      // Several that acted once each may be the optimizers of one step.
      const bool once = member.acts == 1 && ActedOnceEach(groups.back());
      if (!once) {
        const Member& before =
            *std::max_element(groups.back().members.begin(), groups.back().members.end(),
                              [](const Member& a, const Member& b) { return a.last < b.last; });
        groups.push_back({.members = {},
                          .from = groups.back().last,
                          .last = 0,
                          .skips = cycles.slots(before.slot).last_skips()});
      }
    }
    groups.back().members.push_back(member);
    groups.back().last = std::max(groups.back().last, member.last);
  }
  return groups;
}

bool ActedInOneGo(const Member& member, const StepCycles& cycles) {
  return member.acts > 1 && !cycles.slots(member.slot).alternates();
}

// Those that may close the cycle.
std::vector<Member> CandidatesOf(const StepCycles& cycles, const std::vector<Member>& members) {
  uint32_t busiest = 0;
  for (const Member& member : members) busiest = std::max(busiest, member.acts);
  const bool taken_turns = std::any_of(members.begin(), members.end(), [&](const Member& member) {
    return cycles.slots(member.slot).alternates();
  });
  std::vector<Member> candidates;
  for (const Member& member : members) {
    if (taken_turns && ActedInOneGo(member, cycles)) continue;
    if (uint64_t{member.acts} * kActiveShare >= busiest) candidates.push_back(member);
  }
  return candidates.empty() ? members : candidates;
}

// The one that acted least since the other one, which began later, acts too.
Member Closing(const StepCycles& cycles, const std::vector<Member>& members) {
  const std::vector<Member> candidates = CandidatesOf(cycles, members);
  const Member* closing = &candidates.front();
  for (const Member& later : candidates) {
    const StepSlot& slot = cycles.slots(later.slot);
    const uint32_t acts_before =
        Less(At(slot.acts_at_first(), closing->slot), cycles.slots(closing->slot).base());
    if (later.acts - 1 <= Less(closing->acts, acts_before)) closing = &later;
  }
  return *closing;
}

StepSpan SpanClosedBy(const Member& by, const StepCycles& cycles) {
  const StepSlot& slot = cycles.slots(by.slot);
  StepSpan span;
  span.set_slot(static_cast<uint32_t>(by.slot));
  span.set_first(slot.first());
  span.set_first_count(slot.first_count());
  span.set_reused(slot.reused());
  span.set_base_count(Less(slot.count(), ActsInSpan(cycles, by.slot)));
  return span;
}

// The others of a group before `joined` did, each with its acts until the cycle began in which
// `joined` acted first; empty when it did not join late. That cycle is taken to be as long as the
// next one.
std::vector<Member> MembersBefore(const Member& joined, const Group& group,
                                  const StepCycles& cycles) {
  std::vector<Member> before;
  const StepSlot& slot = cycles.slots(joined.slot);
  if (slot.second() <= slot.began() || slot.began() != joined.began) return before;
  const uint32_t others_first = joined.began - 1 - group.from;
  const uint32_t gap = slot.longest_gap();
  if (others_first < gap + std::max(2u, gap / 2)) return before;
  for (Member member : group.members) {
    if (member.slot == joined.slot) continue;
    const uint32_t at_first = At(slot.acts_at_first(), member.slot);
    const uint32_t in_cycle = At(slot.acts_at_second(), member.slot) - at_first;
    member.acts = Less(Less(at_first, in_cycle), cycles.slots(member.slot).base());
    if (member.acts > 0) before.push_back(member);
  }
  return before;
}

// It acted in one go while another one acts on, and its next turn is not overdue.
bool MayCloseYet(const Member& member, const Group& group, const StepCycles& cycles) {
  return ActedInOneGo(member, cycles) && group.last > member.last &&
         group.last - member.last <= member.began - 1 - group.from;
}

// The order in which optimizers acted went unseen, and they were not seen to take turns since.
bool IsOrderUnseen(const Group& group, const StepCycles& cycles) {
  int unseen = 0;
  for (const Member& member : group.members) {
    const StepSlot& slot = cycles.slots(member.slot);
    if (slot.order_unseen() && !slot.alternates()) ++unseen;
  }
  return unseen > 0 && group.members.size() > 1;
}

// Several take turns of more than one update each: A A B B A A B B. They may train models that have
// nothing to do with one another, each with a count of its own.
bool TakeLongTurns(const Group& group, const StepCycles& cycles) {
  return std::count_if(group.members.begin(), group.members.end(), [&](const Member& member) {
           const StepSlot& slot = cycles.slots(member.slot);
           return slot.alternates() && slot.repeats();
         }) > 1;
}

class Division {
 public:
  Division(const StepCycles& cycles, const StepSlot* until)
      : cycles_(cycles), groups_(GroupsOf(cycles, until)) {
    divided_.cycles = cycles.cycles();
    for (const Group& group : groups_) Divide(group);
  }
  [[nodiscard]] OpenSpans Take() { return std::move(divided_); }

 private:
  void Divide(const Group& group) {
    const Member closing = Closing(cycles_, group.members);
    StepSpan span = SpanClosedBy(closing, cycles_);
    span.set_from(group.from);
    span.set_ambiguous(IsAmbiguous(group, closing));
    if (const std::vector<Member> before = MembersBefore(closing, group, cycles_);
        !before.empty()) {
      const Member first = Closing(cycles_, before);
      StepSpan alone = SpanClosedBy(first, cycles_);
      alone.set_from(group.from);
      span.set_steps_before(alone.base_count() + first.acts);
      span.set_from(2 * cycles_.slots(closing.slot).began() - cycles_.slots(closing.slot).second());
      // Training an adversary first looks the same, and begins to count anew.
      span.set_ambiguous(true);
      Add(alone, group.skips, 0, first.acts);
    }
    Add(span, group.skips, UnwatchedOf(group), closing.acts);
  }

  // The next act might show that the group shares its steps, or that it shares none.
  [[nodiscard]] bool IsAmbiguous(const Group& group, const Member& closing) const {
    if (IsOrderUnseen(group, cycles_) || TakeLongTurns(group, cycles_)) return true;
    if (group.members.size() > 1) {
      return (closing.acts == 1 && closing.began > group.from + group.members.size()) ||
             std::any_of(group.members.begin(), group.members.end(),
                         [&](const Member& member) { return MayCloseYet(member, group, cycles_); });
    }
    if (groups_.size() < 2 || closing.acts == 1 || closing.acts > kActiveShare) return false;
    const Group* last = &groups_.back();
    return (&group == last - 1 && ActedOnceEach(*last)) ||
           (&group == last && ActedOnceEach(*(last - 1)));
  }

  [[nodiscard]] uint32_t UnwatchedOf(const Group& group) const {
    if (groups_.size() == 1) return cycles_.unwatched();
    uint32_t unwatched = 0;
    for (const Member& member : group.members) unwatched += cycles_.slots(member.slot).unwatched();
    return unwatched;
  }

  void Add(StepSpan span, uint32_t skips, uint32_t unwatched, uint32_t cycles) {
    span.set_skips(skips);
    span.set_unwatched(unwatched);
    span.set_cycles_before(divided_.cycles);
    divided_.cycles += cycles;
    divided_.spans.push_back(std::move(span));
  }

  const StepCycles& cycles_;
  std::vector<Group> groups_;
  OpenSpans divided_;
};

}  // namespace

uint32_t ActsInSpan(const StepCycles& cycles, int slot) {
  return Less(cycles.slots(slot).acts(), cycles.slots(slot).base());
}

OpenSpans DivideOpen(const StepCycles& cycles, const StepSlot* until) {
  return Division(cycles, until).Take();
}

}  // namespace nanwatch
