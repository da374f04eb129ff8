// SPDX-License-Identifier: Apache-2.0
// The check kernels' entry points. Compiled to PTX by scripts/build-kernels.sh with Debian's clang,
// without CUDA's headers: everything of the language that is used here is declared here.
#define __CUDACC__ 1
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ __attribute__((always_inline)) inline

#include "shim/device/check_batch.h"
#include "shim/device/check_kernel.h"
#include "shim/device/check_list.h"
#include "shim/device/compare_list.h"
#include "shim/device/measure_list.h"
#include "shim/device/sum_list.h"

namespace nanwatch::device {
namespace {

using GlobalVector = uint32_t __attribute__((ext_vector_type(4)));

// The memory of a GPU. Addresses are of its global window, which holds the host's memory too.
struct GpuMemory {
  template <class Type>
  using Global = __attribute__((address_space(1))) Type;

  __device__ __forceinline__ static Vector LoadVector(uint64_t address) {
    const GlobalVector vector = *reinterpret_cast<const Global<GlobalVector>*>(address);
    return {{vector.x, vector.y, vector.z, vector.w}};
  }
  template <class Word>
  __device__ __forceinline__ static Word LoadPart(uint64_t address) {
    return *reinterpret_cast<const Global<Word>*>(address);
  }
  __device__ __forceinline__ static void ForgetBlock() { asm volatile("" ::: "memory"); }
  __device__ __forceinline__ static void OrInBlock(uint32_t* word, uint32_t bits) {
    __nvvm_atom_cta_or_gen_i(reinterpret_cast<int*>(word), static_cast<int>(bits));
  }
  __device__ __forceinline__ static void OrInDevice(uint64_t address, uint32_t bits) {
    asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(address), "r"(bits) : "memory");
  }
  __device__ __forceinline__ static uint32_t AddInDevice(uint64_t address, uint32_t value) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(address), "r"(value)
                 : "memory");
    return before;
  }
  __device__ __forceinline__ static uint32_t TakeInDevice(uint64_t address) {
    uint32_t before;
    asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], 0;"
                 : "=r"(before)
                 : "l"(address)
                 : "memory");
    return before;
  }
  __device__ __forceinline__ static void AddDoubleInDevice(uint64_t address, double value) {
    asm volatile("red.relaxed.gpu.global.add.f64 [%0], %1;" ::"l"(address), "d"(value) : "memory");
  }
  __device__ __forceinline__ static double TakeDoubleInDevice(uint64_t address) {
    uint64_t before;
    asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], 0;"
                 : "=l"(before)
                 : "l"(address)
                 : "memory");
    return __builtin_bit_cast(double, before);
  }
  __device__ __forceinline__ static void StoreInDevice(uint64_t address, uint32_t value) {
    *reinterpret_cast<Global<uint32_t>*>(address) = value;
  }
  __device__ __forceinline__ static float FloatOfHalf(uint16_t word) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(word));
    return value;
  }
  __device__ __forceinline__ static void PublishToHost(uint64_t address, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
  }
};

struct GpuTeam {
  uint32_t thread;
  Tally tally;

  template <class Phase>
  __device__ __forceinline__ void Each(Phase phase) {
    phase(thread, tally);
    __syncthreads();
  }
};

// Types of its own for nanwatch_sum_list: functions that two kernels call are optimised before they
// are inlined, and nanwatch_check_list would have another text.
struct SumMemory : GpuMemory {};
struct SumTeam : GpuTeam {};
// The same for nanwatch_measure_list.
struct MeasureMemory : GpuMemory {
  __device__ __forceinline__ static void AddLongInDevice(uint64_t address, uint64_t value) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
  }
  __device__ __forceinline__ static void RaiseInDevice(uint64_t address, uint64_t value) {
    asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
  }
};
struct MeasureTeam : GpuTeam {};
// And for nanwatch_check_batch.
struct BatchMemory : GpuMemory {
  __device__ __forceinline__ static uint32_t LoadInDevice(uint64_t address) {
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
  }
  __device__ __forceinline__ static uint32_t CountUpTo(const uint32_t* ends, uint32_t count,
                                                       uint32_t tile) {
    const auto lane = static_cast<uint32_t>(__nvvm_read_ptx_sreg_tid_x()) % 32;
    const bool is_before = lane < count && ends[lane] <= tile;
    return static_cast<uint32_t>(
        __builtin_popcount(__nvvm_vote_ballot_sync(0xffffffffu, is_before)));
  }
};
struct BatchTeam : GpuTeam {};
// And for nanwatch_compare_list.
struct CompareMemory : MeasureMemory {};
struct CompareTeam : GpuTeam {};

__device__ __forceinline__ uint32_t ThisThread() {
  return static_cast<uint32_t>(__nvvm_read_ptx_sreg_tid_x());
}
__device__ __forceinline__ Place ThisPlace() {
  return {static_cast<uint32_t>(__nvvm_read_ptx_sreg_ctaid_x()),
          static_cast<uint32_t>(__nvvm_read_ptx_sreg_nctaid_x())};
}

template <class Launch>
__device__ __forceinline__ void Check(const Launch& launch) {
  __shared__ BlockState block;
  GpuTeam team = {ThisThread(), {}};
  CopyLaunch(launch, block, team.thread);
  __syncthreads();
  CheckBlock<GpuMemory>(block, ThisPlace(), team);
}

}  // namespace
}  // namespace nanwatch::device

// At most 64 registers a thread, so that two blocks are resident everywhere (GridFor).
#define NANWATCH_KERNEL                               \
  extern "C" __global__ __attribute__((launch_bounds( \
      nanwatch::device::kThreadsPerBlock, nanwatch::device::kBlocksPerMultiprocessor))) void

NANWATCH_KERNEL nanwatch_check_few(const nanwatch::device::FewLaunch launch) {
  nanwatch::device::Check(launch);
}

NANWATCH_KERNEL nanwatch_check_many(const nanwatch::device::ManyLaunch launch) {
  nanwatch::device::Check(launch);
}

NANWATCH_KERNEL nanwatch_check_list(const nanwatch::device::ListLaunch launch) {
  using namespace nanwatch::device;
  __shared__ ListState block;
  GpuTeam team = {ThisThread(), {}};
  CopyList(launch, block, team.thread);
  __syncthreads();
  CheckListBlock<GpuMemory>(block, ThisPlace(), team);
}

NANWATCH_KERNEL nanwatch_sum_list(const nanwatch::device::ListLaunch launch) {
  using namespace nanwatch::device;
  __shared__ SumState block;
  SumTeam team = {{ThisThread(), {}}};
  CopyList(launch, block.list, team.thread);
  __syncthreads();
  SumListBlock<SumMemory>(block, ThisPlace(), team);
}

NANWATCH_KERNEL nanwatch_measure_list(const nanwatch::device::ListLaunch launch) {
  using namespace nanwatch::device;
  __shared__ MeasureState block;
  MeasureTeam team = {{ThisThread(), {}}};
  CopyList(launch, block.list, team.thread);
  __syncthreads();
  MeasureListBlock<MeasureMemory>(block, ThisPlace(), team);
}

NANWATCH_KERNEL nanwatch_compare_list(const nanwatch::device::ListLaunch launch) {
  using namespace nanwatch::device;
  __shared__ MeasureState block;
  CompareTeam team = {{ThisThread(), {}}};
  CopyList(launch, block.list, team.thread);
  __syncthreads();
  CompareListBlock<CompareMemory>(block, ThisPlace(), team);
}

NANWATCH_KERNEL nanwatch_check_batch(const nanwatch::device::BatchLaunch launch) {
  using namespace nanwatch::device;
  __shared__ BatchState block;
  BatchTeam team = {{ThisThread(), {}}};
  CopyBatch(launch, block, team.thread);
  __syncthreads();
  CheckBatchBlock<BatchMemory>(block, ThisPlace(), team);
}

// Launched behind a step with one thread: the step in the order of the stream, which the host,
// running ahead, does not know.
extern "C" __global__ void nanwatch_add_step(const nanwatch::device::StepLaunch launch) {
  auto* const words = reinterpret_cast<nanwatch::device::StepWords*>(launch.words);
  words->steps += 1;
  words->counted = nanwatch::device::CountedAfter(words->counted, launch.steps);
}
