// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/update_record.h"

#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/step/state_names.h"

namespace nanwatch {
namespace {

constexpr uint32_t kUpdatesNamed = 16;

// What is bad when an optimizer range ends.
struct AfterUpdate {
  uint32_t range;
  wire::UpdateRecord record;
  ValueRef values[wire::kSourcesMax];
  const void* states[wire::kSourcesMax];  // null: of a parameter
  ValueRef first_state;
  ValueRef first_parameter;
  uint32_t first_parameter_name;
};

void AddEntry(void* context, const BadEntry& entry) {
  auto& after = *static_cast<AfterUpdate*>(context);
  const bool written_now = entry.born_range == after.range && after.range != 0;
  if (!written_now || entry.site == 0) return;
  if (entry.target == wire::Target::kParameter) {
    if (after.record.parameters_bad++ == 0) {
      after.first_parameter = entry.value;
      after.first_parameter_name = entry.name;
    }
  } else if (entry.target == wire::Target::kNone) {
    // Written by the optimizer, alive after its range, and no parameter: its state.
    if (after.record.states_bad++ == 0) after.first_state = entry.value;
  } else {
    return;
  }
  if (after.record.n_bad == wire::kSourcesMax) return;
  after.record.bad[after.record.n_bad] = SourceFrom(entry);
  if (entry.target == wire::Target::kNone) {
    after.record.bad[after.record.n_bad].target =
        static_cast<uint8_t>(wire::Target::kOptimizerState);
    after.states[after.record.n_bad] = entry.storage.storage;
  }
  after.record.bad_names[after.record.n_bad] = entry.name;
  after.values[after.record.n_bad++] = entry.value;
}

}  // namespace

void RecordUpdate(ProcessSegment& segment, FindingRecords& records, BadValues& bad_values,
                  PythonBridge& python, ThreadState* thread, const EndedUpdate& update) noexcept {
  AfterUpdate after{};
  after.range = update.range;
  bad_values.ForEach(&AddEntry, &after);
  if (after.record.n_bad == 0) return;
  Emitter* emitter = segment.Ensure();
  if (emitter == nullptr) return;
  // Of the first ones: that takes a walk through the optimizer.
  if (after.record.states_bad != 0 && update.open != nullptr &&
      update.named->fetch_add(1) < kUpdatesNamed) {
    NameStates(python, *emitter, update.open, {after.states, after.record.n_bad},
               after.record.bad_names);
  }
  after.record.optimizer = update.optimizer;
  after.record.optimizer_class = update.class_name;
  after.record.header =
      records.MakeHeader(thread, *emitter, wire::RecordKind::kUpdate, sizeof after.record);
  emitter->Emit(after.record.header);
  for (int i = 0; i < after.record.n_bad; ++i) records.WriteAncestors(after.values[i]);
  const wire::RecordHeader& header = after.record.header;
  if (after.record.parameters_bad != 0) {
    emitter->RecordReach(wire::Reach::kParameter, after.first_parameter.ticket, header.ticket,
                         after.first_parameter_name, header.clocks);
  }
  if (after.record.states_bad != 0) {
    emitter->RecordReach(wire::Reach::kOptimizerState, after.first_state.ticket, header.ticket, 0,
                         header.clocks);
  }
}

}  // namespace nanwatch
