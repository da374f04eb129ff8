// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/torch_threads.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>

#include "shim/check/parallel.h"

// at::parallel_for is a template: compiled without OpenMP it runs in one thread, and compiled with
// it the observer would need a libgomp by name, while each wheel brings its own. So the functions
// that the compiler would call are taken from whatever libtorch has loaded: libgomp, or another
// library that has its interface. Signatures: libgomp.h and omp.h of GCC.
extern "C" {
[[gnu::weak]] void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
[[gnu::weak]] int omp_get_num_threads(void);
[[gnu::weak]] int omp_get_thread_num(void);
}

namespace nanwatch {
namespace {

struct Work {
  int64_t begin;
  int64_t end;
  int64_t grain;
  void (*body)(void* context, int64_t begin, int64_t end);
  void* context;
};

// As at::internal::invoke_parallel shares out: then a thread reads what it has just written.
void RunShare(void* data) {
  const Work& work = *static_cast<const Work*>(data);
  const int64_t count = work.end - work.begin;
  const int64_t shares = (count + work.grain - 1) / work.grain;
  const int64_t threads = std::min<int64_t>(omp_get_num_threads(), shares);
  const int64_t share = (count + threads - 1) / threads;
  const int64_t begin = work.begin + omp_get_thread_num() * share;
  if (begin < work.end) work.body(work.context, begin, std::min(work.end, begin + share));
}

// Whose pool it is.
pid_t g_process = 0;
thread_local bool thread_trains = false;

void RunInTorchThreads(int64_t begin, int64_t end, int64_t grain,
                       void (*body)(void* context, int64_t begin, int64_t end), void* context) {
  if (!thread_trains || end - begin <= grain || at::in_parallel_region() ||
      at::get_num_threads() <= 1 || getpid() != g_process) {
    return body(context, begin, end);
  }
  Work work{begin, end, grain, body, context};
  // All threads there are: asking for a number would have libgomp take its pool down.
  GOMP_parallel(RunShare, &work, 0, 0);
}

}  // namespace

void RecordThreadTrains() noexcept { thread_trains = true; }

void ReadInTorchThreads() noexcept {
  if (GOMP_parallel == nullptr || omp_get_num_threads == nullptr || omp_get_thread_num == nullptr) {
    return;
  }
  g_process = getpid();
  SetParallelFor(&RunInTorchThreads);
}

}  // namespace nanwatch
