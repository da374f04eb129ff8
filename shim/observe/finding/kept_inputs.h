// SPDX-License-Identifier: Apache-2.0
// What autograd has kept of the inputs of the op that is ending, for its backward. Nobody asks for
// the inputs of the first bad op (inputs.h), and these are what a reader wants to see of it: the 0
// that a logarithm was given. Nothing is unpacked: with saved-tensor hooks of the program's
// (checkpointing, offloading) there is nothing to be had, nor of ops that keep their result alone,
// as exp and softmax do, nor without a gradient, nor before torch 2.7.
//
// One thread, the op's own; the tensors are held until the end of this object's life.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/finding/sources.h"

namespace nanwatch {

class KeptInputs {
 public:
  // Of the op of `frame`, by the autograd node that one of its outputs has. These are alive.
  void Take(const Frame& frame, const BadOutput* outputs, int count) noexcept;

  // Those that are bad, as where the op's bad outputs came from.
  void AddSources(SourceFinder& finder, ThreadState* thread, const OwnWrites& own,
                  Sources* sources) const noexcept;

  // One of them is a Python number that is not finite: asked for, not come from anywhere.
  [[nodiscard]] bool number_bad() const noexcept { return number_bad_; }
  // All numbers that the op was given have been read, or it was given none.
  [[nodiscard]] bool number_known() const noexcept { return number_known_; }
  // They are all tensors that the op was given.
  [[nodiscard]] bool complete() const noexcept { return complete_; }

  // As a record has inputs, `wire::kInputsMax` at most, bad ones first; returns how many.
  int Fill(const FindingRecords& records, KnownBad& known_bad, const Frame& frame, Emitter& emitter,
           wire::TensorStats* stats) const noexcept;

 private:
  struct Kept {
    at::Tensor tensor;
    PlainTensor plain;
    uint8_t argument;
    uint8_t kinds;
  };

  void Add(const Frame& frame, std::string_view argument, at::Tensor tensor) noexcept;

  Kept kept_[wire::kInputsMax];
  int count_ = 0;
  bool number_bad_ = false;
  bool number_known_ = false;
  bool complete_ = false;
};

}  // namespace nanwatch
