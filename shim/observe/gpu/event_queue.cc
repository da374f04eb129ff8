// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/event_queue.h"

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "shim/host/monotonic_clock.h"
#include "shim/host/quiet_thread.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/gpu/gpu_graphs.h"
#include "shim/observe/gpu/gpu_listener.h"
#include "shim/observe/gpu/memory_wanted.h"
#include "shim/observe/gpu/op_kernels.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/torch/input_tracking.h"

namespace nanwatch {
namespace {

// Between two attempts to resolve what is waited for.
constexpr uint32_t kMicrosecondsBetweenTries = 50;

}  // namespace

bool GpuEventQueue::Begin() noexcept {
  if (On()) return true;
  std::call_once(begun_, [this] { SetUp(); });
  return On();
}

void GpuEventQueue::SetUp() noexcept {
  if (!settings_.checks) return;
  const char* why = "";
  if (!state_.checks.Begin(&why)) {
    char line[160];
    std::snprintf(line, sizeof line, "tensors on GPUs go unchecked: %s", why);
    parts_.entry.say(line);
    return;
  }
  state_.graphs = new (std::nothrow) GpuGraphs;
  if (!state_.ring.Map(settings_.queue_bytes_for_test) || !resolver_.Prepare() ||
      state_.graphs == nullptr) {
    return;
  }
  // As early as may be: whoever allocates reads what this writes, and takes no lock for it.
  CallWhenMemoryIsWanted(parts_.hooks.on_memory_wanted);
  state_.on.store(true, std::memory_order_release);
  ThreadStates::SetOnEnd(parts_.hooks.on_thread_end);
  StartSettling();
  // The driver ends in an exit handler that it has registered when it was initialized, which it was
  // before there was a tensor of a GPU; of two handlers the later one runs first. The observer's own
  // (start.cc), from before all that, would find a driver that answers nothing any more and has
  // given back its memory.
  if (state_.checks.DriverIsUp()) (void)std::atexit(parts_.hooks.before_driver_ends);
  parts_.python.ReplaceGraphCallsSoon();
  parts_.python.WatchOsExitSoon();
  parts_.listener.OnFirstGpu(ThreadStates::Mine());
}

// A job that hangs, or waits for long, calls nothing of ours: what the GPU has found by then is
// resolved by a thread of our own, which only reads memory.
void GpuEventQueue::StartSettling() noexcept {
  constexpr useconds_t kMicrosecondsBetween = 50'000;
  const auto run = [](void* context) -> void* {
    for (auto* mine = static_cast<GpuEventQueue*>(context);;) {
      usleep(kMicrosecondsBetween);
      if (!mine->parts_.activity.On()) continue;
      mine->Settle();
      mine->parts_.op_kernels.Tend();
    }
  };
  (void)StartQuietThread(run, this);  // without it only calls of the job resolve
}

Moment GpuEventQueue::MomentOf(ThreadState* thread) noexcept {
  return TakeMoment({parts_.segment, parts_.python, calls_}, thread);
}

Moment GpuEventQueue::MomentOf(ThreadState* thread, const Frame& frame) noexcept {
  Moment moment = MomentOf(thread);
  moment.first_event = frame.first_event;
  return moment;
}

void GpuEventQueue::AskStream(const ThreadState* thread) noexcept {
  LaunchBatches();
  state_.checks.Ask(thread);
}

bool GpuEventQueue::LetGo() noexcept {
  if (!On() || !state_.batches.AnyOpen()) return false;
  const int gpu = state_.checks.CurrentGpu();
  // Nothing may be asked of the driver in a capture, but that.
  if (gpu < 0 || state_.checks.IsCaptured(gpu, state_.checks.CurrentStream(gpu))) return false;
  return state_.checks.IsMemoryScarce() && state_.batches.LetGo(ThreadStates::Known(), gpu);
}

void GpuEventQueue::Settle() noexcept {
  if (On()) resolver_.TryResolve();
}

void GpuEventQueue::SettleInputs(ThreadState* thread, const Frame& frame) noexcept {
  LaunchBatches();
  // What was copied from there may have been checked only behind the copy.
  if (parts_.level.watched() == wire::Level::kSampled) WaitBriefly();
  Settle();
  resolver_.FillInputs(thread, frame);
}

// For what the GPU will have done in a moment: the host has just waited for it.
void GpuEventQueue::WaitBriefly() noexcept {
  constexpr uint64_t kLongestNs = 20'000'000;
  state_.checks.AskAll();
  const uint64_t began = MonotonicNs();
  do {
    Settle();
  } while (!state_.ring.IsEmpty() && MonotonicNs() - began < kLongestNs);
}

bool GpuEventQueue::WaitForGpu(ThreadState* thread, uint64_t event) noexcept {
  constexpr uint64_t kPatienceNs = 60'000'000'000;
  if (event == 0 || CapturedGraph(thread, /*begins=*/true) != nullptr) return false;
  LaunchBatches();
  state_.checks.AskAll();
  uint64_t told = 0;
  for (uint64_t since = MonotonicNs();;) {
    Settle();
    const uint64_t now_told = state_.ring.clock().told.load(std::memory_order_acquire);
    if (now_told >= event) return true;
    if (now_told != told) {
      told = now_told;
      since = MonotonicNs();
    } else if (MonotonicNs() - since > kPatienceNs) {
      parts_.entry.say(
          "a GPU has not answered for a minute: this step's gradients are not waited for");
      return false;
    }
    parts_.python.Rest(kMicrosecondsBetweenTries);
  }
}

bool GpuEventQueue::WaitForSetUp() noexcept {
  constexpr uint64_t kPatienceNs = 5'000'000'000;
  const uint64_t since = MonotonicNs();
  while (!state_.checks.AllSetUp()) {
    if (MonotonicNs() - since > kPatienceNs) return false;
    parts_.python.Rest(kMicrosecondsBetweenTries);
  }
  return true;
}

void GpuEventQueue::SettleAtExit() noexcept {
  // A GPU that is steps behind is waited for as long as it answers; one that does not, or does for
  // very long, is not. On a busy machine time alone is no silence: it was asked often, too.
  constexpr uint64_t kSilenceNs = 200'000'000;
  constexpr int kAskedInSilence = 150;
  constexpr uint64_t kLongestNs = 5'000'000'000;
  constexpr useconds_t kMicrosecondsBetween = 1000;
  if (!On()) return;
  // Threads that end from now on would launch into a driver that ends too, for nobody to read.
  ThreadStates::SetOnEnd(nullptr);
  const bool may_launch = state_.checks.DriverIsUp();
  ThreadState* thread = ThreadStates::Mine();
  state_.checks.BeginExit();
  if (may_launch && thread != nullptr) {
    // Those of default streams alone: nobody knows any more which stream was current.
    state_.batches.LaunchAll();
    state_.checks.AskAll();
  } else {
    state_.batches.DropAll();
  }
  const bool may_read = may_launch || state_.checks.ReadableForEver();
  const uint64_t began_ns = MonotonicNs();
  uint64_t told = state_.ring.clock().told.load(std::memory_order_acquire);
  uint64_t told_ns = began_ns;
  int asked = 0;
  while (may_read) {
    Settle();
    if (state_.ring.IsEmpty()) break;
    const uint64_t now_ns = MonotonicNs();
    const uint64_t now_told = state_.ring.clock().told.load(std::memory_order_acquire);
    if (now_told != told) {
      told_ns = now_ns;
      asked = 0;
    }
    told = now_told;
    const bool is_silent = ++asked >= kAskedInSilence && now_ns - told_ns >= kSilenceNs;
    if (is_silent || now_ns - began_ns >= kLongestNs) break;
    usleep(kMicrosecondsBetween);
  }
  // Threads that still run ops have nothing launched for them from here on.
  state_.on.store(false, std::memory_order_release);
  resolver_.Stop();
}

}  // namespace nanwatch
