// SPDX-License-Identifier: Apache-2.0
// What an op has left is looked at, tensor by tensor: counted, noted for later where it lies on a
// GPU, read in part where it is large and the level is sampled, and kept where it is bad. Stands in
// a header because every op that is not of the commonest kind comes through here, and most of those are clean.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "shim/check/page_sample.h"
#include "shim/check/scan.h"
#include "shim/observe/events/sample_limit.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/figures/trail.h"
#include "shim/observe/op/sampled_outputs.h"
#include "shim/observe/thread/checked_results.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class BadValues;
class GpuEventQueue;
class Headroom;
class RunningStatistics;

struct OutputScan {
  ThreadState* thread;
  Frame* frame;
  Frame* parent;
  BadOutput* bad;
  int bad_count = 0;
  bool more_bad = false;  // than there is room for
  uint8_t index = 0;
  uint16_t place_in_list = InputSeen::kNoList;
  uint32_t on_gpu = 0;   // noted behind the frame's inputs
  bool late = false;     // the only one, noted there too
  bool samples = false;  // level sampled: large outputs are read in part
  bool noted = false;    // the first clean output stands for the op in the trail
};

class OutputChecker {
 public:
  // All outlive it.
  OutputChecker(BadValues& bad_values, GpuEventQueue& gpu, SampledOutputs& sampled,
                const SampleLimit& sample_limit, const StepMarks& steps, Headroom& headroom,
                const RunningStatistics& statistics) noexcept
      : bad_values_(bad_values),
        gpu_(gpu),
        sampled_(sampled),
        sample_limit_(sample_limit),
        steps_(steps),
        headroom_(headroom),
        statistics_(statistics) {}

  // Checks the results of the op, where they lie on the CPU; `outputs` may be a deeper stack.
  void Check(OutputScan& scan, const std::vector<c10::IValue>& outputs);
  // What the op wrote on a GPU, or compared there, is enqueued; true if there is such. Arguments
  // that ops called from here have written were enqueued with those. The event queue is on.
  bool EnqueueOnGpu(OutputScan& scan);
  // Arguments that an op writes and does not return: list ops and fused optimizers.
  static void CheckWrittenArguments(OutputScan& scan);
  // A list op (the norms of all gradients) may return hundreds: those that no record names are known
  // by the first.
  void RememberTheRest(const BadOutput& first, const std::vector<c10::IValue>& outputs);

 private:
  void CheckOutput(OutputScan& scan, const at::TensorBase& tensor);
  // Its values, after it was seen that they may be read.
  void CheckValues(OutputScan& scan, const at::TensorBase& tensor, PlainTensor& plain);
  void RecordClean(OutputScan& scan, const TensorView& view, Magnitude seen);
  void RecordBad(OutputScan& scan, const at::TensorBase& tensor, const PlainTensor& plain);
  // It cannot be checked; why is counted.
  __attribute__((cold)) static void CountUnreadable(ThreadState* thread, wire::Unchecked reason);
  // On its way to the CPU. What is known of its source is known of it.
  __attribute__((cold)) void RecordLate(OutputScan& scan, const at::TensorBase& tensor,
                                        const PlainTensor& plain);
  // Where inputs go unseen (GPUs are not checked): the result of a copy that lies in memory which
  // is not that of ordinary tensors, but pinned as all that a GPU writes to behind the program's
  // back.
  __attribute__((cold)) static bool MayHaveComeLate(const OutputScan& scan,
                                                    const PlainTensor& plain);
  // A GPU is asked about it once all that the op returned is together.
  void RecordGpuOutput(OutputScan& scan, const at::TensorBase& tensor, PlainTensor& plain);
  // A large result of level sampled: a part of it, unless that cannot be recorded.
  __attribute__((noinline)) Magnitude LookAtSample(OutputScan& scan, const at::TensorBase& tensor,
                                                   const PlainTensor& plain);

  BadValues& bad_values_;
  GpuEventQueue& gpu_;
  SampledOutputs& sampled_;
  const SampleLimit& sample_limit_;
  const StepMarks& steps_;
  Headroom& headroom_;
  const RunningStatistics& statistics_;
};

inline void OutputChecker::CheckOutput(OutputScan& scan, const at::TensorBase& tensor) {
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
  if (scan.frame->op->transparent && WasCheckedByChild(*scan.frame, plain.impl)) {
    RecordChecked(scan.parent, plain.impl);
    return;
  }
  CheckValues(scan, tensor, plain);
}

inline void OutputChecker::CheckValues(OutputScan& scan, const at::TensorBase& tensor,
                                       PlainTensor& plain) {
  const OpTraits& op = *scan.frame->op;
  const TensorView whole = plain.view;
  if (__builtin_expect((op.families & (kFills | kMayNotWait)) != 0, 0)) {
    if (scan.frame->may_be_late) return RecordLate(scan, tensor, plain);
    if ((op.families & kFills) != 0) {
      plain.view.numel = 1;
      plain.view.ndim = 0;
    }
  }
  const uint64_t bytes = BytesOf(plain.view);
  const bool dense = plain.IsDense();
  Magnitude seen;
  if (__builtin_expect(
          scan.samples && dense && bytes > sample_limit_.bytes.load(std::memory_order_relaxed),
          0)) {
    seen = LookAtSample(scan, tensor, plain);
  } else {
    ThreadCounters& counters = scan.thread->counters;
    ++counters.tensors_checked;
    counters.bytes_checked += bytes;
    seen = dense ? Look(plain.view.type, plain.view.data, static_cast<size_t>(plain.view.numel))
                 : Look(plain.view);
  }
  const bool bad = seen.IsNonFinite();
  RecordChecked(scan.parent, plain.impl);
  if (__builtin_expect(bad && (op.families & kMayNotWait) != 0, 0) &&
      MayHaveComeLate(scan, plain)) {
    return;
  }
  if (!bad && !scan.noted) RecordClean(scan, plain.view, seen);
  if (__builtin_expect(bad, 0)) {
    plain.view = whole;
    RecordBad(scan, tensor, plain);
  }
}

inline void OutputChecker::RecordClean(OutputScan& scan, const TensorView& view, Magnitude seen) {
  scan.noted = true;
  // Of several the first: losses bring their weights with them.
  if (__builtin_expect(view.numel == 1 && scan.index == 0, 0)) {
    scan.thread->last_scalar.Remember(scan.frame->sequence, view.type, view.data, BytesOf(view));
  }
  RecordTrail(scan.thread, scan.frame->op, view.type, seen,
              steps_.iteration.load(std::memory_order_relaxed),
              [this]() -> Headroom& { return headroom_; });
}

inline void OutputChecker::RecordBad(OutputScan& scan, const at::TensorBase& tensor,
                                     const PlainTensor& plain) {
  if (scan.bad_count == kBadOutputsMax) {
    scan.more_bad = true;
  } else {
    scan.bad[scan.bad_count++] = BadOutput{plain, scan.index, tensor.requires_grad()};
  }
}

inline void OutputChecker::Check(OutputScan& scan, const std::vector<c10::IValue>& outputs) {
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
