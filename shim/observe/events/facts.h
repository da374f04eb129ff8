// SPDX-License-Identifier: Apache-2.0
// What happened in the training, as plain values. A fact is valid for the call that hands it over
// (fact_sink.h); whoever needs it longer copies it.
#pragma once

#include <cstdint>
#include <span>

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"
#include "shim/device/measure_launch.h"
#include "shim/observe/events/checked_tensor.h"
#include "shim/observe/events/tensor_list.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

struct NamedTensor;

// A backward pass began.
struct PassBegan {
  uint64_t number;            // no other pass has it
  const SequenceEntry* root;  // the op that made the value it begins at; null: unknown
  bool root_is_loss;          // and the loss of this step is not known otherwise
};

// A leaf takes its gradient.
struct LeafReached {
  const PlainTensor* gradient;  // null: not seen
  const NamedTensor* named;     // null: no module holds the leaf
};

// All gradients that an optimizer is given, as read where its step begins.
struct Gradients {
  bool known = false;
  bool norm_known = false;  // but for those on a GPU, while they are waited for
  double squares = 0;       // the sum of those of all elements, before an optimizer divides by
  double scale = 1;         // this, which a GPU may have to answer first
  bool scale_on_gpu = false;
  double norm = 0;
  uint32_t count = 0;
  uint32_t missing = 0;
  uint32_t zero = 0;
  uint32_t bad = 0;
  bool skipped = false;                    // a GradScaler has the optimizer skip this update
  const NamedTensor* first_bad = nullptr;  // the parameter; null where its name is not known
  ValueRef first_bad_value;                // ticket 0: not known
  // The optimizer skips by itself where a GradScaler has found something, and what it found lies on
  // a GPU: bad gradients are taken for that.
  bool skips_by_itself = false;
  uint32_t on_gpu = 0;         // so many lie on a GPU,
  bool waits_for_gpu = false;  // and what they hold is not known yet
  bool some_unseen = false;    // of some nothing will ever be known
  bool number_bad = false;     // a number among the optimizer's options is not finite,
  bool factor_bad = false;     // and it is a rate or a decay
  bool of_torch = false;       // the optimizer's class is one of torch's own
  bool rate_known = false;
  double rate = 0;  // learning rate of its first group
  // Those parameters on the CPU that it writes were read, and what is bad in them is told.
  bool parameters_read = false;

  // Everything that the update is given was read, and is finite.
  [[nodiscard]] bool AreFinite() const noexcept {
    return known && !some_unseen && !waits_for_gpu && bad == 0 && !number_bad;
  }
};

// An optimizer's step began on this thread.
struct UpdateBegan {
  const void* optimizer;  // its identity
  const char* range_name;
  const Gradients& gradients;
};

// It ended.
struct UpdateEnded {
  bool stopped;        // it did nothing: our exception, or the program's, has left it
  bool ops_unwatched;  // ops go unwatched from here on
};

// The program wrote a parameter by hand.
struct PlainUpdate {};

// A collective begins, into which these are given, or has ended that hands these out. All lie on a
// GPU.
struct CollectiveTensors {
  const CollectiveName& collective;
  std::span<const CheckedTensor> tensors;
  bool given_in;
};

// Tensors on a GPU that no op of this moment hands over, to be checked: those of `runs` first.
struct TensorsToCheck {
  CheckedAs as;
  std::span<const CheckedTensor> tensors;
  std::span<const TensorListPtr> runs = {};
};

// To be measured for snapshot `snapshot`, in which `name` is a tensor's place. With `samples`, one
// for each, they are compared instead with what they were at the snapshot's begin.
struct TensorsToMeasure {
  CheckedAs as;
  std::span<const CheckedTensor> tensors;
  uint64_t snapshot;
  std::span<const device::SampleSpan> samples;
};

// Everything was enqueued of this snapshot.
struct SnapshotTaken {
  uint64_t snapshot;
};

// A step of the training ended: taken, or skipped by a GradScaler.
struct StepEnded {
  wire::Clocks clocks{};
  uint64_t time_ns = 0;                      // CLOCK_MONOTONIC
  uint64_t step_ns = 0;                      // 0: not known
  wire::Level watched = wire::Level::kIdle;  // how its ops were watched
  uint32_t optimizer = 0;                    // steps of different ones take different times
  double loss = 0;                           // valid with loss_known
  double gradient_norm = 0;                  // valid with norm_known
  double near_limit = 0;                     // of the step's largest activation; 0: not near
  bool loss_known = false;
  bool norm_known = false;
  bool off = false;       // its checks were off, or some of them
  bool calm = false;      // nothing was skipped, and no op hidden
  bool readable = false;  // all gradients were read, and are finite
};

}  // namespace nanwatch
