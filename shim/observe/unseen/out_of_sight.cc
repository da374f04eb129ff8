// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/out_of_sight.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "proto/wire/element_types.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/saved_tensors.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/collective_results.h"
#include "shim/observe/unseen/compiled_writer.h"
#include "shim/observe/unseen/unread_inputs.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::Phase;
using wire::ValueRecord;

// In a backward pass autograd calls ops; the numbers that it gives them are those of the forward.
const OpTraits* CalledByPython(const Frame& frame, const Claim& claim) {
  if (claim.phase == Phase::kBackward && !RunsPythonNode()) return nullptr;
  return OutermostOp(*claim.thread, frame);
}

bool Divides(const Frame& frame) {
  const std::string_view name(frame.op->name);
  return name == "aten::div" || name == "aten::div_";
}

bool IsPower(const Frame& frame) {
  const std::string_view name(frame.op->name);
  return name == "aten::pow" || name == "aten::pow_" || name == "aten::float_power";
}

// A power of Inf is 0, 1 or Inf, wherever it is not NaN.
bool MayBePowerOfInf(const Frame& frame, const Claim& claim) {
  if (!IsPower(frame) || (claim.output_kinds & wire::kHasNan) != 0) return false;
  wire::TensorStats stats;
  FillStats(claim.outputs[0].tensor.view, 0, &stats);
  const auto is_one_of_two = [](double number) { return number == 0 || number == 1; };
  return is_one_of_two(stats.finite_min) && is_one_of_two(stats.finite_max);
}

// Whether a NaN or Inf of Python's may have made it, which nobody can have read: it makes all of a
// result bad, unless the op takes its number for some of the elements only, and is else proof
// against NaN. The numbers of torch's optimizers are read where a step begins.
bool MayBeOfNumber(const Frame& frame, const Claim& claim) {
  const bool is_read = claim.phase == Phase::kOptimizer && claim.thread->optimizer_is_of_torch;
  if (claim.number_known || is_read || frame.op->name == nullptr) return false;
  const OpTraits* called = CalledByPython(frame, claim);
  if (called == nullptr || !TakesNumber(*called)) return false;
  const bool for_some = (frame.op->families & kNanProof) != 0 && !frame.op->takes_number_as_tensor;
  const TensorView& output = claim.outputs[0].tensor.view;
  if (MayBePowerOfInf(frame, claim)) return true;
  // Divided by Inf, what is finite becomes 0.
  return for_some || (Divides(frame) ? IsAllNan(output) : IsAllBad(output));
}

// Inf that an update wrote over its state, taken for what was there before (OpEvidence::shrinks):
// an optimizer of the program's own may multiply by anything.
bool IsAssumedDecay(const Frame& frame, const Claim& claim) {
  return claim.phase == Phase::kOptimizer && frame.op->in_place && !frame.inputs_seen &&
         (claim.output_kinds & wire::kHasNan) == 0;
}

// Whether a sum of finite numbers may be this Inf. Gradients that overflow are large in many places;
// an Inf that is written into one stands among small numbers.
bool MayHaveOverflowed(const Claim& claim) {
  constexpr double kLargeShare = 0x1p-16;
  const TensorView& view = claim.outputs[0].tensor.view;
  wire::TensorStats stats;
  FillStats(view, 0, &stats);
  const double largest = std::max(std::abs(stats.finite_min), std::abs(stats.finite_max));
  return largest >= kLargeShare * wire::LargestOf(view.type);
}

// What a gradient held before a pass added to it: numpy, or an extension, may have written it since
// the pass before.
bool AddsToGradient(const Frame& frame, const Claim& claim) {
  const std::string_view name(frame.op->name);
  return claim.phase == Phase::kBackward && claim.outputs[0].tensor.gpu < 0 &&
         (name == "aten::add_" || name == "aten::_foreach_add_");
}

// Whether ops of this thread have returned what cannot be read, and is handed on as plain tensors:
// the first results inside torch.func's transforms, blocked formats.
bool HasHiddenResults(const ThreadState& thread) {
  const auto count = [&](wire::Unchecked reason) {
    return thread.counters.unchecked[static_cast<int>(reason)];
  };
  return count(wire::Unchecked::kFunctorch) + count(wire::Unchecked::kOpaque) != 0;
}

bool SaysWriterUnseen(const Sources& sources) {
  return std::any_of(sources.list, sources.list + sources.count, [](const wire::Source& source) {
    return source.flags == wire::Source::kWriterUnseen;
  });
}

// Running statistics that are read for the first time, and no number in them: a momentum may have
// made them so.
bool IsAllOfBuffer(const Claim& claim) {
  return claim.outputs[0].came_in && IsAllNan(claim.outputs[0].tensor.view);
}

bool CameIn(const Sources& sources) {
  return std::any_of(sources.list, sources.list + sources.count, [](const wire::Source& source) {
    return source.kind == static_cast<uint8_t>(wire::SourceKind::kExternal);
  });
}

}  // namespace

// Where values came in that no observed op has written: others may have written them in this
// process all the same. What a node of autograd reads, an op of the forward was given before it;
// and no data came in by what autograd takes for some op's result: an op that was not seen has
// written it, or numpy has since.
uint32_t OutOfSight::BeforeItCameIn(const Claim& claim) const noexcept {
  uint32_t flags = claim.phase == Phase::kBackward || claim.sources->came_in_by_result
                       ? uint32_t{ValueRecord::kUnseenInputs}
                       : 0u;
  if (uses_.level.was_lower() || uses_.level.came_late() || uses_.level.was_blind()) {
    flags |= ValueRecord::kUnseenLevel;
  }
  if (uses_.level.was_off_to_measure()) flags |= ValueRecord::kUnseenMeasuring;
  if (uses_.segment.is_forked()) flags |= ValueRecord::kUnseenParent;
  if (uses_.bad_values.lost()) flags |= ValueRecord::kUnseenTable;
  if (uses_.collective_results.may_bring_unnamed()) flags |= ValueRecord::kUnseenInputs;
  // Also over memory that came with its values.
  const bool is_hidden =
      compiled_regions::HasUnread(*claim.thread) || HasHiddenResults(*claim.thread);
  if (is_hidden && !SaysWriterUnseen(*claim.sources)) flags |= ValueRecord::kInexact;
  return flags;
}

// What ops left behind that ran unchecked in this very step may be held by autograd alone; what was
// bad before such ops may be read, and written over, at any time. 0: no op ran so.
uint32_t OutOfSight::RanUncheckedJustNow(const Claim& claim) noexcept {
  const uint32_t completed = uses_.clock.completed();
  if (uses_.level.forgot_bad_values()) return ValueRecord::kUnseenLevel;
  if (uses_.level.came_late() && completed == 0) return ValueRecord::kUnseenLevel;
  if (uses_.level.switched_in_step() != completed) return 0;
  // What ops of level sampled have left was read when the level rose (OfSamples). Of a GPU's, what
  // an op was given since is known where its source is.
  if (uses_.level.switched_from() == wire::Level::kSampled &&
      (!uses_.level.was_lower() || claim.traced ||
       claim.finding_class == FindingClass::kPropagate)) {
    return 0;
  }
  if (uses_.level.watched() == wire::Level::kSampled &&
      uses_.level.switched_from() == wire::Level::kFull) {
    return 0;
  }
  return uses_.level.switched_to_measure() ? ValueRecord::kUnseenMeasuring
                                           : ValueRecord::kUnseenLevel;
}

// What an update writes over that is no parameter: a momentum may have been loaded bad since.
bool OutOfSight::WritesState(const Claim& claim) const noexcept {
  const BadOutput& output = claim.outputs[0];
  return claim.phase == Phase::kOptimizer && !output.requires_grad &&
         uses_.names.FindByImpl(output.tensor.impl) == nullptr;
}

// Nobody has read what the op was given.
uint32_t OutOfSight::OfUnreadInputs(const Frame& frame, const Claim& claim) noexcept {
  // Random numbers: of no tensor's values.
  constexpr uint32_t kReadsNothing = kOverwrites | kReadsMetadata;
  if ((frame.op->families & kReadsNothing) == kReadsNothing) {
    return MayBeOfNumber(frame, claim) ? uint32_t{ValueRecord::kUnseenInputs} : 0u;
  }
  // What it was given may have been bad already, and no longer known.
  uint32_t flags = uses_.bad_values.lost() ? uint32_t{ValueRecord::kUnseenTable} : 0u;
  // Between two updates anybody may have written what it wrote over.
  if (frame.op->in_place && uses_.level.watched() == wire::Level::kCanary) {
    flags |= ValueRecord::kUnseenLevel;
  }
  // What it wrote over is gone. Parameters and gradients were written by ops of steps before;
  // anything else may just have come in.
  const bool kept_by_training = claim.phase == Phase::kOptimizer || claim.phase == Phase::kBackward;
  if (frame.op->in_place && !kept_by_training) return flags | ValueRecord::kUnseenInputs;
  // Where a block of unchecked steps ends, gradients are not read. One that is never set to zero
  // keeps what went wrong in it.
  if (frame.op->in_place && claim.phase == Phase::kBackward && uses_.level.was_off_to_measure()) {
    flags |= ValueRecord::kUnseenMeasuring;
  }
  if (AddsToGradient(frame, claim) && !MayHaveOverflowed(claim)) {
    flags |= ValueRecord::kUnseenInputs;
  }
  if (frame.op->in_place && WritesState(claim)) flags |= ValueRecord::kUnseenInputs;
  UnreadInputs::Seen seen;
  if (claim.is_new) seen = uses_.unread_inputs.Check(claim.outputs, claim.count);
  // Of finite tensors nothing but 0 / 0 makes a quotient that is all NaN.
  const bool zero_by_zero = Divides(frame) && seen.zeros;
  if (seen.answer != UnreadInputs::Answer::kFinite ||
      (!zero_by_zero && MayBeOfNumber(frame, claim))) {
    flags |= ValueRecord::kUnseenInputs;
  }
  return flags;
}

// What was read in part at level sampled, and then not in full before this was claimed.
uint32_t OutOfSight::OfSamples(const Frame& frame, const Claim& claim) const noexcept {
  const Doubt* doubt = claim.thread->doubt;
  if (doubt == nullptr) return 0;
  bool in_doubt = doubt->unknown || claim.sources->assumed;
  switch (claim.finding_class) {
    case FindingClass::kProduce:
    case FindingClass::kInfToNan:
      if (frame.inputs_seen || claim.inputs_known) return 0;
      break;
    case FindingClass::kScalar:
      if (frame.inputs_seen || (frame.op->families & kFills) != 0) return 0;
      break;
    case FindingClass::kPropagate:
      in_doubt = claim.traced || (claim.sources->assumed && !frame.inputs_seen);
      break;
    default:
      break;
  }
  // An older daemon knows only the second.
  constexpr uint32_t kFlags = ValueRecord::kUnseenSampled | ValueRecord::kInexact;
  return in_doubt ? kFlags : 0u;
}

// Something bad is alive, and a forked child cannot ask what its ops are given.
uint32_t OutOfSight::OfRefusal(const Frame& frame, const Claim& claim) const noexcept {
  const bool is_fill =
      claim.finding_class == FindingClass::kScalar && (frame.op->families & kFills) != 0;
  if (!uses_.tracking.refused() || frame.inputs_seen || claim.inputs_known || is_fill) return 0;
  return ValueRecord::kUnseenInputs;
}

// What an update writes over is gone when it shows that it was bad: code outside torch may have
// written it since the update before. Not a GPU's, which such code rarely does; at canary that is
// said already.
uint32_t OutOfSight::OfUpdated(const Frame& frame, const Claim& claim) const noexcept {
  const bool is_update = claim.phase == Phase::kOptimizer && frame.op->in_place &&
                         claim.outputs[0].tensor.gpu < 0 && !claim.traced &&
                         uses_.level.watched() != wire::Level::kCanary;
  return is_update && !claim.thread->optimizer_parameters_read
             ? uint32_t{ValueRecord::kUnseenInputs}
             : 0u;
}

// What it read was known to nobody: memory that others may have written, or that an op has left
// which nobody checks, would be read in the same way.
bool OutOfSight::MayHaveBeenMadeHere(const Frame& frame, const Claim& claim) noexcept {
  const BadOutput& output = claim.outputs[0];
  if (frame.inputs_seen || claim.inputs_known || claim.sources->count != 0 || output.came_in ||
      output.tensor.gpu >= 0 || (frame.op->families & kEnters) != 0) {
    return false;
  }
  const auto came_in = [](void* context, const PlainTensor& tensor) {
    auto& bad_values = *static_cast<BadValues*>(context);
    BadEntry known;
    if (bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &known)) {
      return known.IsExternal() && !known.writer_unseen;
    }
    return CameWithValues(*tensor.storage);
  };
  const UnreadInputs::Given given{claim.outputs, claim.count, claim.output_kinds};
  return !claim.is_new || !uses_.unread_inputs.CameIn(given, came_in, &uses_.bad_values);
}

// Of the op's own inputs.
uint32_t OutOfSight::OfInputs(const Frame& frame, const Claim& claim) noexcept {
  switch (claim.finding_class) {
    case FindingClass::kProduce:
    case FindingClass::kInfToNan:
      if (!frame.inputs_seen) return OfUnreadInputs(frame, claim) | OfUpdated(frame, claim);
      return (frame.inputs_unread ? uint32_t{ValueRecord::kUnseenInputs} : 0u) |
             (CameIn(*claim.sources) ? BeforeItCameIn(claim) : 0u) | OfUpdated(frame, claim);
    case FindingClass::kScalar:
      // A fill is of a number, whatever was there before; a mask of -Inf says so itself.
      if (frame.inputs_seen || (frame.op->families & kFills) != 0 ||
          claim.output_kinds == wire::kHasNegInf) {
        return 0;
      }
      return OfUnreadInputs(frame, claim);
    case FindingClass::kExternal:
      return BeforeItCameIn(claim) | (IsAssumedDecay(frame, claim) || IsAllOfBuffer(claim) ||
                                              (!frame.inputs_seen && MayBeOfNumber(frame, claim)) ||
                                              MayHaveBeenMadeHere(frame, claim)
                                          ? uint32_t{ValueRecord::kUnseenInputs}
                                          : 0u);
    default:
      return CameIn(*claim.sources) ? BeforeItCameIn(claim) : 0;
  }
}

uint32_t OutOfSight::FlagsOf(const Frame& frame, const Claim& claim) noexcept {
  // An op that nobody saw may have been the first, whatever this one was given.
  const uint32_t unchecked =
      RanUncheckedJustNow(claim) | OfSamples(frame, claim) | OfRefusal(frame, claim);
  if (!claim.traced) return unchecked | OfInputs(frame, claim);
  const bool made = claim.finding_class == FindingClass::kProduce && !frame.inputs_seen;
  return unchecked |
         (made && MayBeOfNumber(frame, claim) ? uint32_t{ValueRecord::kUnseenInputs} : 0u);
}

}  // namespace nanwatch
