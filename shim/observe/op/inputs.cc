// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/inputs.h"

#include <cmath>

#include "shim/check/scan.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/grad_fn.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/unseen/shared_files.h"

namespace nanwatch {
namespace {

constexpr uint32_t kRewritableInputsMax = 8;

// maximum(a, b, out=a), x.mul_(x): what is read lies where the op will write, so it is looked at
// now.
void FindRewritten(ThreadState* thread, Frame& frame) {
  InputSeen* inputs = &thread->inputs[frame.inputs_begin];
  for (uint32_t w = 0; w < frame.inputs_count; ++w) {
    if (!inputs[w].updated && !inputs[w].overwritten) continue;
    for (uint32_t r = 0; r < frame.inputs_count; ++r) {
      InputSeen& read = inputs[r];
      if (read.updated || read.overwritten || read.rewritten || !Overlap(inputs[w], read)) continue;
      read.rewritten = true;
      if (!read.known && read.gpu < 0) read.kinds = NonFiniteKinds(read.View());
      frame.input_bad |= read.kinds != 0;
    }
  }
}

// The number of x[mask] = -inf: torch makes a tensor of it (lift_fresh), which Python never holds.
bool IsNumberToPut(const OpTraits& op, const at::TensorBase& tensor, const PlainTensor& plain,
                   uint16_t argument) {
  constexpr uint16_t kValueToPut = 2;
  return (op.families & kPutsValue) != 0 && argument == kValueToPut && plain.view.ndim == 0 &&
         plain.gpu < 0 && PythonObjectIn(tensor.unsafeGetTensorImpl()->pyobj_slot()) == nullptr;
}

bool IsBadNumber(const c10::IValue& number) {
  if (number.isDouble()) return !std::isfinite(number.toDouble());
  if (!number.isComplexDouble()) return false;
  const c10::complex<double> both = number.toComplexDouble();
  return !std::isfinite(both.real()) || !std::isfinite(both.imag());
}

}  // namespace

// Of a list argument (a foreach op's parameters), as many tensors are kept as there is room for.
struct InputRecorder::Call {
  ThreadState* thread;
  Frame& frame;
};

void InputRecorder::RecordTensor(Call& call, const at::TensorBase& tensor, uint16_t argument,
                                 uint16_t place_in_list) {
  ThreadState* thread = call.thread;
  if (thread->inputs_used >= ThreadState::kInputsMax) {
    call.frame.inputs_seen = false;
    return;
  }
  PlainTensor plain;
  wire::Unchecked reason;
  const Readable readable = DescribeTensor(tensor, &plain, &reason);
  if (readable == Readable::kNothing) return;
  if (readable == Readable::kNo || plain.view.ndim > wire::kShapeDimsMax ||
      (plain.gpu >= 0 && !gpu_.On())) {
    call.frame.inputs_unread = true;
    return;
  }
  // A number of Python's, which the op takes as a tensor.
  if (plain.gpu < 0 && tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    call.frame.scalar_bad |= NonFiniteKinds(plain.view) != 0;
    return;
  }
  const OpTraits& op = *call.frame.op;
  if (IsNumberToPut(op, tensor, plain, argument)) {
    call.frame.scalar_bad |= NonFiniteKinds(plain.view) != 0;
    return;
  }
  const uint64_t bit = argument < 64 ? uint64_t{1} << argument : 0;
  // full_like(x, 0) asks x for its shape.
  if (argument == 0 && (op.families & kReadsMetadata) != 0 &&
      ((op.updates | op.overwrites) & bit) == 0) {
    return;
  }
  InputSeen& input = thread->inputs[thread->inputs_used];
  input.updated = (op.updates & bit) != 0;
  input.overwritten = (op.overwrites & bit) != 0;
  input.rewritten = (op.rewrites & bit) != 0;
  input.requires_grad = tensor.requires_grad();
  input.is_result = GradFnOf(*tensor.unsafeGetTensorImpl()) != nullptr;
  input.Copy(plain);
  input.argument = argument;
  input.place_in_list = place_in_list;
  input.kinds = 0;
  input.known = false;
  // What lies on a GPU is asked about when it has answered.
  if (!input.overwritten && plain.gpu < 0) {
    FindKnownBad(call.frame, plain, place_in_list != InputSeen::kNoList, &input);
  }
  ++thread->inputs_used;
  ++call.frame.inputs_count;
}

void InputRecorder::FindKnownBad(Frame& frame, const PlainTensor& plain, bool in_list,
                                 InputSeen* input) const {
  input->known = bad_values_.Find(plain.storage, plain.byte_begin, plain.byte_end, &input->bad);
  // What an op writes can no longer be checked when it has ended, so that its own bad values are
  // told from those it found; lists are too long for that and are left to the table. At canary that
  // knows nothing of the step before.
  const bool read_lists = level_.watched() == wire::Level::kCanary;
  if (input->known || ((input->updated || input->rewritten) && (!in_list || read_lists))) {
    input->kinds = NonFiniteKinds(plain.view);
  }
  // Of a tensor that was written in parts, each part is known by itself.
  const uint8_t of_known = input->known ? input->bad.kinds : 0;
  if (of_known != 0 && (input->kinds & ~of_known & wire::kHasNan) != 0) {
    (void)bad_values_.FindKind(plain.storage, plain.byte_begin, plain.byte_end, wire::kHasNan,
                               &input->bad);
  }
  // What stood there before is not known, then: a state may have been loaded since.
  frame.inputs_unread |= input->updated && in_list && !input->known;
  if (input->kinds == 0) input->known = false;
  frame.input_bad |= input->kinds != 0;
}

void InputRecorder::RecordArgument(Call& call, const c10::IValue& value, uint16_t argument) {
  if (value.isTensor()) return RecordTensor(call, value.toTensor(), argument);
  if (value.isScalar()) {
    call.frame.scalar_bad |= IsBadNumber(value);
    return;
  }
  if (!value.isList()) return;
  uint16_t place = 0;
  for (const c10::IValue& item : value.toListRef()) {
    if (place == InputSeen::kNoList) break;
    if (item.isScalar()) {
      call.frame.scalar_bad |= IsBadNumber(item);
    } else if (item.isTensor()) {
      RecordTensor(call, item.toTensor(), argument, place++);
    } else if (item.isList()) {  // what a collective is given for each rank
      for (const c10::IValue& inner : item.toListRef()) {
        if (!inner.isTensor() || place == InputSeen::kNoList) break;
        RecordTensor(call, inner.toTensor(), argument, place++);
      }
    } else {
      break;
    }
  }
}

void InputRecorder::Record(ThreadState* thread, Frame& frame,
                           c10::ArrayRef<const c10::IValue> arguments) noexcept try {
  Call call{thread, frame};
  frame.inputs_seen = true;
  // A boxed caller may hand over a deeper stack: the op's own arguments are its last ones.
  const size_t own = frame.op->arguments;
  const size_t first = arguments.size() > own ? arguments.size() - own : 0;
  constexpr uint32_t kCopies = kMoves | kOverwrites;
  if ((frame.op->families & (kCopies | kEnters)) == kCopies && own >= 2 &&
      arguments[first].isTensor() && arguments[first + 1].isTensor() &&
      arguments[first].toTensor().scalar_type() == at::kByte) {
    shared_files_.OnByteCopy(thread, arguments[first].toTensor(), arguments[first + 1].toTensor());
  }
  for (size_t i = first; i < arguments.size(); ++i) {
    RecordArgument(call, arguments[i], static_cast<uint16_t>(i - first));
  }
  // Not for lists: their ops give each tensor once.
  if (frame.op->in_place && frame.inputs_count <= kRewritableInputsMax) {
    FindRewritten(thread, frame);
  }
} catch (...) {
  frame.inputs_seen = false;
}

}  // namespace nanwatch
