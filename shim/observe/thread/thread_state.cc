// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/thread/thread_state.h"

#include <ATen/record_function.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>

#include "shim/host/zeroed_memory.h"

namespace nanwatch {
namespace {

// Logical thread ids count up from 1 and are never reused; the table holds the latest thread per
// slot.
constexpr uint64_t kById = 4096;
// States of ended threads that are kept as they are before the oldest is used again.
constexpr uint32_t kEndedKept = 64;

std::atomic<ThreadState*> by_id[kById];
std::atomic<ThreadState*> all{nullptr};
std::atomic<uint32_t> made{0};
std::mutex ended_mutex;
ThreadState* oldest_ended = nullptr;  // the queue, through next_ended
ThreadState* newest_ended = nullptr;
uint32_t ended_count = 0;
pthread_key_t end_key;
std::once_flag key_made;

void QueueEnded(ThreadState* state) {
  std::lock_guard<std::mutex> lock(ended_mutex);
  state->next_ended = nullptr;
  (ended_count++ == 0 ? oldest_ended : newest_ended->next_ended) = state;
  newest_ended = state;
}

ThreadState* TakeEnded() {
  std::lock_guard<std::mutex> lock(ended_mutex);
  if (ended_count < kEndedKept) return nullptr;
  ThreadState* oldest = oldest_ended;
  oldest_ended = oldest->next_ended;
  --ended_count;
  return oldest;
}

// The nodes of the thread that had this state before are forgotten: sequence numbers begin anew in
// each thread.
void ForgetSequences(ThreadState* state) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(state->sequences);
  const uintptr_t first_page = (begin + page - 1) & ~(page - 1);
  const uintptr_t end = begin + sizeof state->sequences;
  std::memset(reinterpret_cast<char*>(begin), 0, first_page - begin);
  const uintptr_t last_page = end & ~(page - 1);
  // Gives the pages back; they read as zero.
  madvise(reinterpret_cast<void*>(first_page), last_page - first_page, MADV_DONTNEED);
  std::memset(reinterpret_cast<char*>(last_page), 0, end - last_page);
}

ThreadState* MapState() { return static_cast<ThreadState*>(MapZeroed(sizeof(ThreadState))); }

void Enlist(ThreadState* state) {
  state->small_id = made.fetch_add(1, std::memory_order_relaxed) + 1;
  state->next = all.load(std::memory_order_relaxed);
  while (!all.compare_exchange_weak(state->next, state, std::memory_order_release)) {
  }
}

}  // namespace

constinit thread_local ThreadState* ThreadStates::current_
    __attribute__((tls_model("initial-exec"))) = nullptr;

ThreadState* ThreadStates::Make() noexcept {
  std::call_once(key_made, [] { pthread_key_create(&end_key, &OnThreadEnd); });
  ThreadState* state = TakeEnded();
  if (state != nullptr) {
    // Counters go on: they are summed over all states. Reset is what the next thread could take for
    // its own: open frames and ranges, sequence numbers, the trail, and the values last seen. Other
    // fields keep what the ended thread left.
    state->depth = state->nodes_open = state->regions_open = state->optimizer_depth = 0;
    state->inputs_used = state->expose_hidden = 0;
    state->busy = state->proof = false;
    state->node_layer = nullptr;
    state->last_gpu = 0;
    state->trail_steps = 0;
    state->region = {};
    state->regions_unread = false;
    state->last_scalar = {};
    state->told_loss = 0;
    state->last_collective = {};
    ForgetSequences(state);
  } else {
    state = MapState();
    if (state == nullptr) return nullptr;
    Enlist(state);
  }
  state->graph_task = -1;
  state->torch_thread_id = at::RecordFunction::currentThreadId();
  by_id[state->torch_thread_id % kById].store(state, std::memory_order_release);
  pthread_setspecific(end_key, state);
  current_ = state;
  return state;
}

ThreadState* ThreadStates::MakeForResolving() noexcept {
  ThreadState* state = MapState();
  if (state == nullptr) return nullptr;
  state->graph_task = -1;
  Enlist(state);
  return state;
}

ThreadState* ThreadStates::OfTorchThread(uint64_t torch_thread_id) noexcept {
  ThreadState* state = by_id[torch_thread_id % kById].load(std::memory_order_acquire);
  return state != nullptr && state->torch_thread_id == torch_thread_id ? state : nullptr;
}

SequenceEntry* ThreadStates::FindSequence(uint64_t torch_thread_id, int64_t sequence) noexcept {
  if (sequence < 0) return nullptr;
  ThreadState* state = OfTorchThread(torch_thread_id);
  if (state == nullptr) return nullptr;
  SequenceEntry& entry = state->sequences[sequence & (ThreadState::kSequences - 1)];
  // Entries are stored with their number plus one, so that zeroed memory matches nothing.
  return entry.sequence.load(std::memory_order_relaxed) == sequence + 1 ? &entry : nullptr;
}

// Runs when a thread ends: its state joins the queue of those that may be used again. An op that a
// later destructor of the thread calls makes a new one.
void ThreadStates::OnThreadEnd(void* state) {
  const auto on_end = on_end_.load(std::memory_order_relaxed);
  if (on_end != nullptr) on_end(static_cast<ThreadState*>(state));
  current_ = nullptr;
  QueueEnded(static_cast<ThreadState*>(state));
}

ThreadCounters ThreadStates::Sum() noexcept {
  ThreadCounters sum;
  for (ThreadState* state = all.load(std::memory_order_acquire); state != nullptr;
       state = state->next) {
    const ThreadCounters& one = state->counters;
    sum.ops_seen += __atomic_load_n(&one.ops_seen, __ATOMIC_RELAXED);
    sum.tensors_checked += __atomic_load_n(&one.tensors_checked, __ATOMIC_RELAXED);
    sum.bytes_checked += __atomic_load_n(&one.bytes_checked, __ATOMIC_RELAXED);
    sum.values_bad += __atomic_load_n(&one.values_bad, __ATOMIC_RELAXED);
    for (int i = 0; i < wire::kUncheckedReasons; ++i) {
      sum.unchecked[i] += __atomic_load_n(&one.unchecked[i], __ATOMIC_RELAXED);
    }
  }
  return sum;
}

void ThreadStates::AfterFork() noexcept {
  // The parent's other threads do not exist here. Their states are leaked: the lock around them may
  // be held by one of them for ever.
  new (&ended_mutex) std::mutex;
  oldest_ended = newest_ended = nullptr;
  ended_count = 0;
  all.store(nullptr, std::memory_order_relaxed);
  for (auto& slot : by_id) slot.store(nullptr, std::memory_order_relaxed);
  current_ = nullptr;
  Make();
}

}  // namespace nanwatch
