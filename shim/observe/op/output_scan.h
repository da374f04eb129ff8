// SPDX-License-Identifier: Apache-2.0
// What an op has left is looked at, tensor by tensor: counted, noted for later where it lies on a
// GPU or where level layer reads at cuts, and kept where it is bad. Stands in a header because
// every op that is not of the commonest kind comes through here, and most of those are clean.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "shim/check/scan.h"
#include "shim/observe/figures/trail.h"
#include "shim/observe/observer.h"
#include "shim/observe/thread/checked_results.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

struct OutputScan {
  ThreadState* thread;
  Frame* frame;
  Frame* parent;
  BadOutput* bad;
  int bad_count = 0;
  bool more_bad = false;  // than there is room for
  uint8_t index = 0;
  uint16_t place_in_list = InputSeen::kNoList;
  uint32_t on_gpu = 0;  // noted behind the frame's inputs
  bool late = false;    // the only one, noted there too
  bool notes = false;   // level layer: large outputs are noted, not looked at
  bool noted = false;   // the first clean output stands for the op in the trail
};

// It cannot be looked at; why is counted.
__attribute__((cold)) void CountUnreadable(ThreadState* thread, wire::Unchecked reason);
// On its way to the CPU. What is known of its source is known of it.
__attribute__((cold)) void RecordLate(OutputScan& scan, const at::TensorBase& tensor,
                                      const PlainTensor& plain);
// Where inputs go unseen (GPUs are not checked): the result of a copy that lies in memory which is
// not that of ordinary tensors, but pinned as all that a GPU writes to behind the program's back.
__attribute__((cold)) bool MayHaveComeLate(const OutputScan& scan, const PlainTensor& plain);
// A GPU is asked about it once all that the op returned is together.
void RecordGpuOutput(OutputScan& scan, const at::TensorBase& tensor, PlainTensor& plain);
// A small bad result that a cut will meet.
__attribute__((cold)) bool IsNotedMask(OutputScan& scan, const at::TensorBase& tensor,
                                       const PlainTensor& plain);

// What the op wrote on a GPU, or compared there, is told of later; true if there is such. Arguments
// that ops called from here have written were noted with those. The event queue is on.
bool RecordOnGpu(Observer& observer, OutputScan& scan);
// Arguments that an op writes and does not return: list ops and fused optimizers.
void CheckWrittenArguments(OutputScan& scan);
// A list op (the norms of all gradients) may return hundreds: those that no record names are known
// by the first.
void RememberTheRest(Observer& observer, const BadOutput& first,
                     const std::vector<c10::IValue>& outputs);

inline bool IsRecorded(OutputScan& scan, const at::TensorBase& tensor, const PlainTensor& plain) {
  Observer& observer = *Observer::Get();
  return BytesOf(plain.view) > Cuts::kLookedAtAtOnceBytes &&
         observer.cuts.Record(observer, scan.thread, *scan.frame, tensor, plain, scan.index);
}

inline void CheckOutput(OutputScan& scan, const at::TensorBase& tensor) {
  PlainTensor plain;
  wire::Unchecked reason;
  const Readable readable = DescribeTensor(tensor, &plain, &reason);
  if (__builtin_expect(readable == Readable::kYes && plain.gpu >= 0, 0)) {
    return RecordGpuOutput(scan, tensor, plain);
  }
  if (__builtin_expect(readable != Readable::kYes, 0)) {
    if (readable == Readable::kNo) CountUnreadable(scan.thread, reason);
    return;
  }
  const OpTraits& op = *scan.frame->op;
  if (op.transparent && WasCheckedByChild(*scan.frame, plain.impl)) {
    RecordChecked(scan.parent, plain.impl);
    return;
  }
  const TensorView whole = plain.view;
  if (__builtin_expect((op.families & (kFills | kMayNotWait)) != 0, 0)) {
    if (scan.frame->may_be_late) return RecordLate(scan, tensor, plain);
    if ((op.families & kFills) != 0) {
      plain.view.numel = 1;
      plain.view.ndim = 0;
    }
  }
  if (scan.notes && IsRecorded(scan, tensor, plain)) return RecordChecked(scan.parent, plain.impl);
  ThreadCounters& counters = scan.thread->counters;
  ++counters.tensors_checked;
  counters.bytes_checked += BytesOf(plain.view);
  const bool dense = plain.IsDense();
  const Magnitude seen =
      dense ? Look(plain.view.type, plain.view.data, static_cast<size_t>(plain.view.numel))
            : Look(plain.view);
  const bool bad = seen.IsNonFinite();
  RecordChecked(scan.parent, plain.impl);
  if (__builtin_expect(bad && (op.families & kMayNotWait) != 0, 0) &&
      MayHaveComeLate(scan, plain)) {
    return;
  }
  if (!bad && !scan.noted) {
    scan.noted = true;
    // Of several the first: losses bring their weights with them.
    if (__builtin_expect(plain.view.numel == 1 && scan.index == 0, 0)) {
      scan.thread->last_scalar.Remember(scan.frame->sequence, plain.view.type, plain.view.data,
                                        BytesOf(plain.view));
    }
    Observer& observer = *Observer::Get();
    RecordTrail(scan.thread, &op, plain.view.type, seen, observer.steps.iteration(),
                observer.headroom);
  }
  if (__builtin_expect(bad && scan.notes, 0) && IsNotedMask(scan, tensor, plain)) return;
  if (__builtin_expect(bad, 0) && scan.bad_count == kBadOutputsMax) {
    scan.more_bad = true;
  } else if (__builtin_expect(bad, 0)) {
    plain.view = whole;
    scan.bad[scan.bad_count++] = BadOutput{plain, scan.index, tensor.requires_grad()};
  }
}

inline void CheckOutputs(OutputScan& scan, const std::vector<c10::IValue>& outputs) {
  const OpTraits& op = *scan.frame->op;
  // The results of a boxed call are the last entries of what may be a deeper stack.
  size_t i = outputs.size() > op.returns ? outputs.size() - op.returns : 0;
  const size_t end =
      (op.families & kFirstOutputOnly) != 0 && outputs.size() > i ? i + 1 : outputs.size();
  for (; i < end; ++i, ++scan.index) {
    const c10::IValue& value = outputs[i];
    if (value.isTensor()) {
      CheckOutput(scan, value.toTensor());
    } else if (value.isList()) {
      scan.place_in_list = 0;
      for (const c10::IValue& item : value.toListRef()) {
        if (!item.isTensor()) break;
        CheckOutput(scan, item.toTensor());
        ++scan.place_in_list;
      }
      scan.place_in_list = InputSeen::kNoList;
    }
  }
}

}  // namespace nanwatch
