// SPDX-License-Identifier: Apache-2.0
// A bad number that left the tensors: Python read it, or the program compared it with another.
#pragma once

#include "shim/observe/finding/sources.h"
#include "shim/observe/observer.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

// `source`: what it came from, the value `value` if that is known. `of_many`: it is one of several
// numbers that were read together.
void EmitScalarRead(Observer& observer, ThreadState* thread, const Frame& frame, Emitter& emitter,
                    const wire::Source& source, ValueRef value, double number,
                    bool of_many = false) noexcept;

// The same with the id of the name of what read it.
void EmitScalarReadAt(Observer& observer, ThreadState* thread, uint32_t op, Emitter& emitter,
                      const wire::Source& source, ValueRef value, double number,
                      bool of_many = false) noexcept;

// A program that tests its loss and leaves a bad one out neither begins a pass at it nor need it
// read the number: what can be seen is that one number was compared. A validation loss counts where
// the program asks which of two numbers is smaller, as early stopping does.
void RecordComparedLoss(Observer& observer, ThreadState* thread, const Frame& frame,
                        Emitter& emitter) noexcept;

// Tensor.numpy() or Tensor.tolist() of a tensor that is NaN throughout. A NaN among numbers often
// marks what is missing (the IoU of a class that is absent), for nanmean() to leave out.
void EmitReadAll(Observer& observer, ThreadState* thread, const Frame& frame) noexcept;

}  // namespace nanwatch
