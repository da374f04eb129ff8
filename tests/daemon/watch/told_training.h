// SPDX-License-Identifier: Apache-2.0
// A training told step by step:
//
//   ToldTraining training;
//   training.Steps(200, [](int) { return Seen{.norm = 1, .loss = 2}; });
//   training.Step({.norm = 1e6});
//   training.Ids()
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "daemon/watch/training_watch.h"
#include "proto/wire/segment.h"

namespace nanwatch {

struct Seen {
  std::optional<double> norm = {};
  std::optional<double> loss = {};
  std::optional<double> scale = {};
  bool skipped = false;
  uint32_t gradients = 4;
  uint32_t missing = 0;
  uint32_t zero = 0;
  uint32_t optimizer = 0;
  bool parameters_bad = false;
  std::optional<double> near = {};  // largest float16 of an activation
  bool full = true;                 // else canary, which sees none
};

class ToldTraining {
 public:
  void Step(const Seen& seen) {
    StepSummary step;
    step.set_index(next_++);
    Clocks& clocks = *step.mutable_clocks();
    for (int i = 0; i < 2; ++i) clocks.add_optimizer_steps(steps_[i] += IsUpdateOf(i, seen));
    clocks.set_optimizer_ranges(steps_[0] + steps_[1]);
    clocks.set_scaler_skips(skips_ += seen.skipped ? 1 : 0);
    if (seen.norm) step.set_gradient_norm(*seen.norm);
    if (seen.loss) step.set_loss(*seen.loss);
    if (seen.scale) step.set_scale(*seen.scale);
    step.set_flags((seen.skipped ? 2u : 0u) | (seen.parameters_bad ? 4u : 0u));
    step.set_gradients(seen.gradients);
    step.set_gradients_missing(seen.missing);
    step.set_gradients_zero(seen.zero);
    step.set_optimizer(seen.optimizer);
    step.set_level(static_cast<uint32_t>(seen.full ? wire::Level::kFull : wire::Level::kCanary));
    if (seen.near && *seen.near >= 1024) {
      step.set_near_largest(*seen.near);
      step.set_near_op("aten::addmm");
      step.set_near_layer("blocks.3");
      step.set_near_type(static_cast<uint32_t>(wire::ElementType::kFloat16));
    }
    steps_told_.push_back(step);
    Watch(step, history_);
  }

  void Steps(int count, const std::function<Seen(int)>& what) {
    for (int i = 0; i < count; ++i) Step(what(i));
  }

  // Steps until something is raised; `count` when nothing is.
  int StepsUntilRaised(int count, const std::function<Seen(int)>& what) {
    const int before = history_.alarms_size();
    for (int i = 0; i < count; ++i) {
      Step(what(i));
      if (history_.alarms_size() > before) return i + 1;
    }
    return count;
  }

  [[nodiscard]] std::vector<std::string> Ids() const {
    std::vector<std::string> ids;
    for (const TrainingAlarm& alarm : history_.alarms()) ids.push_back(alarm.id());
    return ids;
  }

  [[nodiscard]] const TrainingHistory& history() const { return history_; }
  [[nodiscard]] const std::vector<StepSummary>& steps() const { return steps_told_; }

  // Noise as training has it: normal in the logarithm, the same in every run of the test.
  double Noise(double decades) {
    return std::pow(10.0, std::normal_distribution<double>(0, decades)(random_));
  }
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

 private:
  static uint32_t IsUpdateOf(int i, const Seen& seen) {
    return !seen.skipped && seen.optimizer == static_cast<uint32_t>(i) ? 1 : 0;
  }

  uint64_t next_ = 0;
  uint32_t steps_[2] = {};
  uint32_t skips_ = 0;
  TrainingHistory history_;
  std::vector<StepSummary> steps_told_;
  std::mt19937 random_{7};
};

}  // namespace nanwatch
