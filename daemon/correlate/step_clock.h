// Turns the clocks of a record, which are plain counts, into the step a person means.
//
// A job may have several optimizers; which of them closes the cycle at the time of the record is
// told by the fold of its steps (daemon/watch/step_cycles.h). Where no step is known, as of a run
// of which only its newest counts are looked at, the one that ends up with the smallest count
// closes it throughout; among equals it is the one seen last, and instances below 1/32 of the
// busiest are passed over.
//
// Copies what it needs of the facts. A reading takes a search among 256 spans at most.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

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
};

class StepClock {
 public:
  explicit StepClock(const RunFacts& facts);

  [[nodiscard]] StepReading Read(const Clocks& clocks) const;

  // Steps the run made in all, skipped ones included; 0 when none is known.
  [[nodiscard]] uint64_t UpdatesSeen() const;

 private:
  [[nodiscard]] const StepSpan* SpanOf(const Clocks& clocks) const;

  Clocks last_;        // the largest counts that any fact of the run carries
  StepCycles cycles_;  // empty where no step is known
  std::optional<StepSpan> newest_;
  int closing_ = -1;  // without steps: index of the optimizer that closes the cycle; -1: use all
                      // completed ranges
};

}  // namespace nanwatch
