// SPDX-License-Identifier: Apache-2.0
// The names and times of the kernels that ops on GPUs ran, by the process's own CUPTI. Off unless
// asked for: nothing here is made, and no function of CUPTI called, before Start.
//
//   off --Start--> tracing --Yield--> yielded, for good
//    '-----------> refused, for good, with a reason
//
// An op's thread pushes the op's number where it begins and pops it where it ends. CUPTI then says
// of each launch in between which number was on top (CuptiExternalId), and of each kernel which
// launch it came from and how long it took (CuptiKernel). Both go, in whatever order they come,
// into two rings, and Gather joins them. Our own check kernels are left out, by their names.
//
// How much is kept. When an op's answer is told, the GPU may have run on by as much as the driver
// queues (about a thousand launches) and as the check's slots allow (2,048), by what it runs
// between two looks at it (50 ms: some ten thousand kernels of 5 us), and as much again until the
// records have been asked for. kKernelsKept is twice the sum, at two kernels an op (12 MiB in all).
//
// Others who use CUPTI. A subscriber of CUPTI is alone, so Start asks whether there is one, by
// subscribing and giving it back at once: what is used from then on needs no subscription, and who
// subscribes later is not refused because of us. But records go to one pair of callbacks a process,
// those registered last, and torch.profiler (kineto) registers its own each time it begins, without
// looking for others'. Nothing of ours ends with it, nor of its with us, because Yield comes
// before: it is called where the profiler is prepared (observe/python/profiler_calls.h), turns our
// kinds of records off, and calls back all buffers that CUPTI holds of ours, full or not. From then
// on it is offered none of ours, and has none; a record that it completes late in one of them
// writes to memory that is never used again. We do not come back when the profiler ends: kineto may
// take CUPTI down (TEARDOWN_CUPTI) at a time of its own, and nothing tells of that. Whoever else
// registers callbacks while we trace, unannounced, takes our buffers over with our records; we
// would then learn of no kernels. cuptiFinalize is never called.
//
// CUDA graphs: CUPTI gives one record for each kernel of each replay, all with the number of the
// call that replayed the graph. Which op of the graph a kernel is of cannot be told, so they are
// left out.
//
// An empty answer. Kernels without the calls that launched them cannot be joined: that is so where
// the job launches by calls that single ids do not name (those of a CUDA yet to come). Then all
// calls are recorded (Tend). Our own check kernels do not count, though they are launched while an
// op's number is on top. What came is counted (Records), so that a finding without kernels can say
// why.
//
// None of this has run on a GPU since the ids of CUDA 13 are asked for.
//
// Threads: Push and Pop from any; they make one call of CUPTI's each. Start, Tend, Flush and Gather
// from one, none of the job's. Yield from any: it may wait for one of those to end, and its flush
// is over when CUPTI has handed over what it holds; it is part of preparing a profiler, which takes
// longer. CUPTI asks for buffers on the job's threads, which take them from a pool, and returns
// them on a thread of its own or on the one that flushes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "shim/device/cupti.h"

namespace nanwatch::device {

inline constexpr size_t kKernelsKept = size_t{1} << 16;
inline constexpr size_t kLaunchesKept = kKernelsKept * 2;
inline constexpr size_t kKernelNamesKept = 2048;
inline constexpr size_t kKernelNameBytes = 512;  // a name of the wire's is no longer

// One kernel's share of an op.
struct OpKernel {
  const char* name;  // mangled, cut to kKernelNameBytes - 1; lives as long as the trace
  uint32_t count;
  uint64_t nanoseconds;
};

// What CUPTI has handed over so far.
struct TraceRecords {
  uint64_t buffers = 0;
  uint64_t kernels = 0;  // the job's own, outside graphs
  uint64_t kernels_in_graphs = 0;
  uint64_t launches = 0;  // made while an op's number was on top; our own are among them
  uint64_t matched = 0;   // of the newest kernels (at most kKernelsComparedMax), those of ops
};

inline constexpr uint64_t kKernelsComparedMax = 1024;

class KernelTrace {
 public:
  // Null when there is no memory. There can be one of it, since CUPTI's callbacks know of no
  // object. Never destroyed: CUPTI may hold its buffers.
  [[nodiscard]] static KernelTrace* Create(const Cupti& cupti) noexcept;
  KernelTrace(const KernelTrace&) = delete;
  KernelTrace& operator=(const KernelTrace&) = delete;

  // Null: kernels are traced from now on. Else why not, a sentence.
  [[nodiscard]] const char* Start() noexcept;
  [[nodiscard]] bool Tracing() const noexcept { return tracing_.load(std::memory_order_relaxed); }
  // Somebody else is about to use CUPTI. True if we were tracing.
  bool Yield() noexcept;
  // The process ends: CUPTI is not called any more, by any thread that comes here later.
  void End() noexcept;

  // 0 is no number.
  void Push(uint64_t op) const noexcept { (void)cupti_.push_id(kCuptiOurIds, op); }
  void Pop() const noexcept {
    if (ended_.load(std::memory_order_relaxed)) return;
    uint64_t popped = 0;
    (void)cupti_.pop_id(kCuptiOurIds, &popped);
  }

  // Now and then, while tracing. Where only calls that launch are recorded, and most of the job's
  // kernels come without such, has all calls recorded.
  void Tend() noexcept;
  // Has CUPTI hand over what is complete; `all`: what is not, too, because nothing will come after.
  void Flush(bool all) noexcept;

  // The kernels of this op of which records have come, those that took longest first; their number.
  size_t Gather(uint64_t op, std::span<OpKernel> kernels) noexcept;

  // Records that CUPTI has let go of, or that found no buffer or no place for their name.
  [[nodiscard]] uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }
  [[nodiscard]] TraceRecords Records() noexcept;

 private:
  // Of 256 KiB, about 900 kernels each: a buffer is handed over only once all that has begun in it
  // is done, which on a GPU that never rests is when it is full.
  static constexpr size_t kBufferBytes = size_t{256} << 10;
  static constexpr uint32_t kBuffers = 32;
  struct Launch {
    uint64_t op;
    uint32_t correlation;
  };
  struct Kernel {
    uint64_t nanoseconds;
    uint32_t correlation;
    uint32_t name;  // place in names_, counted from 1; 0: none
  };
  struct Rings;

  explicit KernelTrace(const Cupti& cupti) noexcept : cupti_(cupti) {}
  static void OnBufferRequested(uint8_t** buffer, size_t* bytes, size_t* records_max);
  static void OnBufferDone(CuContext context, uint32_t stream, uint8_t* buffer, size_t bytes,
                           size_t bytes_valid);
  [[nodiscard]] CuptiResult EnableAll(uint32_t version) noexcept;
  // How the newest of the job's kernels were launched, as far as is known; with mutex_ held.
  struct Compared {
    size_t kernels = 0;
    size_t called = 0;  // of these, with a record of the call
    size_t of_ops = 0;  // of these, launched by an op
  };
  [[nodiscard]] Compared CompareNewest() const noexcept;
  void DisableAll() noexcept;
  void Read(uint8_t* buffer, size_t bytes_valid) noexcept;
  void Take(const CuptiRecord& record) noexcept;
  [[nodiscard]] uint32_t NameOf(const char* name) noexcept;

  const Cupti cupti_;
  std::atomic<bool> tracing_{false};
  std::atomic<bool> ended_{false};
  std::atomic<uint32_t> free_buffers_{~uint32_t{0}};  // bit i: buffer i is ours to give
  std::atomic<uint64_t> lost_{0};
  uint8_t* buffers_ = nullptr;
  bool calls_chosen_ = false;  // of the calls, only launches are recorded
  bool calls_judged_ = false;  // and that is known to be enough, or not
  char reason_[160] = {};
  bool yielded_ = false;

  std::mutex turn_;   // of those who start, flush and stop; covers the members above
  std::mutex mutex_;  // covers the rings
  Rings* rings_ = nullptr;
};

}  // namespace nanwatch::device
