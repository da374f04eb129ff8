// Turns the clocks of a record, which are plain counts, into the step a person means.
//
// A job may have several optimizers (a GAN, a critic that is updated five times per generator). The
// one that closes the cycle is the one that ends up with the smallest count, because the others act
// at least as often; among equals it is the one seen last. A side optimizer that acted hardly ever
// (a warm-up, a probe) must not freeze the clock, so instances below 1/32 of the busiest are passed
// over.
#pragma once

#include <cstdint>
#include <string_view>

#include "verdict.pb.h"

namespace nanwatch {

struct StepReading {
  int64_t step = -1;        // optimizer steps completed before; -1 unknown
  int64_t iteration = -1;   // the same, with the steps that a GradScaler skipped; -1 unknown
  int64_t micro_step = -1;  // backward passes that reached a leaf since; -1 unknown
  std::string_view source = "none";  // optimizer, scaler, backward, none
};

class StepClock {
 public:
  // Reads the counts that the run ended with; they decide which optimizer closes the cycle.
  explicit StepClock(const RunFacts& facts);

  [[nodiscard]] StepReading Read(const Clocks& clocks) const;

  // Steps the run made in all, skipped ones included; 0 when none is known.
  [[nodiscard]] uint64_t UpdatesSeen() const;

 private:
  Clocks last_;       // the largest counts that any fact of the run carries
  int closing_ = -1;  // index of the optimizer that closes the cycle; -1: use all completed ranges
};

}  // namespace nanwatch
