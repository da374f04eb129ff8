// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/inputs.h"

#include <cmath>

#include "shim/check/scan.h"
#include "shim/observe/torch/grad_fn.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/unseen/shared_files.h"

namespace nanwatch {
namespace {

constexpr uint32_t kRewritableInputsMax = 8;

// Of a list argument (a foreach op's parameters), as many tensors are noted as there is room for.
struct Noting {
  Observer& observer;
  ThreadState* thread;
  Frame& frame;
};

void RecordTensor(Noting& noting, const at::TensorBase& tensor, uint16_t argument,
                  uint16_t place_in_list = InputSeen::kNoList) {
  const bool in_list = place_in_list != InputSeen::kNoList;
  ThreadState* thread = noting.thread;
  if (thread->inputs_used >= ThreadState::kInputsMax) {
    noting.frame.inputs_seen = false;
    return;
  }
  PlainTensor plain;
  wire::Unchecked reason;
  const Readable readable = DescribeTensor(tensor, &plain, &reason);
  if (readable == Readable::kNothing) return;
  if (readable == Readable::kNo || plain.view.ndim > wire::kShapeDimsMax ||
      (plain.gpu >= 0 && !noting.observer.gpu_events.On())) {
    noting.frame.inputs_unread = true;
    return;
  }
  // A number of Python's, which the op takes as a tensor.
  if (plain.gpu < 0 && tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    noting.frame.scalar_bad |= NonFiniteKinds(plain.view) != 0;
    return;
  }
  const OpTraits& op = *noting.frame.op;
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
    input.known = noting.observer.bad_values.Find(plain.storage, plain.byte_begin, plain.byte_end,
                                                  &input.bad);
    // What an op writes can no longer be looked at when it has ended, so that its own bad values
    // are told from those it found; lists are too long for that and are left to the table. At
    // canary that knows nothing of the step before.
    const bool read_lists = noting.observer.level.watched() == wire::Level::kCanary;
    if (input.known || ((input.updated || input.rewritten) && (!in_list || read_lists))) {
      input.kinds = NonFiniteKinds(plain.view);
    }
    // What stood there before is not known, then: a state may have been loaded since.
    noting.frame.inputs_unread |= input.updated && in_list && !input.known;
    if (input.kinds == 0) input.known = false;
    noting.frame.input_bad |= input.kinds != 0;
  }
  ++thread->inputs_used;
  ++noting.frame.inputs_count;
}

bool Overlap(const InputSeen& a, const InputSeen& b) {
  return a.storage.storage == b.storage.storage && a.byte_begin < b.byte_end &&
         b.byte_begin < a.byte_end;
}

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

}  // namespace

void RecordInputs(Observer& observer, ThreadState* thread, Frame& frame,
                  c10::ArrayRef<const c10::IValue> arguments) noexcept try {
  Noting noting{observer, thread, frame};
  frame.inputs_seen = true;
  // A boxed caller may hand over a deeper stack: the op's own arguments are its last ones.
  const size_t own = frame.op->arguments;
  const size_t first = arguments.size() > own ? arguments.size() - own : 0;
  constexpr uint32_t kCopies = kMoves | kOverwrites;
  if ((frame.op->families & (kCopies | kEnters)) == kCopies && own >= 2 &&
      arguments[first].isTensor() && arguments[first + 1].isTensor() &&
      arguments[first].toTensor().scalar_type() == at::kByte) {
    shared_files::OnByteCopy(observer, thread, arguments[first].toTensor(),
                             arguments[first + 1].toTensor());
  }
  for (size_t i = first; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    const auto argument = static_cast<uint16_t>(i - first);
    if (value.isTensor()) {
      RecordTensor(noting, value.toTensor(), argument);
    } else if (value.isDouble()) {
      frame.scalar_bad |= !std::isfinite(value.toDouble());
    } else if (value.isList()) {
      uint16_t place = 0;
      for (const c10::IValue& item : value.toListRef()) {
        if (place == InputSeen::kNoList) break;
        if (item.isTensor()) {
          RecordTensor(noting, item.toTensor(), argument, place++);
        } else if (item.isList()) {  // what a collective is given for each rank
          for (const c10::IValue& inner : item.toListRef()) {
            if (!inner.isTensor() || place == InputSeen::kNoList) break;
            RecordTensor(noting, inner.toTensor(), argument, place++);
          }
        } else {
          break;
        }
      }
    }
  }
  // Not for lists: their ops give each tensor once.
  if (frame.op->in_place && frame.inputs_count <= kRewritableInputsMax) {
    FindRewritten(thread, frame);
  }
} catch (...) {
  frame.inputs_seen = false;
}

}  // namespace nanwatch
