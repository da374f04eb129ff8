// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/output_scan.h"

#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/op/batch_norm.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

// Once wrapper tensors are about (fake, functorch, distributed), the real values are those of ops
// called from the wrapped ones: for this many ops nothing is taken for a part of another op's
// computation.
constexpr uint32_t kExposedOps = 256;

// Noted behind the frame's inputs. False: there is no room.
bool RecordOutput(OutputScan& scan, const at::TensorBase& tensor, const PlainTensor& plain) {
  ThreadState* thread = scan.thread;
  const uint32_t at = thread->inputs_used + scan.on_gpu;
  if (at >= ThreadState::kInputsMax || plain.view.ndim > wire::kShapeDimsMax) return false;
  InputSeen& output = thread->inputs[at];
  output = InputSeen{};
  output.Copy(plain);
  output.argument = scan.index;
  output.place_in_list = scan.place_in_list;
  output.requires_grad = tensor.requires_grad();
  return true;
}

// What batch normalization has written beside its results.
void RecordStatistics(OutputScan& scan, const PlainTensor& plain, uint8_t index) {
  const uint32_t at = scan.thread->inputs_used + scan.on_gpu;
  if (at >= ThreadState::kInputsMax) return;
  InputSeen& written = scan.thread->inputs[at];
  written = InputSeen{};
  written.Copy(plain);
  written.argument = index;
  written.place_in_list = InputSeen::kNoList;
  written.rewritten = true;
  ++scan.on_gpu;
}

}  // namespace

void OutputChecker::CountUnreadable(ThreadState* thread, wire::Unchecked reason) {
  ++thread->counters.unchecked[static_cast<int>(reason)];
  if (reason == wire::Unchecked::kFake || reason == wire::Unchecked::kFunctorch ||
      reason == wire::Unchecked::kMeta) {
    thread->expose_hidden = kExposedOps;
  }
}

void OutputChecker::RecordLate(OutputScan& scan, const at::TensorBase& tensor,
                               const PlainTensor& plain) {
  ++scan.thread->counters.unchecked[static_cast<int>(wire::Unchecked::kAsync)];
  RecordChecked(scan.parent, plain.impl);
  scan.late = gpu_.On() && scan.on_gpu == 0 && RecordOutput(scan, tensor, plain);
}

bool OutputChecker::MayHaveComeLate(const OutputScan& scan, const PlainTensor& plain) {
  const c10::Allocator* made_by = plain.storage->allocator();
  if (scan.frame->inputs_seen || made_by == nullptr || made_by == c10::GetAllocator(c10::kCPU)) {
    return false;
  }
  ++scan.thread->counters.unchecked[static_cast<int>(wire::Unchecked::kAsync)];
  return true;
}

void OutputChecker::RecordGpuOutput(OutputScan& scan, const at::TensorBase& tensor,
                                    PlainTensor& plain) {
  ThreadState* thread = scan.thread;
  const OpTraits& op = *scan.frame->op;
  if (op.transparent && WasCheckedByChild(*scan.frame, plain.impl)) {
    return RecordChecked(scan.parent, plain.impl);
  }
  if ((op.families & kFills) != 0) plain.view.numel = 1, plain.view.ndim = 0;
  if (!gpu_.Begin() || !RecordOutput(scan, tensor, plain)) {
    return CountUnreadable(thread, wire::Unchecked::kOtherDevice);
  }
  ++scan.on_gpu;
  RecordChecked(scan.parent, plain.impl);
}

Magnitude OutputChecker::LookAtSample(OutputScan& scan, const at::TensorBase& tensor,
                                      const PlainTensor& plain) {
  const uint64_t bytes = BytesOf(plain.view);
  const auto count = static_cast<size_t>(plain.view.numel);
  const uint32_t turn = scan.thread->sample_turns.Next(bytes);
  ThreadCounters& counters = scan.thread->counters;
  ++counters.tensors_checked;
  counters.bytes_checked += BytesOfPages(bytes, turn);
  const Magnitude seen = LookAtPages(plain.view.type, plain.view.data, count, turn);
  if (seen.IsNonFinite()) return seen;
  // A composite computes nothing by itself: this was recorded where its part ended, or before.
  const OpTraits& op = *scan.frame->op;
  if (op.transparent && !op.in_place && IsOfAten(op)) return seen;
  if (sampled_.Record(scan.thread, *scan.frame, tensor, plain, scan.index)) return seen;
  counters.bytes_checked += bytes;
  return Look(plain.view.type, plain.view.data, count);
}

bool OutputChecker::EnqueueOnGpu(OutputScan& scan) {
  const Frame& frame = *scan.frame;
  const WeakStorageOps ops = TorchWeakStorageOps();
  if (__builtin_expect(scan.late, 0)) {
    BusyScope busy(scan.thread);
    const InputSeen& to = scan.thread->inputs[scan.thread->inputs_used];
    gpu_.EnqueueLateCopy(scan.thread, frame, to);
    ops.drop(to.storage.handle);
    return true;
  }
  const bool by_arguments = (frame.op->writes_unseen && frame.checked_count == 0) ||
                            (frame.op->families & (kBatchNorm | kCompares)) != 0;
  if (scan.on_gpu != 0 && (frame.op->families & kBatchNorm) != 0 && !frame.inputs_seen) {
    statistics_.ForEachOnGpu(scan.thread, [&scan](const PlainTensor& plain, uint8_t index) {
      RecordStatistics(scan, plain, index);
    });
  }
  if (scan.on_gpu == 0 && !(by_arguments && HasGpuInput(scan.thread, frame))) return false;
  BusyScope busy(scan.thread);
  gpu_.EnqueueOp(scan.thread, frame, scan.on_gpu);
  for (uint32_t i = 0; i < scan.on_gpu; ++i) {
    ops.drop(scan.thread->inputs[scan.thread->inputs_used + i].storage.handle);
  }
  return true;
}

void OutputChecker::CheckWrittenArguments(OutputScan& scan) {
  ThreadState* thread = scan.thread;
  for (uint32_t i = 0; i < scan.frame->inputs_count; ++i) {
    const InputSeen& input = thread->inputs[scan.frame->inputs_begin + i];
    if (!(input.updated || input.overwritten) || input.gpu >= 0 || !IsAlive(input)) continue;
    if (scan.frame->may_be_late) continue;  // counted by the copies that the op has called
    ++thread->counters.tensors_checked;
    thread->counters.bytes_checked += static_cast<uint64_t>(input.numel) * ElementBytes(input.type);
    if (!HasNonFinite(input.View()) || scan.bad_count >= kBadOutputsMax) continue;
    scan.bad[scan.bad_count++] =
        BadOutput{input.Plain(), static_cast<uint8_t>(input.argument), input.requires_grad};
  }
}

void OutputChecker::RememberTheRest(const BadOutput& first,
                                    const std::vector<c10::IValue>& outputs) {
  BadEntry of_first;
  const PlainTensor& named = first.tensor;
  if (!bad_values_.Find(named.storage, named.byte_begin, named.byte_end, &of_first)) return;
  const auto remember = [&](const at::TensorBase& tensor) {
    PlainTensor plain;
    wire::Unchecked reason;
    BadEntry known;
    if (ReadTensor(tensor, &plain, &reason) != Readable::kYes || !HasNonFinite(plain.view) ||
        bad_values_.Find(plain.storage, plain.byte_begin, plain.byte_end, &known)) {
      return;
    }
    BadEntry entry = of_first;
    entry.storage = HoldWeakly(plain.storage);
    entry.byte_begin = plain.byte_begin;
    entry.byte_end = plain.byte_end;
    entry.dense = plain.IsDense();
    entry.elements = 0;
    entry.name = 0;
    entry.target = wire::Target::kNone;
    bad_values_.Add(entry);
  };
  for (const c10::IValue& value : outputs) {
    if (!value.isList()) continue;
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor()) remember(item.toTensor());
    }
  }
}

}  // namespace nanwatch
