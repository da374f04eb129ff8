// SPDX-License-Identifier: Apache-2.0
// `parameter.data = other` and `module.name = other`: no op writes the parameter or the buffer, and
// it holds other values all the same. What is known of the other tensor's memory is known of
// the parameter from then on.
#pragma once

#include <ATen/core/TensorBase.h>

namespace nanwatch {

class KnownBad;
class Poison;
class UnobservedWrites;
struct NamedTensor;
struct ThreadState;

class ExchangedData {
 public:
  // All outlive it.
  struct Uses {
    KnownBad& known_bad;
    Poison& poison;
    UnobservedWrites& writes;
  };
  explicit ExchangedData(const Uses& uses) noexcept : uses_(uses) {}

  // GIL held, on the thread that has made the exchange. `named`: what the tensor is known as. Where
  // a bad value lies in the new memory, it is recorded as written into the parameter; not on a GPU,
  // whose memory cannot be read here.
  void OnData(ThreadState* thread, const at::TensorBase& tensor, const NamedTensor* named) noexcept;
  // GIL held: a module holds another tensor by this name than before.
  void OnReplaced(ThreadState* thread, const at::TensorBase& tensor,
                  const NamedTensor& named) noexcept {
    OnChange("torch.nn.Module.__setattr__", thread, tensor, &named);
  }

 private:
  void OnChange(const char* op, ThreadState* thread, const at::TensorBase& tensor,
                const NamedTensor* named) noexcept;

  const Uses uses_;
};

}  // namespace nanwatch
