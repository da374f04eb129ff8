// SPDX-License-Identifier: Apache-2.0
// Tensors on a GPU that are handed over to be checked, other than by an op that ends.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

struct NamedTensor;

struct CheckedTensor {
  InputSeen seen;
  wire::Target target;
  const NamedTensor* named;
  uint32_t name;  // an id, where `named` is null
};

// What they are in the training, which says what follows from the answer.
enum class CheckedAs : uint8_t {
  kEntries,
  kGradients,
  kWatchedGradients,  // whose ops were checked: what made them bad is known already
  kLoss,
  kLossNumber,     // only its value is wanted
  kScale,          // of a GradScaler; its update comes next
  kScaleOfStep,    // that, and what was found in the step: the update itself goes by unseen
  kGradientScale,  // by which an optimizer divides the gradients itself
  kFoundInf,       // what is not 0 where an optimizer skips its step itself; before its gradients
  kProbe,          // all parameters, which were bad: whether one of them is (poison_watch.h)
  kUnread,         // what no launch has read yet of what ops have left (gpu/op_batches.h)
  kOfRegion,
  kGiven,              // into a collective that gives one rank's values to all
  kReceived,           // by a collective, before an op writes over it
  kWritten,            // `target` is kParameter, or kOptimizerState of what is kept for `named`
  kMeasuredGradients,  // by TensorsToMeasure alone
  kSampled,            // the same, of parameters before their update,
  kMeasuredUpdates,    // and after it
  kMeasuredResults,    // the same, of ops or modules of the layer that runs
};

}  // namespace nanwatch
