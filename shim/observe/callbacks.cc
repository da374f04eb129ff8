#include "shim/observe/callbacks.h"

#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shim/check/scan.h"
#include "shim/host/ticks.h"
#include "shim/observe/batch_norm.h"
#include "shim/observe/collectives.h"
#include "shim/observe/compiled_regions.h"
#include "shim/observe/figures/trail.h"
#include "shim/observe/findings.h"
#include "shim/observe/inputs.h"
#include "shim/observe/observer.h"
#include "shim/observe/record_access.h"
#include "shim/observe/step/scaler.h"

namespace nanwatch::callbacks {
namespace {

// Inlined into the callback itself: the way of a clean op is one function.
#define NANWATCH_HOT inline __attribute__((always_inline))

// Once wrapper tensors are about (fake, functorch, distributed), the real values are those of ops
// called from the wrapped ones: for this many ops nothing is taken for a part of another op's
// computation.
constexpr uint32_t kExposedOps = 256;
// Programs without optimizers publish their counters now and then all the same.
constexpr uint64_t kChecksPerPublication = 1024;
constexpr uint32_t kArmedOpsPerSweep = 16;
constexpr uint32_t kSweepBudget = 32;

// Autocast is off where its key is excluded, which it is from the start and inside its own kernels
// (ATen/autocast_mode.cpp, set_autocast_enabled).
bool AutocastsNow(const OpTraits& op) {
  const c10::DispatchKeySet off = c10::impl::tls_local_dispatch_key_set().excluded_;
  return ((op.autocasts & kAutocastsOnCpu) != 0 && !off.has(c10::DispatchKey::AutocastCPU)) ||
         ((op.autocasts & kAutocastsOnCuda) != 0 && !off.has(c10::DispatchKey::AutocastCUDA));
}

// ---- begin of an op

void BeginRange(Observer& observer, ThreadState* thread, Frame& frame,
                const at::RecordFunction& range) {
  frame.kind = FrameKind::kRange;
  frame.range_name = range.name();
  if (frame.range_name[0] == 'T' && compiled_regions::IsRegion(frame.range_name)) {
    frame.is_region = true;
    if (thread->regions_open++ == 0) compiled_regions::Begin(observer, thread, frame.range_name);
    MarkCompiledRegion();
  }
}

NANWATCH_HOT void RememberSequence(ThreadState* thread, const Frame& frame) {
  SequenceEntry& entry = thread->sequences[frame.sequence & (ThreadState::kSequences - 1)];
  entry.sequence.store(frame.sequence + 1, std::memory_order_relaxed);
  entry.layer = __builtin_expect(thread->nodes_open != 0, 0) && ScopeDepth() == 0
                    ? thread->node_layer
                    : CurrentLayer();
  entry.op = frame.op;
  entry.value.ticket = 0;
}

// What the op reads on a GPU goes to the CPU, where it can be looked at and told when the op ends:
// a number, or a copy.
bool HandsToCpu(const ThreadState* thread, const Frame& frame,
                c10::ArrayRef<const c10::IValue> arguments) {
  if ((frame.op->families & kEscapes) != 0) return true;
  if ((frame.op->families & (kMoves | kEnters)) == 0 || frame.inputs_count == 0) return false;
  const InputSeen* inputs = &thread->inputs[frame.inputs_begin];
  if (frame.op->in_place) return inputs[0].gpu < 0;
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) {
    return value.isDevice() && value.toDevice().is_cpu();
  });
}

template <class Predicate>
bool AnyOf(const c10::IValue& value, Predicate predicate) {
  if (!value.isList()) return predicate(value);
  const auto list = value.toListRef();
  return std::any_of(list.begin(), list.end(), predicate);
}

bool IsOnGpu(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda();
}

bool IsOnCpu(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().defined() && value.toTensor().is_cpu()
                          : value.isDevice() && value.toDevice().is_cpu();
}

// A copy begins, with or without waiting. Where it goes from a GPU to the CPU, what is known of the
// source is there once the program has waited; and where nobody waits, what it leaves on the CPU
// may not have arrived when it ends, and is not to be read then.
__attribute__((noinline)) void BeginCopy(Observer& observer, ThreadState* thread, Frame& frame,
                                         c10::ArrayRef<const c10::IValue> arguments) {
  const OpTraits& op = *frame.op;
  if (arguments.size() < op.arguments) return;
  const auto own = arguments.slice(arguments.size() - op.arguments);
  const auto written = op.in_place ? own.slice(0, 1) : own;
  const auto any = [](c10::ArrayRef<const c10::IValue> of, bool (*is)(const c10::IValue&)) {
    return std::any_of(of.begin(), of.end(),
                       [is](const c10::IValue& value) { return AnyOf(value, is); });
  };
  if (!any(written, &IsOnCpu) || !any(own, &IsOnGpu)) return;
  frame.may_be_late = own[op.non_blocking].isBool() && own[op.non_blocking].toBool();
  if (observer.timeline.On()) observer.timeline.AskStream(thread);
}

void BeginOp(Observer& observer, ThreadState* thread, const at::RecordFunction& range) {
  const uint32_t at = thread->depth++;
  ++thread->counters.ops_seen;
  if (__builtin_expect(at >= ThreadState::kFramesMax, 0)) {
    ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kTooDeep)];
    return;
  }
  Frame& frame = thread->frames[at];
  const c10::FunctionSchema* schema = SchemaOf(range);
  frame.checked_count = 0;
  frame.inputs_count = 0;
  frame.cleared_flags = 0;
  frame.hidden = at != 0 && thread->frames[at - 1].hides;
  frame.sequence = range.seqNr();
  frame.first_event = observer.timeline.next_event();
  if (__builtin_expect(schema == nullptr, 0)) {
    frame.op = observer.ops.Range();
    frame.hides = frame.hidden = false;
    BeginRange(observer, thread, frame, range);
    if (frame.sequence >= 0) RememberSequence(thread, frame);
    return;
  }
  const OpTraits* op = observer.ops.Find(schema);
  frame.op = op;
  frame.kind = FrameKind::kOp;
  if (__builtin_expect(thread->expose_hidden != 0, 0)) {
    --thread->expose_hidden;
    frame.hidden = false;
  }
  frame.hides = frame.hidden || !op->transparent;
  if (__builtin_expect(op->autocasts != 0, 0) && frame.hides && !frame.hidden &&
      AutocastsNow(*op)) {
    frame.hides = false;
  }
  if (frame.hidden) return;
  if (__builtin_expect(observer.op_kernels.On(), 0)) observer.op_kernels.Begin(thread, &frame);
  if (frame.sequence >= 0) RememberSequence(thread, frame);
  const c10::ArrayRef<const c10::IValue> arguments = range.inputs();
  if (__builtin_expect(!arguments.empty(), 0)) {
    frame.inputs_begin = thread->inputs_used;
    if (observer.arming.armed()) NoteInputs(observer, thread, frame, arguments);
    if (op->in_place && observer.timeline.AnyReceivedUnlooked()) {
      observer.timeline.LookAtReceived(observer, thread, frame);
    }
    if (__builtin_expect((op->families & kCommunicates) != 0, 0) && observer.timeline.On()) {
      observer.timeline.LookAtGiven(observer, thread, frame);
    }
    if (observer.timeline.AnyWaitForCut() && HandsToCpu(thread, frame, arguments)) {
      observer.timeline.CutAtEscape(observer, thread, frame);
    }
    if ((op->families & kMayNotWait) != 0) BeginCopy(observer, thread, frame, arguments);
  }
  if ((op->families & kEscapes) != 0 && observer.timeline.On()) observer.timeline.AskStream(thread);
}

// ---- end of an op

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

inline void NoteChecked(Frame* parent, const c10::TensorImpl* impl) {
  if (parent == nullptr || !parent->op->transparent) return;
  parent->checked[parent->checked_count & 3] = impl;
  // Saturates at a count that is as good as any for "all four are used".
  if (++parent->checked_count == 252) parent->checked_count = 4;
}

inline bool WasCheckedByChild(const Frame& frame, const c10::TensorImpl* impl) {
  const int kept = frame.checked_count < 4 ? frame.checked_count : 4;
  for (int i = 0; i < kept; ++i) {
    if (frame.checked[i] == impl) return true;
  }
  return false;
}

__attribute__((noinline, cold)) void CountUnreadable(ThreadState* thread, wire::Unchecked reason) {
  ++thread->counters.unchecked[static_cast<int>(reason)];
  if (reason == wire::Unchecked::kFake || reason == wire::Unchecked::kFunctorch ||
      reason == wire::Unchecked::kMeta) {
    thread->expose_hidden = kExposedOps;
  }
}

// Noted behind the frame's inputs. False: there is no room.
bool NoteOutput(OutputScan& scan, const at::TensorBase& tensor, const PlainTensor& plain) {
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

// On its way to the CPU. What is known of its source is known of it.
__attribute__((noinline, cold)) void NoteLate(OutputScan& scan, const at::TensorBase& tensor,
                                              const PlainTensor& plain) {
  ++scan.thread->counters.unchecked[static_cast<int>(wire::Unchecked::kAsync)];
  NoteChecked(scan.parent, plain.impl);
  const Observer& observer = *Observer::Get();
  scan.late = observer.timeline.On() && scan.on_gpu == 0 && NoteOutput(scan, tensor, plain);
}

// Where inputs go unseen (GPUs are not checked): the result of a copy that lies in memory which is
// not that of ordinary tensors, but pinned as all that a GPU writes to behind the program's back.
__attribute__((noinline, cold)) bool MayHaveComeLate(const OutputScan& scan,
                                                     const PlainTensor& plain) {
  const c10::Allocator* made_by = plain.storage->allocator();
  if (scan.frame->inputs_seen || made_by == nullptr || made_by == c10::GetAllocator(c10::kCPU)) {
    return false;
  }
  ++scan.thread->counters.unchecked[static_cast<int>(wire::Unchecked::kAsync)];
  return true;
}

// A GPU is asked about it once all that the op returned is together.
__attribute__((noinline)) void NoteGpuOutput(OutputScan& scan, const at::TensorBase& tensor,
                                             PlainTensor& plain) {
  ThreadState* thread = scan.thread;
  const OpTraits& op = *scan.frame->op;
  if (op.transparent && WasCheckedByChild(*scan.frame, plain.impl)) {
    return NoteChecked(scan.parent, plain.impl);
  }
  if ((op.families & kFills) != 0) plain.view.numel = 1, plain.view.ndim = 0;
  if (!Observer::Get()->timeline.Begin(*Observer::Get()) || !NoteOutput(scan, tensor, plain)) {
    return CountUnreadable(thread, wire::Unchecked::kOtherDevice);
  }
  ++scan.on_gpu;
  NoteChecked(scan.parent, plain.impl);
}

bool IsNoted(OutputScan& scan, const at::TensorBase& tensor, const PlainTensor& plain) {
  Observer& observer = *Observer::Get();
  return BytesOf(plain.view) > Cuts::kLookedAtAtOnceBytes &&
         observer.cuts.Note(observer, scan.thread, *scan.frame, tensor, plain, scan.index);
}

__attribute__((noinline, cold)) bool IsNotedMask(OutputScan& scan, const at::TensorBase& tensor,
                                                 const PlainTensor& plain) {
  Observer& observer = *Observer::Get();
  return observer.cuts.IsMask(*scan.frame->op, NonFiniteKinds(plain.view), CurrentLayer()) &&
         observer.cuts.Note(observer, scan.thread, *scan.frame, tensor, plain, scan.index);
}

// A result of one element may turn out to be a loss.
void RememberScalar(ThreadState* thread, const Frame& frame, wire::ElementType type,
                    const void* data, size_t bytes) {
  thread->last_scalar.sequence_plus_one = frame.sequence + 1;
  thread->last_scalar.type = type;
  std::memcpy(&thread->last_scalar.bits, data, std::min<size_t>(bytes, 8));
}

inline void CheckOutput(OutputScan& scan, const at::TensorBase& tensor) {
  PlainTensor plain;
  wire::Unchecked reason;
  const Readable readable = DescribeTensor(tensor, &plain, &reason);
  if (__builtin_expect(readable == Readable::kYes && plain.gpu >= 0, 0)) {
    return NoteGpuOutput(scan, tensor, plain);
  }
  if (__builtin_expect(readable != Readable::kYes, 0)) {
    if (readable == Readable::kNo) CountUnreadable(scan.thread, reason);
    return;
  }
  const OpTraits& op = *scan.frame->op;
  if (op.transparent && WasCheckedByChild(*scan.frame, plain.impl)) {
    NoteChecked(scan.parent, plain.impl);
    return;
  }
  const TensorView whole = plain.view;
  if (__builtin_expect((op.families & (kFills | kMayNotWait)) != 0, 0)) {
    if (scan.frame->may_be_late) return NoteLate(scan, tensor, plain);
    if ((op.families & kFills) != 0) {
      plain.view.numel = 1;
      plain.view.ndim = 0;
    }
  }
  if (scan.notes && IsNoted(scan, tensor, plain)) return NoteChecked(scan.parent, plain.impl);
  ThreadCounters& counters = scan.thread->counters;
  ++counters.tensors_checked;
  counters.bytes_checked += BytesOf(plain.view);
  const bool dense = plain.IsDense();
  const Magnitude seen =
      dense ? Look(plain.view.type, plain.view.data, static_cast<size_t>(plain.view.numel))
            : Look(plain.view);
  const bool bad = seen.IsNonFinite();
  NoteChecked(scan.parent, plain.impl);
  if (__builtin_expect(bad && (op.families & kMayNotWait) != 0, 0) &&
      MayHaveComeLate(scan, plain)) {
    return;
  }
  if (!bad && !scan.noted) {
    scan.noted = true;
    // Of several the first: losses bring their weights with them.
    if (__builtin_expect(plain.view.numel == 1 && scan.index == 0, 0)) {
      RememberScalar(scan.thread, *scan.frame, plain.view.type, plain.view.data,
                     BytesOf(plain.view));
    }
    NoteTrail(scan.thread, &op, plain.view.type, seen, Observer::Get()->steps.iteration());
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

// Arguments that an op writes and does not return: list ops and fused optimizers.
void CheckWrittenArguments(OutputScan& scan) {
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

void EndSkippedArmed(Observer& observer, ThreadState* thread, Frame& frame,
                     const std::vector<c10::IValue>& outputs) {
  if (!observer.arming.armed() || outputs.empty() || !outputs.back().isTensor()) return;
  PlainTensor plain;
  wire::Unchecked reason;
  if (DescribeTensor(outputs.back().toTensor(), &plain, &reason) != Readable::kYes) return;
  const bool creates = (frame.op->families & kCreates) != 0;
  if (!creates && !(frame.sequence >= 0 && frame.op->is_view)) return;
  if (plain.gpu < 0) return OnSkippedOutput(observer, thread, frame, plain);
  if (observer.timeline.On()) observer.timeline.NoteView(observer, thread, frame, plain);
}

bool HasGpuInput(const ThreadState* thread, const Frame& frame) {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    if (thread->inputs[frame.inputs_begin + i].gpu >= 0) return true;
  }
  return false;
}

// What the op wrote on a GPU, or compared there, is told of later; true if there is such. Arguments
// that ops called from here have written were noted with those.
bool NoteOnGpu(Observer& observer, OutputScan& scan) {
  if (!observer.timeline.On()) return false;
  const Frame& frame = *scan.frame;
  const WeakStorageOps ops = TorchWeakStorageOps();
  if (__builtin_expect(scan.late, 0)) {
    BusyScope busy(scan.thread);
    const InputSeen& to = scan.thread->inputs[scan.thread->inputs_used];
    observer.timeline.NoteLateCopy(observer, scan.thread, frame, to);
    ops.drop(to.storage.handle);
    return true;
  }
  const bool by_arguments = (frame.op->writes_unseen && frame.checked_count == 0) ||
                            (frame.op->families & (kBatchNorm | kCompares)) != 0;
  if (scan.on_gpu == 0 && !(by_arguments && HasGpuInput(scan.thread, frame))) return false;
  BusyScope busy(scan.thread);
  observer.timeline.NoteOp(observer, scan.thread, frame, scan.on_gpu);
  for (uint32_t i = 0; i < scan.on_gpu; ++i) {
    ops.drop(scan.thread->inputs[scan.thread->inputs_used + i].storage.handle);
  }
  return true;
}

// A list op (the norms of all gradients) may return hundreds: those that no record names are known
// by the first.
void RememberTheRest(Observer& observer, const BadOutput& first,
                     const std::vector<c10::IValue>& outputs) {
  BadEntry of_first;
  const PlainTensor& named = first.tensor;
  if (!observer.bad_values.Find(named.storage, named.byte_begin, named.byte_end, &of_first)) return;
  const auto remember = [&](const at::TensorBase& tensor) {
    PlainTensor plain;
    wire::Unchecked reason;
    BadEntry known;
    if (ReadTensor(tensor, &plain, &reason) != Readable::kYes || !HasNonFinite(plain.view) ||
        observer.bad_values.Find(plain.storage, plain.byte_begin, plain.byte_end, &known)) {
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
    observer.bad_values.Add(entry);
  };
  for (const c10::IValue& value : outputs) {
    if (!value.isList()) continue;
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor()) remember(item.toTensor());
    }
  }
}

__attribute__((noinline, cold)) void EndWatched(Observer& observer, ThreadState* thread,
                                                OutputScan& scan,
                                                const std::vector<c10::IValue>& outputs,
                                                bool on_gpu) {
  // An op that throws ends without outputs: nothing is known of what it wrote.
  const bool threw = outputs.empty() && scan.frame->op->returns != 0;
  BusyScope busy(thread);
  if (scan.bad_count != 0) {
    if (observer.timeline.On()) observer.timeline.SettleInputs(observer, thread, *scan.frame);
    observer.cuts.OnBadOutputs(observer, thread, *scan.frame, scan.bad, scan.bad_count);
    if (scan.more_bad) RememberTheRest(observer, scan.bad[0], outputs);
    if (scan.parent != nullptr) scan.parent->child_bad = true;
  } else if (scan.frame->inputs_seen && !threw && !on_gpu) {
    OnCleanOutputs(observer, thread, *scan.frame);
  }
  DropInputs(thread, *scan.frame);
  if (++thread->armed_ops % kArmedOpsPerSweep == 0) {
    observer.bad_values.Sweep(kSweepBudget);
    if (observer.bad_values.transient() == 0) observer.arming.Disarm();
  }
}

// What only some ops need, after their outputs were looked at.
__attribute__((noinline, cold)) void EndSpecial(Observer& observer, ThreadState* thread,
                                                Frame& frame, const at::RecordFunction& range) {
  const uint32_t families = frame.op->families;
  if ((families & kEscapes) != 0) {
    const auto& outputs = range.outputs();
    if (!outputs.empty() && outputs.back().isDouble() &&
        !std::isfinite(outputs.back().toDouble())) {
      BusyScope busy(thread);
      const double number = outputs.back().toDouble();
      if (HasGpuInput(thread, frame)) {
        observer.timeline.NoteEscape(observer, thread, frame, number);
      } else {
        OnEscape(observer, thread, frame, number);
      }
    }
    // The host has waited for the GPU: all that came before is answered.
    observer.timeline.Settle(observer);
  }
  if ((families & kBatchNorm) != 0) CheckRunningStatistics(observer, thread, frame);
  if ((families & kHandsOut) != 0)
    observer.deliveries.OnHandedOut(observer, thread, frame.op->name, range.outputs());
  if ((families & (kUnscales | kUpdatesScale)) != 0 && !HasGpuInput(thread, frame)) {
    OnScalerOp(observer, thread, frame, range);
  }
}

__attribute__((noinline, cold)) void MaybePlainUpdate(Observer& observer, ThreadState* thread,
                                                      const at::RecordFunction& range) {
  const auto& outputs = range.outputs();
  if (outputs.empty() || !outputs.back().isTensor()) return;
  const at::TensorBase& tensor = outputs.back().toTensor();
  if (!tensor.defined()) return;
  const PythonNames& names = observer.python->names();
  // A forward pass writes buffers and activations in place, too, between two passes that
  // accumulate.
  bool is_parameter = tensor.requires_grad() && tensor.is_leaf();
  if (!tensor.requires_grad()) {
    const NamedTensor* named = names.FindByImpl(tensor.unsafeGetTensorImpl());
    if (named == nullptr && tensor.has_storage()) {
      named = names.FindByStorage(
          tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    }
    is_parameter = named != nullptr && named->kind == NamedTensorKind::kParameter;
  }
  if (!is_parameter) return;
  BusyScope busy(thread);
  observer.steps.OnPlainUpdate(observer, thread);
}

// The op's outputs are to be looked at.
__attribute__((noinline)) void EndChecked(Observer& observer, ThreadState* thread, Frame& frame,
                                          Frame* parent, const at::RecordFunction& range) {
  OutputScan scan;
  scan.thread = thread;
  scan.frame = &frame;
  scan.parent = parent;
  scan.bad = thread->bad_outputs;
  scan.notes = Cuts::Notes(observer, thread, *frame.op);
  CheckOutputs(scan, range.outputs());
  const bool on_gpu = NoteOnGpu(observer, scan);
  const OpTraits& op = *frame.op;
  if (__builtin_expect((op.families & kNeedsEnd) != 0, 0)) {
    EndSpecial(observer, thread, frame, range);
  }
  if (__builtin_expect(scan.bad_count != 0 || frame.inputs_seen || frame.inputs_count != 0, 0)) {
    EndWatched(observer, thread, scan, range.outputs(), on_gpu);
  }
  if (__builtin_expect(op.in_place && observer.plain_update_due.load(std::memory_order_relaxed) &&
                           thread->optimizer_depth == 0 && thread->nodes_open == 0,
                       0)) {
    MaybePlainUpdate(observer, thread, range);
  }
}

// An op whose outputs need no look, in the rare case that there is something else to do: it writes
// arguments that it does not return, is one of GradScaler's, or inputs are being noted.
__attribute__((noinline, cold)) void EndSkippedSpecial(Observer& observer, ThreadState* thread,
                                                       Frame& frame, Frame* parent,
                                                       const at::RecordFunction& range) {
  OutputScan scan;
  scan.thread = thread;
  scan.frame = &frame;
  scan.parent = parent;
  scan.bad = thread->bad_outputs;
  if (frame.is_region && --thread->regions_open == 0) compiled_regions::End(observer, thread);
  if (frame.kind == FrameKind::kOp) EndSkippedArmed(observer, thread, frame, range.outputs());
  const bool on_gpu = NoteOnGpu(observer, scan);
  if (frame.op->writes_unseen) {
    if (frame.inputs_seen) {
      CheckWrittenArguments(scan);
    } else if (frame.checked_count == 0 && !frame.child_bad) {
      ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kWrittenUnseen)];
      if (thread->optimizer_depth != 0) observer.steps.OnFusedSeen();
    }
  }
  if ((frame.op->families & kNeedsEnd) != 0) EndSpecial(observer, thread, frame, range);
  if (scan.bad_count != 0 || frame.inputs_seen || frame.inputs_count != 0) {
    EndWatched(observer, thread, scan, range.outputs(), on_gpu);
  }
}

void EndOp(Observer& observer, ThreadState* thread, const at::RecordFunction& range) {
  if (__builtin_expect(thread->depth == 0, 0)) return;  // began before we were registered
  const uint32_t at = --thread->depth;
  if (__builtin_expect(at >= ThreadState::kFramesMax, 0)) return;
  Frame& frame = thread->frames[at];
  if (frame.hidden) return;
  if (__builtin_expect(frame.kernels_pushed, 0)) observer.op_kernels.End();
  const OpTraits& op = *frame.op;
  Frame* parent = at != 0 ? &thread->frames[at - 1] : nullptr;
  if (!op.skip) {
    EndChecked(observer, thread, frame, parent, range);
    return;
  }
  // A view or an allocation passes for looked at, so that a composite that returns it is not looked
  // at again.
  if (parent != nullptr && parent->op->transparent && frame.kind == FrameKind::kOp) {
    const auto& outputs = range.outputs();
    if (!outputs.empty() && outputs.back().isTensor()) {
      NoteChecked(parent, outputs.back().toTensor().unsafeGetTensorImpl());
    }
  }
  if (__builtin_expect(op.writes_unseen || (op.families & kNeedsEnd) != 0 ||
                           frame.cleared_flags != 0 || observer.arming.armed(),
                       0)) {
    EndSkippedSpecial(observer, thread, frame, parent, range);
  }
}

// ---- autograd nodes

void BeginNode(Observer& observer, ThreadState* thread, const at::RecordFunction& node) {
  const uint32_t at = thread->depth++;
  const SequenceEntry* made_by = ThreadStates::FindSequence(node.forwardThreadId(), node.seqNr());
  thread->node_layer = made_by != nullptr ? made_by->layer : nullptr;
  thread->node_name = node.name();
  const bool outermost = thread->nodes_open++ == 0;
  const int task = torch::autograd::get_current_graph_task_id();
  const bool begins_pass = outermost && task != thread->graph_task;
  if (begins_pass) {
    observer.cuts.OnPass(observer, thread, made_by);
    thread->graph_task = task;
    thread->region.is_backward = false;
    BusyScope busy(thread);
    thread->pass = observer.passes.OnBegin(observer, thread, task, made_by);
  }
  if (at >= ThreadState::kFramesMax) return;
  Frame& frame = thread->frames[at];
  frame.op = observer.ops.Range();
  frame.kind = FrameKind::kNode;
  frame.layer = thread->node_layer;
  frame.range_name = thread->node_name;
  frame.scope_depth = ScopeDepth();
  frame.sequence = -1;
  frame.checked_count = 0;
  frame.inputs_count = 0;
  frame.hides = frame.hidden = false;
  frame.cleared_flags = 0;
  if (__builtin_expect(thread->region.is_backward, 0)) {
    BusyScope busy(thread);
    compiled_regions::LookAtGradients(observer, thread, node);
  }
  if (__builtin_expect(compiled_regions::IsBackwardNode(thread->node_name), 0)) {
    frame.is_region = true;
    BusyScope busy(thread);
    if (thread->regions_open++ == 0) compiled_regions::BeginBackward(observer, thread, node);
  }
  // Leaves have no place in the order of the forward pass.
  if (node.seqNr() == -1 &&
      std::strcmp(thread->node_name, "torch::autograd::AccumulateGrad") == 0) {
    BusyScope busy(thread);
    observer.passes.OnLeaf(observer, thread, node);
  }
}

void EndNode(ThreadState* thread) {
  if (thread->depth == 0) return;
  --thread->depth;
  if (thread->nodes_open != 0) --thread->nodes_open;
  if (thread->depth < ThreadState::kFramesMax && thread->frames[thread->depth].is_region) {
    --thread->regions_open;
  }
  // An outer node goes on (checkpointing): what follows is its own again.
  for (uint32_t i = thread->depth; thread->nodes_open != 0 && i != 0; --i) {
    if (i > ThreadState::kFramesMax || thread->frames[i - 1].kind != FrameKind::kNode) continue;
    thread->node_layer = thread->frames[i - 1].layer;
    thread->node_name = thread->frames[i - 1].range_name;
    return;
  }
}

// The commonest op has one output, dense in memory that the CPU can read. True if that is so and it
// is clean; false leaves everything to be done, with nothing counted.
NANWATCH_HOT bool IsOneCleanOutput(ThreadState* thread, const OpTraits& traits, uint32_t at,
                                   const std::vector<c10::IValue>& outputs) {
  if (__builtin_expect(
          outputs.size() != 1 || (traits.families & kFills) != 0 || !outputs.front().isTensor(),
          0)) {
    return false;
  }
  const at::TensorBase& tensor = outputs.front().toTensor();
  if (traits.transparent) {
    if (!WasCheckedByChild(thread->frames[at], tensor.unsafeGetTensorImpl())) return false;
    if (at != 0) NoteChecked(&thread->frames[at - 1], tensor.unsafeGetTensorImpl());
    return true;
  }
  DensePlain plain;
  if (__builtin_expect(!ReadDense(tensor, &plain), 0)) return false;
  if (plain.bytes > Cuts::kLookedAtAtOnceBytes &&
      Observer::Get()->level.watched() == wire::Level::kLayer) {
    return false;
  }
  const Magnitude seen = Look(plain.type, plain.data, plain.count);
  if (__builtin_expect(seen.IsNonFinite(), 0)) return false;
  NoteTrail(thread, &traits, plain.type, seen, Observer::Get()->steps.iteration());
  if (__builtin_expect((++thread->counters.tensors_checked & (kChecksPerPublication - 1)) == 0,
                       0)) {
    Observer::Get()->PublishLive(wire::LiveState::kWatching);
  }
  thread->counters.bytes_checked += plain.bytes;
  if (__builtin_expect(plain.count == 1, 0)) {
    RememberScalar(thread, thread->frames[at], plain.type, plain.data, plain.bytes);
  }
  if (at != 0) NoteChecked(&thread->frames[at - 1], tensor.unsafeGetTensorImpl());
  return true;
}

// In one step of several, the ticks that our callbacks take are counted.
__attribute__((noinline, cold)) void BeginMeasured(Observer& observer, ThreadState* thread,
                                                   const at::RecordFunction& op) {
  const uint64_t began = Ticks();
  BeginOp(observer, thread, op);
  thread->counters.own_ticks += Ticks() - began;
}
__attribute__((noinline, cold)) void EndMeasured(Observer& observer, ThreadState* thread,
                                                 const at::RecordFunction& op) {
  const uint64_t began = Ticks();
  EndOp(observer, thread, op);
  thread->counters.own_ticks += Ticks() - began;
}

// Under autocast the op casts its arguments, and calls itself on the results: the computation is
// that one's.
__attribute__((noinline)) std::unique_ptr<at::ObserverContext> ExposeUnderAutocast(Frame& frame) {
  if (AutocastsNow(*frame.op)) frame.hides = false;
  return nullptr;
}

__attribute__((noinline, cold)) std::unique_ptr<at::ObserverContext> BeginSlowly(
    const at::RecordFunction& op) {
  Here here;
  if (!FindHere(&here)) return nullptr;
  if (here.observer->arming.measuring()) {
    BeginMeasured(*here.observer, here.thread, op);
  } else {
    BeginOp(*here.observer, here.thread, op);
  }
  return nullptr;
}

__attribute__((noinline)) void EndSlowly(const at::RecordFunction& op) {
  Here here;
  if (!FindHere(&here)) return;
  if (here.observer->arming.measuring()) {
    EndMeasured(*here.observer, here.thread, op);
  } else {
    EndOp(*here.observer, here.thread, op);
  }
}

// Not inlined: OpEnd would have to save registers for it, also where there is nothing to look at.
__attribute__((noinline, hot)) void EndWithOutputs(Observer& observer, ThreadState* thread,
                                                   const OpTraits& traits, uint32_t at,
                                                   const at::RecordFunction& op) {
  const bool may_be_step = traits.in_place &&
                           observer.plain_update_due.load(std::memory_order_relaxed) &&
                           thread->optimizer_depth == 0 && thread->nodes_open == 0;
  if (traits.skip || (traits.families & kNeedsEnd) != 0 || may_be_step ||
      !IsOneCleanOutput(thread, traits, at, op.outputs())) {
    return EndSlowly(op);
  }
  thread->depth = at;
}

bool IsOptimizerStep(const char* name) { return std::strncmp(name, "Optimizer.step#", 15) == 0; }

std::unique_ptr<at::ObserverContext> NodeStart(const at::RecordFunction& node) {
  Here here;
  if (!Observer::Get()->Active()) Observer::WakeInChild();
  if (FindHere(&here)) BeginNode(*here.observer, here.thread, node);
  return nullptr;
}

void NodeEnd() {
  Here here;
  if (!FindHere(&here)) return;
  here.observer->cuts.OnNodeEnd(*here.observer, here.thread);
  EndNode(here.thread);
}

__attribute__((noinline)) std::unique_ptr<at::ObserverContext> StartOther(
    const at::RecordFunction& function) {
  return function.scope() == at::RecordScope::BACKWARD_FUNCTION ? NodeStart(function)
                                                                : RangeStart(function);
}
__attribute__((noinline)) void EndOther(const at::RecordFunction& function,
                                        at::ObserverContext* context) {
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) return NodeEnd();
  RangeEnd(function, context);
}

}  // namespace

// The way of a clean op while nothing bad is alive is written out here without a call, so that no
// register needs saving; everything else is left to BeginOp and EndOp, which handle all cases. What
// lies on it is marked hot, which puts it side by side: between two ops the job's own code has
// taken over the instruction cache.
__attribute__((hot)) std::unique_ptr<at::ObserverContext> Start(const at::RecordFunction& op) {
  if (__builtin_expect(op.scope() != at::RecordScope::FUNCTION, 0)) return StartOther(op);
  Observer& observer = *Observer::Get();
  ThreadState* thread = ThreadStates::Known();
  const c10::FunctionSchema* schema = SchemaOf(op);
  if (__builtin_expect(!observer.Active() || thread == nullptr, 0)) return BeginSlowly(op);
  const uint32_t at = thread->depth;
  const OpTraits* traits = observer.ops.Peek(schema);
  if (__builtin_expect(traits == nullptr || at >= ThreadState::kFramesMax || thread->attention() ||
                           observer.arming.attention(),
                       0)) {
    return BeginSlowly(op);
  }
  thread->depth = at + 1;
  ++thread->counters.ops_seen;
  Frame& frame = thread->frames[at];
  const bool hidden = at != 0 && thread->frames[at - 1].hides;
  frame.op = traits;
  frame.sequence = op.seqNr();
  frame.kind = FrameKind::kOp;
  frame.hidden = hidden;
  frame.hides = hidden || !traits->transparent;
  frame.checked_count = 0;
  frame.inputs_count = 0;
  frame.cleared_flags = 0;
  if (!hidden && frame.sequence >= 0) RememberSequence(thread, frame);
  if (__builtin_expect(traits->autocasts != 0 && !hidden, 0)) return ExposeUnderAutocast(frame);
  return nullptr;
}

__attribute__((hot)) void End(const at::RecordFunction& op, at::ObserverContext* context) {
  if (__builtin_expect(op.scope() != at::RecordScope::FUNCTION, 0)) return EndOther(op, context);
  Observer& observer = *Observer::Get();
  ThreadState* thread = ThreadStates::Known();
  if (__builtin_expect(!observer.Active() || thread == nullptr, 0)) return EndSlowly(op);
  const uint32_t at = thread->depth - 1;  // wraps round to a large number where nothing is open
  if (__builtin_expect(
          at >= ThreadState::kFramesMax || thread->attention() || observer.arming.attention(), 0)) {
    return EndSlowly(op);
  }
  Frame& frame = thread->frames[at];
  const OpTraits& traits = *frame.op;
  if (frame.hidden) {
    thread->depth = at;
    return;
  }
  if (__builtin_expect(frame.cleared_flags != 0, 0)) return EndSlowly(op);
  if (!traits.ends_quietly) return EndWithOutputs(observer, thread, traits, at, op);
  thread->depth = at;
  // A view passes for looked at, so that a composite that returns it is not looked at again.
  const auto& outputs = op.outputs();
  if (at != 0 && thread->frames[at - 1].op->transparent && !outputs.empty() &&
      outputs.back().isTensor()) {
    NoteChecked(&thread->frames[at - 1], outputs.back().toTensor().unsafeGetTensorImpl());
  }
}

std::unique_ptr<at::ObserverContext> RangeStart(const at::RecordFunction& range) {
  Here here;
  const char* name = range.name();
  if (IsOptimizerStep(name)) {
    if (!Observer::Get()->Active()) Observer::WakeInChild();
    if (!FindHere(&here) || here.observer->python->TellsSteps()) return nullptr;
    BusyScope busy(here.thread);
    here.observer->steps.OnStepBegin(*here.observer, here.thread, name,
                                     here.observer->python->OptimizerOnThisThread());
    return nullptr;
  }
  if (!IsCollective(name) || !FindHere(&here)) return nullptr;
  BusyScope busy(here.thread);
  return BeginCollective(*here.observer, here.thread, range);
}

void RangeEnd(const at::RecordFunction& range, at::ObserverContext* context) {
  Here here;
  if (context != nullptr) {
    if (!FindHere(&here)) return;
    BusyScope busy(here.thread);
    EndCollective(*here.observer, here.thread, context);
    return;
  }
  if (!IsOptimizerStep(range.name()) || !FindHere(&here)) return;
  // What the hooks do not end is ended where it began, or by an exception.
  if (here.observer->python->TellsSteps()) return;
  BusyScope busy(here.thread);
  here.observer->steps.OnStepEnd(*here.observer, here.thread);
}

std::unique_ptr<at::ObserverContext> InputStart(const at::RecordFunction&) { return nullptr; }
std::unique_ptr<at::ObserverContext> EmptyStart(const at::RecordFunction&) { return nullptr; }
void EmptyEnd(const at::RecordFunction&, at::ObserverContext*) {}

}  // namespace nanwatch::callbacks
