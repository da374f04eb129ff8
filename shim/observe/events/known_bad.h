// SPDX-License-Identifier: Apache-2.0
// What is known to be bad in memory now (classify/bad_values.h), in the terms of records: which
// value it is, and where it came from.
//
// Threads: any. Called only where something is bad.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class InputTracking;
class StepClock;
struct NamedTensor;

// What a bad value was written to, if that is more than an op's result: a parameter, a buffer.
struct Written {
  wire::Target target = wire::Target::kNone;
  uint32_t flags = 0;  // ValueRecord::Flag
  uint32_t name = 0;   // its id; 0: none is known
  const NamedTensor* named = nullptr;
  bool never_called = false;  // a parameter of a module that was not called (yet)
};

// Where a tensor lies, held weakly, in a step; what it holds is for the caller to fill in.
[[nodiscard]] BadEntry BadEntryOf(const PlainTensor& tensor, uint32_t step);

class KnownBad {
 public:
  // All outlive it.
  KnownBad(BadValues& values, InputTracking& tracking, StepClock& clock) noexcept
      : values_(values), tracking_(tracking), clock_(clock) {}

  // No lock.
  [[nodiscard]] bool Any() const noexcept { return values_.size() != 0; }
  // Something is that makes ops hand over their inputs. No lock.
  [[nodiscard]] bool AnyTransient() const noexcept { return values_.transient() != 0; }
  [[nodiscard]] bool Find(const PlainTensor& tensor, BadEntry* entry) noexcept {
    return values_.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, entry);
  }
  // As of BadValues.
  [[nodiscard]] uint64_t CountWithin(const PlainTensor& tensor, uint8_t* kinds) noexcept {
    return values_.CountWithin(tensor.storage, tensor.byte_begin, tensor.byte_end, kinds);
  }
  // A source that names what is known of a bad tensor; false if nothing is known.
  bool SourceOf(const PlainTensor& tensor, wire::Source* source, ValueRef* value) noexcept;

  // An op has left `value` in these. Ops that read them are told apart from ops that make a bad
  // value of their own, so inputs are tracked from now on.
  struct As {
    ValueRef value;
    uint32_t site;
    const Written& written;       // of the first output
    bool in_optimizer = false;    // an update wrote it
    uint8_t kinds = 0;            // of all outputs; 0 unknown
    bool count_elements = false;  // whether what is left of it later is all of it
  };
  void Remember(const BadOutput* outputs, int count, const As& as) noexcept;

  // No observed op is known to have written it.
  struct External {
    wire::Target target;
    uint32_t name;         // of the parameter, buffer or argument
    uint64_t shared_file;  // as in wire::Source::value
    bool writer_unseen;    // wire::Source::kWriterUnseen
  };
  void RememberExternal(const PlainTensor& tensor, const External& as) noexcept;

  // Some of what is `known` of it was written over with good values: less is left. Ops are asked
  // for their inputs anew, since more may be put there soon.
  void RememberRest(const PlainTensor& tensor, const BadEntry& known, bool writer_unseen) noexcept;

 private:
  BadValues& values_;
  InputTracking& tracking_;
  StepClock& clock_;
};

}  // namespace nanwatch
