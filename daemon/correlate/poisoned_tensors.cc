// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/poisoned_tensors.h"

#include <algorithm>

#include "daemon/correlate/wire_facts.h"
#include "proto/wire/record.h"

namespace nanwatch {

using wire::Target;

void PoisonedTensors::Tensors::Add(const std::string& name, int origin) {
  if (any < 0) any = origin;
  if (!name.empty()) by_name.try_emplace(name, origin);
}

int PoisonedTensors::Tensors::Find(const std::string& name) const {
  const auto found = by_name.find(name);
  return found == by_name.end() ? -1 : found->second;
}

bool PoisonedTensors::Tensors::Has(int origin) const {
  return any == origin || std::any_of(by_name.begin(), by_name.end(), [origin](const auto& named) {
           return named.second == origin;
         });
}

bool PoisonedTensors::Spoiled(int origin) const {
  return state_ == origin || parameters_.Has(origin) || gradients_.Has(origin);
}

void PoisonedTensors::AddParameter(const Record& record, const std::string& name, int origin) {
  const int64_t iteration = clock_.Read(record.clocks()).iteration_of_run;
  if (parameters_.any < 0 || iteration > poisoned_in_) {
    parameters_ = Tensors();
    poisoned_in_ = iteration;
  }
  parameters_.Add(name, origin);
}

void PoisonedTensors::AddGradient(const Record& record, const std::string& name, int origin) {
  gradients_.Add(name, origin);
  const int64_t iteration = clock_.Read(record.clocks()).iteration_of_run;
  if (iteration > last_gradients_in_) last_gradients_ = Tensors();
  last_gradients_in_ = iteration;
  last_gradients_.Add(name, origin);
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
  if (Is(target, Target::kInputData)) return -1;
  if (Is(target, Target::kBuffer) && buffers_.Find(name) >= 0) return buffers_.Find(name);
  if (Is(target, Target::kParameter) && parameters_.Find(name) >= 0) return parameters_.Find(name);
  if (Is(target, Target::kGradient) && gradients_.any >= 0) {
    return gradients_.Find(name) >= 0 ? gradients_.Find(name) : gradients_.any;
  }
  // Only the first few bad names are recorded.
  return Is(target, Target::kParameter) ? parameters_.any : Assumed(record);
}

// Only the first few bad names are recorded.
int PoisonedTensors::AppliedUnseen(const Record& record, const std::string& parameter) const {
  if (clock_.Read(record.clocks()).iteration_of_run != last_gradients_in_ + 1) return -1;
  const int named = last_gradients_.Find(parameter);
  const bool all_named = last_gradients_.by_name.size() < wire::kSourcesMax;
  return named >= 0 || all_named ? named : last_gradients_.any;
}

}  // namespace nanwatch
