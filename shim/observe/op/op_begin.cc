// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/op_begin.h"

#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "shim/observe/capsule/capsules.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/op_kernels.h"
#include "shim/observe/op/compiled_regions.h"
#include "shim/observe/op/inputs.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/torch/record_access.h"
#include "shim/observe/unseen/collective_results.h"

namespace nanwatch {
namespace {

// Autocast is off where its key is excluded, which it is from the start and inside its own kernels
// (ATen/autocast_mode.cpp, set_autocast_enabled).
bool AutocastsNow(const OpTraits& op) {
  const c10::DispatchKeySet off = c10::impl::tls_local_dispatch_key_set().excluded_;
  return ((op.autocasts & kAutocastsOnCpu) != 0 && !off.has(c10::DispatchKey::AutocastCPU)) ||
         ((op.autocasts & kAutocastsOnCuda) != 0 && !off.has(c10::DispatchKey::AutocastCUDA));
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

// Deterministic algorithms put NaN into memory that is about to be filled, inside the op that asks
// for it.
bool IsWithinCreation(const ThreadState& thread, const Frame& frame) {
  if (&frame == thread.frames) return false;
  const Frame& parent = *(&frame - 1);
  return parent.hidden ||
         (parent.kind == FrameKind::kOp && (parent.op->families & (kAllocates | kCreates)) != 0);
}

}  // namespace

void OpBegin::BeginRange(ThreadState* thread, Frame& frame, const at::RecordFunction& range) {
  frame.op = ops_.Range();
  frame.hides = frame.hidden = false;
  frame.kind = FrameKind::kRange;
  frame.range_name = range.name();
  if (frame.range_name[0] == 'T' && CompiledRegions::IsRegion(frame.range_name)) {
    frame.is_region = true;
    if (thread->regions_open++ == 0) regions_.Begin(thread, frame.range_name);
    MarkCompiledRegion();
  }
  if (frame.sequence >= 0) RememberSequence(thread, frame);
}

// A copy begins, with or without waiting. Where it goes from a GPU to the CPU, what is known of the
// source is there once the program has waited; and where nobody waits, what it leaves on the CPU
// may not have arrived when it ends, and is not to be read then.
__attribute__((noinline)) void OpBegin::BeginCopy(ThreadState* thread, Frame& frame,
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
  if (gpu_.On()) gpu_.AskStream(thread);
}

void OpBegin::BeginWithArguments(ThreadState* thread, Frame& frame,
                                 c10::ArrayRef<const c10::IValue> arguments) {
  const OpTraits& op = *frame.op;
  frame.inputs_begin = thread->inputs_used;
  if (input_tracking_.armed()) inputs_.Record(thread, frame, arguments);
  if (__builtin_expect(capsules_.on(), 0)) capsules_.OnBegin(thread, frame, arguments);
  if (op.in_place && gpu_.AnyReceivedUnchecked()) gpu_.CheckReceived(thread, frame);
  if (__builtin_expect((op.families & kCommunicates) != 0, 0) && gpu_.On()) {
    gpu_.CheckGiven(thread, frame);
  }
  if ((op.families & kMayNotWait) != 0) BeginCopy(thread, frame, arguments);
}

// An op that has a schema.
void OpBegin::BeginKnown(ThreadState* thread, Frame& frame, const at::RecordFunction& op) {
  const OpTraits* traits = frame.op;
  frame.kind = FrameKind::kOp;
  if (__builtin_expect(thread->expose_hidden != 0, 0)) {
    --thread->expose_hidden;
    frame.hidden = frame.hidden && IsWithinCreation(*thread, frame);
  }
  frame.hides = frame.hidden || !traits->transparent;
  if (__builtin_expect(traits->autocasts != 0, 0) && frame.hides && !frame.hidden &&
      AutocastsNow(*traits)) {
    frame.hides = false;
  }
  if (frame.hidden) return;
  if (__builtin_expect(kernels_.On(), 0)) kernels_.Begin(thread, &frame);
  if (frame.sequence >= 0) RememberSequence(thread, frame);
  const c10::ArrayRef<const c10::IValue> arguments = op.inputs();
  if (__builtin_expect(!arguments.empty(), 0)) BeginWithArguments(thread, frame, arguments);
  // What it will write cannot be told from what lies there once it has ended.
  if ((traits->writes_unseen || (traits->families & kCommunicates) != 0) && gpu_.On()) {
    gpu_.LaunchBatches();
  }
  if ((traits->families & kHandsOut) != 0) {
    collectives_.OnHandingOut(thread, frame);
  } else if ((traits->families & kReadsScalar) != 0 && gpu_.On()) {
    gpu_.AskStream(thread);
  }
}

void OpBegin::Begin(ThreadState* thread, const at::RecordFunction& op) {
  const uint32_t at = thread->depth++;
  ++thread->counters.ops_seen;
  if (__builtin_expect(at >= ThreadState::kFramesMax, 0)) {
    ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kTooDeep)];
    return;
  }
  Frame& frame = thread->frames[at];
  const c10::FunctionSchema* schema = SchemaOf(op);
  frame.checked_count = 0;
  frame.inputs_count = 0;
  frame.cleared_flags = 0;
  frame.hidden = at != 0 && thread->frames[at - 1].hides;
  frame.sequence = op.seqNr();
  frame.first_event = gpu_.next_event();
  if (__builtin_expect(schema == nullptr, 0)) return BeginRange(thread, frame, op);
  frame.op = ops_.Find(schema);
  BeginKnown(thread, frame, op);
}

std::unique_ptr<at::ObserverContext> ExposeUnderAutocast(Frame& frame) {
  if (AutocastsNow(*frame.op)) frame.hides = false;
  return nullptr;
}

}  // namespace nanwatch
