// SPDX-License-Identifier: Apache-2.0
// Where the bad value that an op met came from: what is known of its inputs, and what can be found
// out when nothing is.
#pragma once

#include <cstdint>

#include "shim/observe/finding/source_list.h"
#include "shim/observe/observer.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class NamedReading;

// Of an op whose inputs were noted.
void CollectSeenSources(Observer& observer, ThreadState* thread, const Frame& frame,
                        const OwnWrites& own, Sources* sources) noexcept;

// One tensor that the op has read and that is bad and alive, its argument number `argument`.
void AddBadInput(Observer& observer, ThreadState* thread, const PlainTensor& plain,
                 uint8_t argument, uint8_t kinds, const OwnWrites& own, Sources* sources) noexcept;

// Nothing was known to be bad and inputs were not asked for: what can be bad all the same are the
// layer's own parameters and buffers, and residents.
void AssumeSources(Observer& observer, const Location& place, const BadOutput* outputs, int count,
                   uint8_t output_kinds, Sources* sources) noexcept;

// Level canary follows nothing between two updates. What an update then reads that is bad, though
// no op is known to have written it, is taken for what was bad before; false: nothing was.
bool AddForgotten(Observer& observer, const Location& place, uint8_t kinds, uint8_t argument,
                  Sources* sources) noexcept;

// A tensor that no observed op is known to have written is bad: remembered as an external source,
// and asked for from now on. `name`: of the parameter, buffer or argument.
void RecordExternal(Observer& observer, const PlainTensor& tensor, wire::Target target,
                    const char* name) noexcept;

// The same with the name's id.
void RecordExternal(Observer& observer, const PlainTensor& tensor, wire::Target target,
                    uint32_t name) noexcept;

// A parameter or buffer that was read and is bad, as a source with its kinds.
wire::Source NamedSource(Observer& observer, const NamedTensor& named,
                         const NamedReading& bad) noexcept;

// A source that names what is known of a bad tensor; false if the table knows nothing.
bool SourceOf(Observer& observer, const PlainTensor& tensor, wire::Source* source,
              ValueRef* value) noexcept;

}  // namespace nanwatch
