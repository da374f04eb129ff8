// SPDX-License-Identifier: Apache-2.0
// Turns the clocks of a record, which are plain counts, into the step a person means.
//
// A job may have several optimizers; the fold of its steps (daemon/watch/step_cycles.h) says which
// of them closes the cycle at the time of the record. If no step is known, as for a run of which
// only the newest counts were read, the one that ends up with the smallest count closes it
// throughout; among equals it is the one seen last, and instances below 1/32 of the busiest are
// passed over.
//
// Copies what it needs of the facts. A reading takes a search among 256 spans at most.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

struct StepReading {
  int64_t step = -1;        // optimizer steps completed before; -1 unknown
  int64_t iteration = -1;   // the same, with the steps that a GradScaler skipped; -1 unknown
  int64_t micro_step = -1;  // backward passes that reached a leaf since; -1 unknown
  std::string_view source = "none";  // optimizer, scaler, backward, none
  int64_t updates = 0;               // of all optimizers, where several share the steps; else 0
  // Iterations of the whole process, where step and iteration begin anew with each training in it:
  // what comes earlier has the smaller one. -1 unknown.
  int64_t iteration_of_run = -1;
  int training = 0;  // which one of the process, from 1; 0: not known, or there is but one
  // The optimizers acted too seldom yet to show whether they share steps: the step may be another.
  bool ambiguous = false;
};

// One training in a notebook: a span of the steps (daemon/watch/step_cycles.h), and the cells that
// took them.
struct TrainingSpan {
  int ordinal = 0;  // from 1
  int64_t steps = 0;
  uint32_t unwatched = 0;   // of these, at level idle, or not seen
  uint32_t first_cell = 0;  // numbers as in In[7]; 0 unknown
  uint32_t last_cell = 0;
};

class StepClock {
 public:
  explicit StepClock(const RunFacts& facts);

  // `time_ns`: when that was, 0 unknown. Between the last step of one training and the first of the
  // next it says which of the two it belongs to.
  [[nodiscard]] StepReading Read(const Clocks& clocks, uint64_t time_ns = 0) const;

  // Its cells say where a training begins; elsewhere the optimizers do.
  [[nodiscard]] bool IsNotebook() const { return !cells_.empty(); }
  // Empty where the process is no notebook.
  [[nodiscard]] std::vector<TrainingSpan> Trainings() const;

  // Steps the run made in all, skipped ones included; 0 when none is known.
  [[nodiscard]] uint64_t UpdatesSeen() const;

 private:
  struct Cell {
    uint32_t ranges;  // completed with the first step in it
    uint32_t number;
    uint64_t began_ns;
  };

  [[nodiscard]] const StepSpan* SpanOf(const Clocks& clocks, uint64_t time_ns) const;
  [[nodiscard]] int OrdinalOf(const StepSpan& span) const;
  [[nodiscard]] int TrainingOf(const StepSpan& span) const;
  // When the cell began that took the first step of a span; 0 unknown.
  [[nodiscard]] uint64_t BeginOf(const StepSpan& span) const;

  Clocks last_;                  // the largest counts that any fact of the run carries
  StepCycles cycles_;            // empty where no step is known
  std::vector<StepSpan> spans_;  // oldest first; the last one lasts
  std::vector<Cell> cells_;      // of a notebook, in order
  int closing_ = -1;  // without steps: index of the optimizer that closes the cycle; -1: use all
                      // completed ranges
};

}  // namespace nanwatch
