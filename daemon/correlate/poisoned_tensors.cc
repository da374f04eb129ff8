// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/poisoned_tensors.h"

#include "daemon/correlate/wire_facts.h"
#include "proto/wire/record.h"

namespace nanwatch {

using wire::Target;

void PoisonedTensors::Tensors::Add(const std::string& name, int origin) {
  if (any < 0) any = origin;
  if (!name.empty()) by_name.try_emplace(name, origin);
}

void PoisonedTensors::AddParameter(const Record& record, const std::string& name, int origin) {
  const int64_t iteration = clock_.Read(record.clocks()).iteration_of_run;
  if (parameters_.any < 0 || iteration > poisoned_in_) {
    parameters_ = Tensors();
    poisoned_in_ = iteration;
  }
  parameters_.Add(name, origin);
}

// The job writes no values while it knows that parameters are bad. One of a later step says that
// they are clean again, whatever the last update left.
int PoisonedTensors::Assumed(const Record& record) const {
  if (parameters_.any < 0 || clock_.Read(record.clocks()).iteration_of_run > poisoned_in_)
    return -1;
  return parameters_.any;
}

int PoisonedTensors::Inherited(const Record& record, uint32_t target,
                               const std::string& name) const {
  const auto named = [&](const Tensors& tensors) {
    const auto found = tensors.by_name.find(name);
    return found == tensors.by_name.end() ? -1 : found->second;
  };
  if (Is(target, Target::kInputData)) return -1;
  if (Is(target, Target::kBuffer) && named(buffers_) >= 0) return named(buffers_);
  if (Is(target, Target::kParameter) && named(parameters_) >= 0) return named(parameters_);
  if (Is(target, Target::kGradient) && gradients_.any >= 0) {
    return named(gradients_) >= 0 ? named(gradients_) : gradients_.any;
  }
  // Only the first few bad names are recorded.
  return Is(target, Target::kParameter) ? parameters_.any : Assumed(record);
}

}  // namespace nanwatch
