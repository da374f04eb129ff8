// SPDX-License-Identifier: Apache-2.0
#include "shim/device/kernel_trace.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <new>

#include "proto/wire/hash.h"
#include "shim/host/zeroed_memory.h"

namespace nanwatch::device {
namespace {

// CUPTI's callbacks carry no pointer of ours.
std::atomic<KernelTrace*> the_trace{nullptr};

// Our own kernels: nanwatch_check_few and the like.
constexpr char kOwnPrefix[] = "nanwatch_";

// So many kernels must have come before it is decided whether all calls have to be recorded.
constexpr uint64_t kKernelsComparedMin = 256;

constexpr size_t kNamePlaces = kKernelNamesKept * 2;
static_assert(std::has_single_bit(kNamePlaces));

template <class T>
T Load(const CuptiRecord& record) {
  T loaded;
  std::memcpy(&loaded, &record, sizeof loaded);
  return loaded;
}

// For this moment only: what is used needs no subscription.
CuptiResult TrySubscribing(const Cupti& cupti) {
  const auto never_called = [](void*, int32_t, uint32_t, const void*) {};
  CuptiSubscriber subscriber = nullptr;
  const CuptiResult result = cupti.subscribe(&subscriber, never_called, nullptr);
  return result == kCuptiSuccess ? cupti.unsubscribe(subscriber) : result;
}

}  // namespace

// Entry i of each ring lies at i % its size. Zero as the memory comes.
struct KernelTrace::Rings {
  uint64_t launches_seen;
  uint64_t kernels_seen;
  uint64_t calls_seen;
  uint64_t buffers_seen;
  uint64_t kernels_in_graphs;
  uint32_t names_used;
  uint32_t places[kNamePlaces];  // by the name's hash; 0: free, else as in Kernel
  Launch launches[kLaunchesKept];
  Kernel kernels[kKernelsKept];
  uint32_t calls[kLaunchesKept];  // correlation numbers
  char names[kKernelNamesKept][kKernelNameBytes];
};

KernelTrace* KernelTrace::Create(const Cupti& cupti) noexcept {
  static_assert(kBuffers == 32, "free_buffers_ has a bit for each");
  auto* made = new (std::nothrow) KernelTrace(cupti);
  if (made == nullptr) return nullptr;
  made->rings_ = static_cast<Rings*>(MapZeroed(sizeof(Rings)));
  made->buffers_ = static_cast<uint8_t*>(MapZeroed(kBufferBytes * kBuffers));
  if (made->rings_ == nullptr || made->buffers_ == nullptr) return nullptr;
  return made;
}

const char* KernelTrace::Start() noexcept {
  const std::lock_guard<std::mutex> turn(turn_);
  if (ended_.load(std::memory_order_relaxed)) return "the process is ending";
  if (yielded_) return "a profiler was started first";
  if (cupti_.absent_required != nullptr) {
    std::snprintf(reason_, sizeof reason_, "this process's CUPTI has no %s",
                  cupti_.absent_required);
    return reason_;
  }
  uint32_t version = 0;
  if (cupti_.get_version(&version) != kCuptiSuccess || !IsKnownCupti(version)) {
    std::snprintf(
        reason_, sizeof reason_,
        "this process's CUPTI reports version %u, and only those of CUDA 12 and 13 are known",
        version);
    return reason_;
  }
  CuptiResult result = TrySubscribing(cupti_);
  if (result == kCuptiMultipleSubscribers) {
    return "another profiler (Nsight, torch.profiler, a CUPTI tool) holds CUPTI";
  }
  const char* call = "cuptiSubscribe";
  if (result == kCuptiSuccess) {
    the_trace.store(this, std::memory_order_release);
    call = "cuptiActivityRegisterCallbacks";
    result = cupti_.register_callbacks(&OnBufferRequested, &OnBufferDone);
  }
  if (result == kCuptiSuccess) {
    tracing_.store(true, std::memory_order_release);
    call = "cuptiActivityEnable";
    result = EnableAll(version);
  }
  if (result == kCuptiSuccess) return nullptr;
  if (tracing_.exchange(false)) DisableAll();
  std::snprintf(reason_, sizeof reason_, "%s returned CUPTI error %d%s", call, result,
                result == kCuptiInsufficientPrivileges
                    ? ": the driver lets only administrators profile here"
                    : "");
  return reason_;
}

CuptiResult KernelTrace::EnableAll(uint32_t version) noexcept {
  for (const int32_t kind : {kCuptiExternalCorrelation, kCuptiConcurrentKernel}) {
    if (const CuptiResult result = cupti_.enable(kind); result != kCuptiSuccess) return result;
  }
  // Only recorded calls have numbers, and of those only launches matter: a step makes ten other
  // calls for each.
  calls_chosen_ = cupti_.enable_runtime_call != nullptr && cupti_.enable_driver_call != nullptr;
  CuptiResult result = kCuptiSuccess;
  const auto keep_first = [&result](CuptiResult next) {
    if (result == kCuptiSuccess) result = next;
  };
  if (calls_chosen_) {
    for (const uint32_t call : kCuptiRuntimeLaunches) {
      keep_first(cupti_.enable_runtime_call(call, 1));
    }
    if (HasCallsOf13(version)) {
      for (const uint32_t call : kCuptiRuntimeLaunchesSince13) {
        keep_first(cupti_.enable_runtime_call(call, 1));
      }
    }
    for (const uint32_t call : kCuptiDriverLaunches) keep_first(cupti_.enable_driver_call(call, 1));
  }
  if (!calls_chosen_ || result != kCuptiSuccess) {
    calls_chosen_ = false;
    result = cupti_.enable(kCuptiRuntimeApi);
    keep_first(cupti_.enable(kCuptiDriverApi));
  }
  return result;
}

void KernelTrace::DisableAll() noexcept {
  if (cupti_.enable_runtime_call != nullptr && cupti_.enable_driver_call != nullptr) {
    for (const uint32_t call : kCuptiRuntimeLaunches) (void)cupti_.enable_runtime_call(call, 0);
    // An older CUPTI refuses these, and nothing comes of it.
    for (const uint32_t call : kCuptiRuntimeLaunchesSince13) {
      (void)cupti_.enable_runtime_call(call, 0);
    }
    for (const uint32_t call : kCuptiDriverLaunches) (void)cupti_.enable_driver_call(call, 0);
  }
  if (!calls_chosen_) {
    (void)cupti_.disable(kCuptiRuntimeApi);
    (void)cupti_.disable(kCuptiDriverApi);
  }
  (void)cupti_.disable(kCuptiConcurrentKernel);
  (void)cupti_.disable(kCuptiExternalCorrelation);
}

bool KernelTrace::Yield() noexcept {
  const std::lock_guard<std::mutex> turn(turn_);
  yielded_ = true;
  // No buffer is given from here on, so that none is left behind.
  if (!tracing_.exchange(false, std::memory_order_acq_rel)) return false;
  DisableAll();
  (void)cupti_.flush_all(kCuptiFlushForced);
  return true;
}

void KernelTrace::End() noexcept {
  const std::lock_guard<std::mutex> turn(turn_);
  tracing_.store(false, std::memory_order_release);
  ended_.store(true, std::memory_order_release);
}

void KernelTrace::Tend() noexcept {
  const std::lock_guard<std::mutex> turn(turn_);
  if (!Tracing() || !calls_chosen_) return;
  if (calls_judged_) return;
  Compared compared;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (rings_->kernels_seen < kKernelsComparedMin) return;
    compared = CompareNewest();
  }
  calls_judged_ = true;
  // Not every kernel is an op's (compiled regions launch their own), so one op's is enough. But
  // most must have come with the call that launched them.
  if (compared.of_ops > 0 && compared.called * 2 >= compared.kernels) return;
  calls_chosen_ = false;
  (void)cupti_.enable(kCuptiRuntimeApi);
  (void)cupti_.enable(kCuptiDriverApi);
}

KernelTrace::Compared KernelTrace::CompareNewest() const noexcept {
  const Rings& rings = *rings_;
  const size_t count = std::min(rings.kernels_seen, kKernelsComparedMax);
  uint32_t kernels[kKernelsComparedMax];
  for (size_t i = 0; i < count; ++i) {
    kernels[i] = rings.kernels[(rings.kernels_seen - 1 - i) % kKernelsKept].correlation;
  }
  std::sort(kernels, kernels + count);
  bool called[kKernelsComparedMax] = {};
  bool of_op[kKernelsComparedMax] = {};
  const auto mark = [&kernels, count](uint32_t correlation, bool* marks) {
    const uint32_t* const at = std::lower_bound(kernels, kernels + count, correlation);
    if (at != kernels + count && *at == correlation) marks[at - kernels] = true;
  };
  const size_t calls = std::min<uint64_t>(rings.calls_seen, kLaunchesKept);
  for (size_t i = 0; i < calls; ++i) mark(rings.calls[i], called);
  const size_t launches = std::min<uint64_t>(rings.launches_seen, kLaunchesKept);
  for (size_t i = 0; i < launches; ++i) mark(rings.launches[i].correlation, of_op);
  return {.kernels = count,
          .called = static_cast<size_t>(std::count(called, called + count, true)),
          .of_ops = static_cast<size_t>(std::count(of_op, of_op + count, true))};
}

void KernelTrace::Flush(bool all) noexcept {
  const std::lock_guard<std::mutex> turn(turn_);
  if (Tracing()) (void)cupti_.flush_all(all ? kCuptiFlushForced : 0);
}

// ---- buffers

void KernelTrace::OnBufferRequested(uint8_t** buffer, size_t* bytes, size_t* records_max) {
  KernelTrace& trace = *the_trace.load(std::memory_order_acquire);
  *buffer = nullptr;
  *bytes = 0;
  *records_max = 0;  // as many as fit
  if (!trace.Tracing()) return;
  uint32_t free = trace.free_buffers_.load(std::memory_order_relaxed);
  while (free != 0) {
    const uint32_t lowest = free & (~free + 1);
    if (!trace.free_buffers_.compare_exchange_weak(free, free & ~lowest,
                                                   std::memory_order_acquire)) {
      continue;
    }
    *buffer = trace.buffers_ + static_cast<size_t>(std::countr_zero(lowest)) * kBufferBytes;
    *bytes = kBufferBytes;
    return;
  }
}

void KernelTrace::OnBufferDone(CuContext context, uint32_t stream, uint8_t* buffer, size_t,
                               size_t bytes_valid) {
  KernelTrace& trace = *the_trace.load(std::memory_order_acquire);
  const auto offset = static_cast<size_t>(buffer - trace.buffers_);
  if (buffer < trace.buffers_ || offset >= kBufferBytes * kBuffers) return;  // nobody's of ours
  trace.Read(buffer, std::min(bytes_valid, kBufferBytes));
  size_t dropped = 0;
  if (trace.cupti_.dropped_records(context, stream, &dropped) == kCuptiSuccess) {
    trace.lost_.fetch_add(dropped, std::memory_order_relaxed);
  }
  // What was called back unfinished may still be written to.
  if (!trace.Tracing()) return;
  trace.free_buffers_.fetch_or(uint32_t{1} << (offset / kBufferBytes), std::memory_order_release);
}

void KernelTrace::Read(uint8_t* buffer, size_t bytes_valid) noexcept {
  if (bytes_valid == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++rings_->buffers_seen;
  CuptiRecord* record = nullptr;
  // The shortest record has 8 bytes.
  for (size_t i = 0; i < bytes_valid / 8; ++i) {
    if (cupti_.next_record(buffer, bytes_valid, &record) != kCuptiSuccess || record == nullptr) {
      return;
    }
    Take(*record);
  }
}

void KernelTrace::Take(const CuptiRecord& record) noexcept {
  Rings& rings = *rings_;
  if (record.kind == kCuptiExternalCorrelation) {
    const auto given = Load<CuptiExternalId>(record);
    if (given.id_kind != kCuptiOurIds) return;
    rings.launches[rings.launches_seen++ % kLaunchesKept] = {given.id, given.correlation};
    return;
  }
  if (record.kind == kCuptiRuntimeApi || record.kind == kCuptiDriverApi) {
    rings.calls[rings.calls_seen++ % kLaunchesKept] = Load<CuptiCall>(record).correlation;
    return;
  }
  if (record.kind != kCuptiConcurrentKernel) return;
  const auto kernel = Load<CuptiKernel>(record);
  if (kernel.name == nullptr || std::strncmp(kernel.name, kOwnPrefix, sizeof kOwnPrefix - 1) == 0) {
    return;
  }
  if (kernel.graph != 0) {
    ++rings.kernels_in_graphs;
    return;
  }
  const uint64_t nanoseconds = kernel.end > kernel.start ? kernel.end - kernel.start : 0;
  const uint32_t name = NameOf(kernel.name);
  if (name == 0) lost_.fetch_add(1, std::memory_order_relaxed);
  rings.kernels[rings.kernels_seen++ % kKernelsKept] = {nanoseconds, kernel.correlation, name};
}

// Copied, because nobody promises that it outlives the kernel's module.
uint32_t KernelTrace::NameOf(const char* name) noexcept {
  Rings& rings = *rings_;
  const size_t length = strnlen(name, kKernelNameBytes - 1);
  for (uint64_t at = wire::Fnv1a(std::string_view(name, length));; ++at) {
    uint32_t& place = rings.places[at & (kNamePlaces - 1)];
    if (place != 0) {
      const char* const known = rings.names[place - 1];
      if (std::strncmp(known, name, length) == 0 && known[length] == '\0') return place;
      continue;
    }
    if (rings.names_used == kKernelNamesKept) return 0;
    std::memcpy(rings.names[rings.names_used], name, length);
    return place = ++rings.names_used;
  }
}

// ---- what an op ran

TraceRecords KernelTrace::Records() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {.buffers = rings_->buffers_seen,
          .kernels = rings_->kernels_seen,
          .kernels_in_graphs = rings_->kernels_in_graphs,
          .launches = rings_->launches_seen,
          .matched = CompareNewest().of_ops};
}

size_t KernelTrace::Gather(uint64_t op, std::span<OpKernel> kernels) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Rings& rings = *rings_;
  constexpr size_t kLaunchesOfOpMax = 256;
  uint32_t launched[kLaunchesOfOpMax];
  size_t launches = 0;
  const size_t launches_kept = std::min<uint64_t>(rings.launches_seen, kLaunchesKept);
  for (size_t i = 0; i < launches_kept && launches < kLaunchesOfOpMax; ++i) {
    if (rings.launches[i].op == op) launched[launches++] = rings.launches[i].correlation;
  }
  if (launches == 0) return 0;
  size_t count = 0;
  const size_t kernels_kept = std::min<uint64_t>(rings.kernels_seen, kKernelsKept);
  for (size_t i = 0; i < kernels_kept; ++i) {
    const Kernel& kernel = rings.kernels[i];
    if (kernel.name == 0 ||
        std::find(launched, launched + launches, kernel.correlation) == launched + launches) {
      continue;
    }
    const char* const name = rings.names[kernel.name - 1];
    OpKernel* const end = kernels.data() + count;
    OpKernel* same =
        std::find_if(kernels.data(), end, [name](const OpKernel& k) { return k.name == name; });
    if (same == end && count == kernels.size()) continue;
    if (same == end) kernels[count++] = {name, 0, 0};
    ++same->count;
    same->nanoseconds += kernel.nanoseconds;
  }
  std::sort(kernels.begin(), kernels.begin() + static_cast<ptrdiff_t>(count),
            [](const OpKernel& a, const OpKernel& b) { return a.nanoseconds > b.nanoseconds; });
  return count;
}

}  // namespace nanwatch::device
