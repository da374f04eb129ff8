// SPDX-License-Identifier: Apache-2.0
// Where the bad value that an op met came from: what is known of its inputs, and what can be found
// out when nothing is.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/classify/bad_values.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class CollectiveResults;
class ExternalValues;
class KnownBad;
class LateFacts;
class LevelState;
class RecentValues;
class RuinedParameters;
class StepClock;

// Threads: any. Called only where something is bad.
class SourceFinder {
 public:
  // All outlive it.
  struct Uses {
    KnownBad& known_bad;
    ExternalValues& external;
    CollectiveResults& collective_results;
    RecentValues& recent;
    const PythonNames& names;
    LevelState& level;
    StepClock& clock;
    LateFacts& late;
    RuinedParameters& ruined;
  };
  explicit SourceFinder(const Uses& uses) noexcept : uses_(uses) {}

  // Of an op whose inputs were recorded.
  void CollectSeen(ThreadState* thread, const Frame& frame, const OwnWrites& own,
                   Sources* sources) noexcept;

  // One tensor that the op has read and that is bad and alive, its argument number `argument`.
  void AddBadInput(ThreadState* thread, const PlainTensor& plain, uint8_t argument, uint8_t kinds,
                   const OwnWrites& own, Sources* sources) noexcept;

  // Nothing was known to be bad and inputs were not tracked: what can be bad all the same are the
  // layer's own parameters and buffers, and residents. Not what the op has itself written:
  // `written`, and with `wrote_buffers` (batch norm in training) all buffers.
  void Assume(const Location& place, const OwnWrites& written, bool wrote_buffers,
              uint8_t output_kinds, Sources* sources) noexcept;

  // Level canary follows nothing between two updates. What an update then reads that is bad, though
  // no op is known to have written it, is taken for what was bad before; false: nothing was.
  bool AddForgotten(const Location& place, uint8_t kinds, uint8_t argument,
                    Sources* sources) noexcept;

  // A parameter of any module, or a buffer of one that was called.
  [[nodiscard]] bool IsOfModule(const PlainTensor& tensor) const noexcept;

  // While parameters were bad nothing was followed (poison.h). What an op has read that was in
  // memory of torch's own is taken for what came of them; false: they never were.
  bool AddLeftByPoison(uint8_t kinds, uint8_t argument, Sources* sources) noexcept;
  // Likewise of an op whose inputs nobody saw: a parameter as large as what it has made.
  bool AddRuinedAlike(const PlainTensor& made, uint8_t kinds, Sources* sources) noexcept;

  // An op whose inputs nobody read is taken to have read this value. False: no ops have made it, or
  // they are not known any more.
  bool AddUnread(const BadEntry& entry, uint8_t kinds, uint8_t argument, Sources* sources) noexcept;

  // What a collective of this step has brought, if it brought something bad.
  bool AddReceived(ThreadState* thread, const OwnWrites& own, uint8_t argument,
                   Sources* sources) noexcept;

 private:
  // An input that is bad although no observed op is known to have written it.
  struct UnknownInput {
    const PlainTensor& plain;
    uint8_t argument;
    uint8_t kinds;
    bool is_result;     // to autograd
    bool is_of_python;  // no op has written it, and none had to
  };
  void AddUnknownInput(ThreadState* thread, const UnknownInput& input, const OwnWrites& own,
                       Sources* sources);
  [[nodiscard]] BadEntry NamedNow(const PlainTensor& plain, const BadEntry& entry) noexcept;
  bool AddAssumed(ThreadState* thread, const UnknownInput& input, Sources* sources);
  [[nodiscard]] bool MayBeOfKernels(const InputSeen& input) const noexcept;
  bool AddMade(const PlainTensor& plain, uint8_t kinds, Sources* sources) noexcept;
  [[nodiscard]] bool IsMadeByOps(const BadEntry& entry) noexcept;
  void AssumeFromModel(const Layer& layer, Sources* sources);

  const Uses uses_;
  std::atomic<uint32_t> model_reads_{0};      // for bad parameters of other layers,
  std::atomic<uint32_t> model_read_step_{0};  // and the step of the last one, plus one
};

}  // namespace nanwatch
