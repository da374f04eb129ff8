// SPDX-License-Identifier: Apache-2.0
// Parameters, buffers and gradients that are bad by now, and of which origin: what keeps a bad
// value from one step to the next, and what is assumed of ops whose inputs were not checked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "daemon/correlate/step_clock.h"
#include "verdict.pb.h"

namespace nanwatch {

class PoisonedTensors {
 public:
  // `clock` must outlive the object.
  explicit PoisonedTensors(const StepClock& clock) : clock_(clock) {}

  // Each with the index of its origin. "": its name is not known.
  void AddParameter(const Record& record, const std::string& name, int origin);
  void AddBuffer(const std::string& name, int origin) { buffers_.Add(name, origin); }
  void AddGradient(const Record& record, const std::string& name, int origin);
  // What an optimizer keeps.
  void AddState(int origin) { state_ = origin; }
  void ForgetParameters() { parameters_ = Tensors(); }
  // None was applied: the update was skipped.
  void ForgetApplied() { last_gradients_ = Tensors(); }
  // With `read`, all parameters were read after that, and none has become bad of them.
  void ForgetGradients(bool read) {
    gradients_ = Tensors();
    if (read) ForgetApplied();
  }

  // The origin of bad parameters, if they explain this record; else -1.
  [[nodiscard]] int Assumed(const Record& record) const;
  // The origin of what made an optimizer's state bad before; else -1. An update that finds bad
  // what nobody can name has read that.
  [[nodiscard]] int State() const { return state_; }
  // The origin of what made this long-lived tensor bad, if an earlier record says so; else -1.
  [[nodiscard]] int Inherited(const Record& record, uint32_t target, const std::string& name) const;
  // The origin of this parameter's gradient, where it is bad; else -1.
  [[nodiscard]] int GradientOf(const std::string& parameter) const {
    return gradients_.Find(parameter);
  }
  // Whether a parameter, a gradient or an optimizer's state is bad that has this origin.
  [[nodiscard]] bool Spoiled(int origin) const;
  // The origin of a bad gradient that an update may have applied to this parameter just before,
  // though no op was seen to; else -1.
  [[nodiscard]] int AppliedUnseen(const Record& record, const std::string& parameter) const;

 private:
  struct Tensors {
    int any = -1;  // origin of the first bad one; -1: all clean
    std::map<std::string, int, std::less<>> by_name;
    void Add(const std::string& name, int origin);
    [[nodiscard]] int Find(const std::string& name) const;
    [[nodiscard]] bool Has(int origin) const;
  };

  const StepClock& clock_;
  Tensors parameters_;
  int64_t poisoned_in_ = -1;  // iteration in which the first of them went bad
  Tensors buffers_;
  int state_ = -1;
  Tensors gradients_;
  Tensors last_gradients_;
  int64_t last_gradients_in_ = -1;  // iteration
};

}  // namespace nanwatch
