// SPDX-License-Identifier: Apache-2.0
// Alarms of a run's training: raised, found again, ended. What raises them is training_watch.h and
// stats_watch.h.
//
// Pure functions of the message that they are kept in, which stays bounded.
#pragma once

#include "statistics.pb.h"

namespace nanwatch {

// StepSummary.flags: bits of wire::StepEntry.
namespace step_flags {
inline constexpr uint32_t kSkipped = 2;
inline constexpr uint32_t kParametersBad = 4;
}  // namespace step_flags

inline constexpr int kWatchedOptimizersMax = 8;
inline constexpr int kAlarmsMax = 32;

// When something was seen, and in whose steps.
struct AlarmMoment {
  Clocks clocks;  // those that the ops of the step saw
  uint64_t time_ns = 0;
  uint32_t optimizer = 0;
};
[[nodiscard]] AlarmMoment MomentOf(const StepSummary& step);
[[nodiscard]] AlarmMoment MomentOf(const StatsSnapshot& snapshot);

// Of severity `warning`, with the number of the optimizer, and open from now on. Null when there
// are too many, which is counted.
TrainingAlarm* Raise(const char* id, const char* family, const AlarmMoment& moment,
                     TrainingHistory& history, OpenAlarm& open);
// Null if it did not fit.
TrainingAlarm* AlarmOf(const OpenAlarm& open, TrainingHistory& history);
// A step showed it no more, or did: true once it is calm for kCalmSteps in a row.
inline constexpr uint32_t kCalmSteps = 20;
[[nodiscard]] bool HasCalmed(bool is_calm, OpenAlarm& open);
void End(const OpenAlarm& open, const AlarmMoment& moment, TrainingHistory& history);

// Null when there are too many.
OptimizerHistory* HistoryOfOptimizer(uint32_t optimizer, TrainingHistory& history);

}  // namespace nanwatch
