// SPDX-License-Identifier: Apache-2.0
// Bad values that no observed op is known to have written: they came in from outside, under the
// name of a parameter, a buffer or an argument, or without one.
//
// Threads: any. Called only where something is bad.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class KnownBad;
class NamedReading;
class ProcessSegment;
class SharedFiles;
struct NamedTensor;

class ExternalValues {
 public:
  // All outlive it.
  ExternalValues(ProcessSegment& segment, KnownBad& known_bad, SharedFiles& shared_files) noexcept
      : segment_(segment), known_bad_(known_bad), shared_files_(shared_files) {}

  enum class Writer : uint8_t {
    kMayBeUnseen,
    // Nobody can have written it here since it came in: Python's numbers, of which torch has just
    // made a tensor; what a model holds when it is first called; what an observed op has let in.
    kKnown,
  };
  // Remembers it as an external source, so that inputs are tracked from now on.
  void Remember(const PlainTensor& tensor, wire::Target target, const char* name,
                Writer writer = Writer::kMayBeUnseen) noexcept;
  // The same with the name's id.
  void Remember(const PlainTensor& tensor, wire::Target target, uint32_t name,
                Writer writer = Writer::kMayBeUnseen) noexcept;

  // A parameter or buffer that was read and is bad, as a source with its kinds.
  [[nodiscard]] wire::Source SourceOf(const NamedTensor& named, const NamedReading& bad) noexcept;

  // Whether code that nobody observes may have written what is bad in it: what comes into the
  // program comes with its memory.
  [[nodiscard]] bool MayHaveUnseenWriter(const PlainTensor& tensor, wire::Target target) noexcept;

 private:
  ProcessSegment& segment_;
  KnownBad& known_bad_;
  SharedFiles& shared_files_;
};

}  // namespace nanwatch
