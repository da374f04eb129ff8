// SPDX-License-Identifier: Apache-2.0
// The history of one number of the training, a value a step, in decades: the gradient's norm by its
// logarithm, the loss by an inverse hyperbolic sine, which is linear about zero (losses may be
// negative) and logarithmic far above where the run began.
//
// What is unusual is measured by the run itself: by the highest level that ever lasted, and by the
// median and the median absolute deviation of the steps before. A fixed bound ("a norm of 100") is
// wrong for most models; a mean and a variance are dominated by the very outliers that we want to
// find.
//
// Pure functions of a message of bounded size; values of any origin are taken, non-finite ones
// passed over.
#pragma once

#include <cstdint>
#include <optional>

#include "statistics.pb.h"

namespace nanwatch {

// Values that are remembered one by one.
inline constexpr int kSeriesRecentMax = 128;
// Steps whose median and spread are the usual of what follows.
inline constexpr int kUsualSteps = 100;

// log10(norm); a norm of 0 lies below every float32.
void PushNorm(double norm, TrainingSeries& series);
// Nothing becomes of the first few but the loss's unit, their median magnitude.
void PushLoss(double loss, TrainingSeries& series);

// Forgets the newest values that are older than the `kept` newest: those of a height that is over,
// with which nothing is to be compared.
void Forget(uint32_t newest, uint32_t kept, TrainingSeries& series);

[[nodiscard]] double NormOfLevel(double level);
[[nodiscard]] double LossOfLevel(double level, const TrainingSeries& series);

struct Usual {
  double median = 0;
  double spread = 0;  // standard deviation, estimated from the median absolute deviation
  int steps = 0;
};

// A level that left what was usual.
struct Departure {
  double level = 0;      // the newest
  double reference = 0;  // what it left: the highest level that lasted before, or the median
  Usual usual;
  [[nodiscard]] double spreads() const {
    const double off = level - usual.median;
    return (off < 0 ? -off : off) / usual.spread;
  }
};

// Higher than it ever was for long, for several steps, and still growing: by three decades over two
// steps, two over three, or by one and a little over more. `ease` below 1 asks for less, where
// something else speaks for it.
[[nodiscard]] std::optional<Departure> FindRise(const TrainingSeries& series, double ease = 1);

// The newest alone: a decade above the median of the steps before, and clear of their noise. Weaker
// evidence than a rise: it says that something moved.
[[nodiscard]] std::optional<Departure> FindStepUp(const TrainingSeries& series);

// Whether the newest levels are all the same, but for rounding: something holds them.
[[nodiscard]] bool IsHeld(const TrainingSeries& series);

// Below the median of the steps before by `decades` at least, in every one of the last 20 steps.
[[nodiscard]] std::optional<Departure> FindFall(const TrainingSeries& series, double decades);

// What the loss did while something else fell: whether it is a tenth of a percent of where it
// began, or half of what it was before the last 20 steps.
[[nodiscard]] bool HasConverged(const TrainingSeries& loss);

}  // namespace nanwatch
