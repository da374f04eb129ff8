#include "shim/observe/thread_state.h"

#include <ATen/record_function.h>
#include <pthread.h>
#include <sys/mman.h>

#include <mutex>

namespace nanwatch {
namespace {

// Logical thread ids count up from 1 and are never reused; the table holds the latest thread per slot.
constexpr uint64_t kById = 4096;
// Ended threads whose states are kept before any is used again.
constexpr uint32_t kEndedKept = 64;

std::atomic<ThreadState*> by_id[kById];
std::atomic<ThreadState*> all{nullptr};
std::atomic<uint32_t> made{0};
std::mutex ended_mutex;
ThreadState* ended[kEndedKept];
uint32_t ended_count = 0;
pthread_key_t end_key;
std::once_flag key_made;

// Runs when a thread ends: its state joins the queue of those that may be used again.
void OnThreadEnd(void* state) {
  static_cast<ThreadState*>(state)->free.store(true, std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(ended_mutex);
  if (ended_count < kEndedKept) ended[ended_count++] = static_cast<ThreadState*>(state);
}

ThreadState* TakeEnded() {
  std::lock_guard<std::mutex> lock(ended_mutex);
  if (ended_count < kEndedKept) return nullptr;
  ThreadState* oldest = ended[0];
  for (uint32_t i = 1; i < ended_count; ++i) ended[i - 1] = ended[i];
  --ended_count;
  return oldest;
}

ThreadState* MapState() {
  void* memory = mmap(nullptr, sizeof(ThreadState), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<ThreadState*>(memory);
}

}  // namespace

constinit thread_local ThreadState* ThreadStates::current_
    __attribute__((tls_model("initial-exec"))) = nullptr;

ThreadState* ThreadStates::Make() noexcept {
  std::call_once(key_made, [] { pthread_key_create(&end_key, &OnThreadEnd); });
  ThreadState* state = TakeEnded();
  if (state != nullptr) {
    // Counters go on: they are summed over all states. Everything else begins anew.
    state->depth = state->nodes_open = state->regions_open = state->optimizer_depth = 0;
    state->inputs_used = state->expose_hidden = 0;
    state->busy = state->proof = false;
  } else {
    state = MapState();
    if (state == nullptr) return nullptr;
    state->small_id = made.fetch_add(1, std::memory_order_relaxed) + 1;
    state->next = all.load(std::memory_order_relaxed);
    while (!all.compare_exchange_weak(state->next, state, std::memory_order_release)) {
    }
  }
  state->free.store(false, std::memory_order_relaxed);
  state->graph_task = -1;
  state->torch_thread_id = at::RecordFunction::currentThreadId();
  by_id[state->torch_thread_id % kById].store(state, std::memory_order_release);
  pthread_setspecific(end_key, state);
  current_ = state;
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

ThreadCounters ThreadStates::Sum() noexcept {
  ThreadCounters sum;
  for (ThreadState* state = all.load(std::memory_order_acquire); state != nullptr;
       state = state->next) {
    const ThreadCounters& one = state->counters;
    sum.ops_seen += __atomic_load_n(&one.ops_seen, __ATOMIC_RELAXED);
    sum.tensors_checked += __atomic_load_n(&one.tensors_checked, __ATOMIC_RELAXED);
    sum.bytes_checked += __atomic_load_n(&one.bytes_checked, __ATOMIC_RELAXED);
    sum.values_bad += __atomic_load_n(&one.values_bad, __ATOMIC_RELAXED);
    sum.own_ticks += __atomic_load_n(&one.own_ticks, __ATOMIC_RELAXED);
    for (int i = 0; i < wire::kUncheckedReasons; ++i) {
      sum.unchecked[i] += __atomic_load_n(&one.unchecked[i], __ATOMIC_RELAXED);
    }
  }
  return sum;
}

void ThreadStates::AfterFork() noexcept {
  // The parent's other threads do not exist here. Their states are leaked: the lock around them may be held
  // by one of them for ever.
  new (&ended_mutex) std::mutex;
  ended_count = 0;
  all.store(nullptr, std::memory_order_relaxed);
  for (auto& slot : by_id) slot.store(nullptr, std::memory_order_relaxed);
  current_ = nullptr;
  Make();
}

}  // namespace nanwatch
