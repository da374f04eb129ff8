// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/training_alarms.h"

#include <algorithm>

#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

// The clocks that the ops of this step saw: the step was recorded after it was counted.
Clocks DuringStep(const StepSummary& step) {
  Clocks clocks = step.clocks();
  const auto less = [](uint32_t count) { return count > 0 ? count - 1 : 0; };
  if ((step.flags() & step_flags::kSkipped) != 0) {
    clocks.set_scaler_skips(less(clocks.scaler_skips()));
  } else if (clocks.optimizer_ranges() > 0) {
    clocks.set_optimizer_ranges(less(clocks.optimizer_ranges()));
    // Without an index it is the optimizer's number.
    const uint32_t place = (step.flags() >> wire::kPlaceShift) & 7;
    const uint32_t slot = place != 0 ? place - 1 : step.optimizer();
    if (const auto i = static_cast<int>(std::min(slot, 1'000u)); i < clocks.optimizer_steps_size())
      clocks.set_optimizer_steps(i, less(clocks.optimizer_steps(i)));
  } else {
    clocks.set_plain_updates(less(clocks.plain_updates()));
  }
  return clocks;
}

}  // namespace

AlarmMoment MomentOf(const StepSummary& step) {
  return {DuringStep(step), step.time_ns(), step.optimizer()};
}

AlarmMoment MomentOf(const StatsSnapshot& snapshot) {
  return {snapshot.clocks(), snapshot.time_ns(), snapshot.optimizer()};
}

TrainingAlarm* Raise(const char* id, const char* family, const AlarmMoment& moment,
                     TrainingHistory& history, OpenAlarm& open) {
  history.set_changes(history.changes() + 1);
  open.Clear();
  open.set_alarm(static_cast<uint32_t>(history.alarms_size()));
  if (history.alarms_size() == kAlarmsMax) {
    history.set_alarms_dropped(history.alarms_dropped() + 1);
    return nullptr;
  }
  TrainingAlarm& alarm = *history.add_alarms();
  alarm.set_id(id);
  alarm.set_family(family);
  alarm.set_severity("warning");
  *alarm.mutable_clocks() = moment.clocks;
  alarm.set_time_ns(moment.time_ns);
  (*alarm.mutable_numbers())["optimizer"] = moment.optimizer;
  return &alarm;
}

TrainingAlarm* AlarmOf(const OpenAlarm& open, TrainingHistory& history) {
  const auto i = static_cast<int>(std::min<uint32_t>(open.alarm(), kAlarmsMax));
  return i < history.alarms_size() ? history.mutable_alarms(i) : nullptr;
}

bool HasCalmed(bool is_calm, OpenAlarm& open) {
  open.set_calm_steps(is_calm ? open.calm_steps() + 1 : 0);
  return open.calm_steps() >= kCalmSteps;
}

void End(const OpenAlarm& open, const AlarmMoment& moment, TrainingHistory& history) {
  TrainingAlarm* alarm = AlarmOf(open, history);
  if (alarm == nullptr) return;
  *alarm->mutable_ended() = moment.clocks;
  history.set_changes(history.changes() + 1);
}

OptimizerHistory* HistoryOfOptimizer(uint32_t optimizer, TrainingHistory& history) {
  for (OptimizerHistory& known : *history.mutable_optimizers()) {
    if (known.optimizer() == optimizer) return &known;
  }
  if (history.optimizers_size() == kWatchedOptimizersMax) return nullptr;
  OptimizerHistory* added = history.add_optimizers();
  added->set_optimizer(optimizer);
  return added;
}

}  // namespace nanwatch
