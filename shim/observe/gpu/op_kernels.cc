// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/op_kernels.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "proto/wire/kernel_counts.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/python/python_bridge.h"

namespace nanwatch {
namespace {

using device::KernelTrace;
using device::OpKernel;

// Ten seconds of Tend's rounds.
constexpr uint32_t kRoundsUntilSaid = 200;
// A minute: an op whose kernels others have launched has none.
constexpr uint32_t kRoundsOfFinding = 1200;

// Why kernels cannot be traced in this process, whatever its CUPTI is; null: nothing is in the way.
const char* FindObstacle(bool on_demand) {
  if (on_demand) {
    return "KINETO_USE_DAEMON is set, and a profiler may be started from outside at any time";
  }
  if (dlsym(RTLD_DEFAULT, "Py_GetVersion") == nullptr) {
    return "in a program without Python the start of a profiler cannot be seen";
  }
  return nullptr;
}

}  // namespace

void OpKernels::Begin(const ThreadState* thread, Frame* frame) noexcept {
  // Views and allocations launch nothing.
  if (frame->op->skip && !frame->op->writes_unseen) return;
  // Threads count their ops from 1; an op of another thread has other high bits.
  frame->kernels = uint64_t{thread->small_id} << 40 | thread->counters.ops_seen;
  frame->kernels_pushed = true;
  trace_.load(std::memory_order_acquire)->Push(frame->kernels);
}

bool OpKernels::List::Add(const Waiting& finding) noexcept {
  const bool full = count == kFindingsMax;
  if (full) std::copy(findings + 1, findings + count--, findings);
  findings[count++] = finding;
  return !full;
}

// What is told may be told on the job's thread, which must not wait for CUPTI.
void OpKernels::RecordFinding(const Frame& frame, const wire::RecordHeader& finding) noexcept {
  const std::lock_guard<std::mutex> lock(arriving_mutex_);
  if (!arriving_.Add({.finding = finding, .op = frame.kernels})) given_up_.fetch_add(1);
}

void OpKernels::TakeArrived() noexcept {
  const std::lock_guard<std::mutex> lock(arriving_mutex_);
  for (uint32_t i = 0; i < arriving_.count; ++i) {
    if (!waiting_.Add(arriving_.findings[i])) given_up_.fetch_add(1);
  }
  arriving_.count = 0;
}

void OpKernels::Tend() noexcept {
  if (!wanted_) return;
  const std::lock_guard<std::mutex> tending(tending_);
  if (state_ == State::kIdle || state_ == State::kAsking) Start();
  if (state_ != State::kStarted) return;
  trace_.load(std::memory_order_relaxed)->Tend();
  Emit(/*last=*/false);
}

// A thread of ours may be in CUPTI just now, and is waited for, since the driver goes next; but not
// for long: what it asks for may never come.
void OpKernels::EmitAtExit() noexcept {
  constexpr int kRoundsMax = 200;
  constexpr useconds_t kMicrosecondsBetween = 1000;
  if (!wanted_) return;
  std::unique_lock<std::mutex> tending(tending_, std::try_to_lock);
  for (int round = 0; !tending.owns_lock() && round < kRoundsMax; ++round) {
    usleep(kMicrosecondsBetween);
    (void)tending.try_lock();
  }
  if (!tending.owns_lock()) return;
  if (state_ == State::kStarted) Emit(/*last=*/true);
  state_ = State::kEnded;
  if (KernelTrace* trace = trace_.load(std::memory_order_relaxed); trace != nullptr) trace->End();
}

void OpKernels::OnProfiler() noexcept {
  KernelTrace* trace = trace_.load(std::memory_order_acquire);
  if (trace == nullptr || !trace->Yield()) return;
  entry_.say("kernels are not traced from here on: a profiler starts, and CUPTI is its own now");
}

void OpKernels::Refuse(const char* why) noexcept {
  state_ = State::kRefused;
  char line[256];
  std::snprintf(line, sizeof line, "findings go without the names of kernels: %s", why);
  entry_.say(line);
}

void OpKernels::Start() noexcept {
  using Calls = ProfilerCalls::State;
  if (state_ == State::kIdle) {
    if (const char* const why = FindObstacle(on_demand_); why != nullptr) return Refuse(why);
    const auto cupti = device::CuptiOfProcess();
    if (!cupti) {
      return Refuse("this process has mapped no CUPTI of CUDA 12 or 13, or both");
    }
    trace_.store(KernelTrace::Create(*cupti), std::memory_order_release);
    if (trace_.load() == nullptr) return Refuse("there is no memory for them");
    state_ = State::kAsking;
  }
  python_.ReplaceProfilerCallsSoon();
  switch (python_.profiler_calls()) {
    case Calls::kUntold:
      if (++rounds_asking_ == kRoundsUntilSaid) {
        entry_.say(
            "findings go without the names of kernels for now: Python's main thread has been in "
            "one "
            "call, or is not of a kind that is known");
      }
      return;  // with the next round, perhaps
    case Calls::kFailed:
      return Refuse("this torch starts its profiler in a way that is not known");
    case Calls::kRunning:
      return Refuse("torch.profiler is running");
    case Calls::kTold:
      break;
  }
  KernelTrace* trace = trace_.load(std::memory_order_relaxed);
  if (const char* const why = trace->Start(); why != nullptr) return Refuse(why);
  state_ = State::kStarted;
}

void OpKernels::Emit(bool last) noexcept {
  TakeArrived();
  Emitter* emitter = segment_.emitter();
  if (waiting_.count == 0 || emitter == nullptr) return;
  KernelTrace& trace = *trace_.load(std::memory_order_relaxed);
  trace.Flush(last);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < waiting_.count; ++i) {
    Waiting& waiting = waiting_.findings[i];
    constexpr size_t kNamesOfOpMax = 32;
    OpKernel kernels[kNamesOfOpMax];
    const size_t count = trace.Gather(waiting.op, kernels);
    uint64_t seen = 0;
    for (size_t k = 0; k < count; ++k) seen += kernels[k].count;
    // The records of one op may come in two buffers: told once nothing more has come for a round.
    const bool given_up = !last && seen == 0 && ++waiting.rounds > kRoundsOfFinding;
    if (given_up) given_up_.fetch_add(1);
    if (!last && !given_up && (seen == 0 || seen != waiting.seen)) {
      waiting.seen = seen;
      waiting_.findings[kept++] = waiting;
      continue;
    }
    EmitOne(*emitter, waiting, {kernels, count}, trace);
  }
  waiting_.count = kept;
}

void OpKernels::EmitOne(Emitter& emitter, const Waiting& finding, std::span<const OpKernel> kernels,
                        KernelTrace& trace) noexcept {
  wire::CountedKernelsRecord counted{};
  wire::KernelsRecord& record = counted.record;
  record.header = finding.finding;
  record.header.kind = static_cast<uint16_t>(wire::RecordKind::kKernels);
  record.header.bytes = sizeof counted;
  record.header.ticket = emitter.DrawTicket();
  record.value = finding.finding.ticket;
  record.lost = trace.lost() + given_up_.load();
  record.n_kernels = static_cast<uint8_t>(std::min<size_t>(kernels.size(), wire::kKernelsMax));
  record.left_out = static_cast<uint8_t>(kernels.size() - record.n_kernels);
  for (size_t k = 0; k < record.n_kernels; ++k) {
    record.kernels[k] = {emitter.Intern(kernels[k].name), kernels[k].count, kernels[k].nanoseconds};
  }
  const device::TraceRecords records = trace.Records();
  counted.counts = {.buffers = records.buffers,
                    .kernels = records.kernels,
                    .kernels_in_graphs = records.kernels_in_graphs,
                    .launches = records.launches,
                    .matched = records.matched,
                    .yielded = trace.Tracing() ? uint64_t{0} : uint64_t{1}};
  emitter.Emit(record.header);
}

}  // namespace nanwatch
