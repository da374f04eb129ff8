// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/gpu_checks.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "shim/device/check_binary.h"
#include "shim/device/check_kernel.h"
#include "shim/device/check_list.h"
#include "shim/device/check_ptx.h"
#include "shim/device/driver.h"
#include "shim/host/zeroed_memory.h"
#include "shim/observe/gpu/gpu_counts.h"

namespace nanwatch {
namespace {

using device::DeviceTensor;

// Longer than a busy stream takes for the launches after which it reports anyway.
constexpr uint64_t kProgressAfterNs = 1'000'000;

size_t result_bytes = 0;  // for one GPU

// Shared, so that a fork leaves it where it is: of private pages the parent's next write would make
// copies, and the GPU would go on writing to the ones before.
std::span<std::byte> ResultMemory(void* context, int device) {
  (void)device;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = (*static_cast<size_t*>(context) + page - 1) / page * page;
  auto* memory = static_cast<std::byte*>(MapZeroed(bytes, MAP_SHARED));
  return memory != nullptr ? std::span<std::byte>{memory, bytes} : std::span<std::byte>{};
}

// A thread's thread-locals are destroyed in the reverse order of their making, those of the main
// thread before any exit handler runs. This one is made behind libtorch's current streams, and so
// goes before them.
thread_local bool streams_end __attribute__((tls_model("initial-exec"))) = false;
struct StreamsEnd {
  StreamsEnd() noexcept {}
  ~StreamsEnd() { streams_end = true; }
};

struct LaunchView {
  const device::LaunchHead& head;
  const DeviceTensor* tensors;
};

uint32_t Grid(const device::LaunchHead& head, const DeviceTensor* tensors, int multiprocessors) {
  return device::GridFor(LaunchView{head, tensors}, static_cast<uint32_t>(multiprocessors));
}

uint32_t ListGrid(const device::ListLaunch& launch, int multiprocessors) {
  return device::ListGridFor(launch, static_cast<uint32_t>(multiprocessors));
}

DeviceTensor Describe(const InputSeen& seen) {
  DeviceTensor tensor{};
  tensor.data = reinterpret_cast<uintptr_t>(seen.data);
  tensor.numel = seen.numel;
  tensor.type = static_cast<uint8_t>(seen.type);
  if (IsOneRun(seen.View(), /*in_any_order=*/false)) return tensor;
  tensor.one_run = IsOneRun(seen.View(), /*in_any_order=*/true) ? 1 : 0;
  tensor.ndim = seen.ndim;
  for (int d = 0; d < seen.ndim; ++d) {
    tensor.sizes[d] = seen.sizes[d];
    tensor.strides[d] = seen.strides[d];
  }
  return tensor;
}

// libtorch's own answer to which stream is current, a function of its C interface. An interposed
// one comes first.
void* FindCurrentStream() {
  constexpr char kName[] = "aoti_torch_get_current_cuda_stream";
  if (void* found = dlsym(RTLD_DEFAULT, kName); found != nullptr) return found;
  void* library = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  return library != nullptr ? dlsym(library, kName) : nullptr;
}

}  // namespace

bool GpuChecks::Begin(const char** why) noexcept {
  *why = "this process's libtorch does not tell its current CUDA stream";
  current_stream_ = reinterpret_cast<decltype(current_stream_)>(FindCurrentStream());
  if (current_stream_ == nullptr) return false;
  *why = "this process has loaded no CUDA driver that the checks can use";
  const auto driver = device::DriverOfProcess();
  if (!driver) return false;
  context_get_current_ = driver->context_get_current;
  context_get_device_ = driver->context_get_device;
  mem_get_info_ = driver->mem_get_info;
  answers_ = static_cast<GpuAnswer*>(MapZeroed(kAnswers * sizeof(GpuAnswer)));
  results_ = static_cast<device::CheckResult*>(MapZeroed(kAnswers * sizeof(device::CheckResult)));
  sums_ = static_cast<device::ListSums*>(MapZeroed(kAnswers * sizeof(device::ListSums)));
  if (answers_ == nullptr || results_ == nullptr || sums_ == nullptr) return false;
  device::CheckerOptions options;
  options.memory_for = &ResultMemory;
  options.memory_context = &result_bytes;
  result_bytes = device::HostBytesFor(options);
  const device::KernelText text = device::CheckPtx();
  options.image = text.text;
  options.image_bytes = text.text_bytes;
  options.binary = device::CheckBinary();
  options.grid_for = &Grid;
  options.list_grid_for = &ListGrid;
  // Of the ops of a training step there are some thousands. Each takes a kilobyte of memory that
  // cannot be paged out, and its event two more.
  options.captured_slots = 8192;
  options.progress_after_ns = kProgressAfterNs;
  checker_ = device::DeviceChecker::Create(*driver, options).release();
  return checker_ != nullptr;
}

device::CuStream GpuChecks::CurrentStream(int gpu) const noexcept {
  if (streams_end) return nullptr;
  void* stream = nullptr;
  // Reads a thread-local variable of libtorch's; fails only before CUDA is up.
  const bool told = current_stream_(gpu, &stream) == 0;
  static thread_local const StreamsEnd made_behind_it;
  (void)made_behind_it;
  return told ? static_cast<device::CuStream>(stream) : nullptr;
}

void GpuChecks::BeginExit() noexcept {
  streams_end = true;
  at_exit_.store(true, std::memory_order_release);
}

// At exit nothing follows, and what is looked at was launched long ago.
bool GpuChecks::MayLaunch() const noexcept { return !streams_end || AtExit(); }

device::CuStream GpuChecks::EnterStream(ThreadState* thread, int gpu) noexcept {
  const device::CuStream stream = CurrentStream(gpu);
  const uint32_t bit = uint32_t{1} << (static_cast<uint32_t>(gpu) % 32);
  if ((gpus_seen_.load(std::memory_order_relaxed) & bit) == 0) gpus_seen_.fetch_or(bit);
  // What was last launched on the default stream may be the last for long.
  if (thread->last_stream != stream || thread->last_gpu != gpu + 1) Ask(thread);
  thread->last_stream = stream;
  thread->last_gpu = static_cast<uint8_t>(gpu + 1);
  return stream;
}

GpuChecks::Launched GpuChecks::Check(ThreadState* thread, std::span<const InputSeen* const> outputs,
                                     std::span<const InputSeen* const> inputs,
                                     bool reports) noexcept {
  if (!MayLaunch()) return {};
  DeviceTensor output_list[device::kOutputsMax];
  DeviceTensor input_list[device::kInputsMax];
  size_t output_count = 0;
  size_t input_count = 0;
  for (const InputSeen* output : outputs) output_list[output_count++] = Describe(*output);
  for (const InputSeen* input : inputs) input_list[input_count++] = Describe(*input);
  const int gpu = outputs.front()->gpu;
  const device::CuStream stream = EnterStream(thread, gpu);
  return WhatBecameOf(checker_->Enqueue({.stream = stream,
                                         .device = gpu,
                                         .outputs = {output_list, output_count},
                                         .inputs = {input_list, input_count},
                                         .reports = reports || stream != nullptr}),
                      gpu);
}

GpuChecks::Launched GpuChecks::CheckList(ThreadState* thread, const TensorList& list, bool reports,
                                         bool sums, bool kinds_only) noexcept {
  if (!MayLaunch()) return {};
  const device::CuStream stream = EnterStream(thread, list.gpu());
  return WhatBecameOf(checker_->EnqueueList({.stream = stream,
                                             .device = list.gpu(),
                                             .gate = list.entries(),
                                             .others = {},
                                             .reports = reports || stream != nullptr,
                                             .sums = sums,
                                             .kinds_only = kinds_only,
                                             .tiles = list.tiles()}),
                      list.gpu());
}

GpuChecks::Launched GpuChecks::CheckBatch(int gpu, device::CuStream stream,
                                          std::span<const device::BatchEntry> entries,
                                          std::span<const device::BatchEntry> others,
                                          uint32_t phase) noexcept {
  if (!MayLaunch()) return {};
  return WhatBecameOf(checker_->EnqueueBatch({.stream = stream,
                                              .device = gpu,
                                              .entries = entries,
                                              .others = others,
                                              .phase = phase,
                                              .reports_masks = true,
                                              .reports = stream != nullptr}),
                      gpu);
}

GpuChecks::Launched GpuChecks::MeasureList(ThreadState* thread,
                                           std::span<const InputSeen* const> list,
                                           std::span<const device::SampleSpan> samples) noexcept {
  if (!MayLaunch()) return {};
  device::ListEntry entries[device::kMeasuredMax];
  size_t count = 0;
  for (const InputSeen* tensor : list) entries[count++] = EntryOf(*tensor);
  const int gpu = list.front()->gpu;
  const device::CuStream stream = EnterStream(thread, gpu);
  return WhatBecameOf(checker_->EnqueueList({.stream = stream,
                                             .device = gpu,
                                             .gate = {entries, count},
                                             .others = {},
                                             .reports = stream != nullptr,
                                             .sums = false,
                                             .measures = true,
                                             .samples = samples}),
                      gpu);
}

GpuChecks::Launched GpuChecks::WhatBecameOf(const device::Enqueued& enqueued, int gpu) noexcept {
  using device::Skip;
  const uint32_t bit = uint32_t{1} << (static_cast<uint32_t>(gpu) % 32);
  Launched launched;
  switch (enqueued.skip) {
    case Skip::kNone:
      launched.ticket = enqueued.first_ticket;
      launched.graph = enqueued.graph;
      launched.slot = enqueued.captured_slot;
      break;
    case Skip::kNothingToCheck:
      launched.nothing_to_check = true;
      break;
    case Skip::kNoSlot:
    case Skip::kStreamNoSlot:
    case Skip::kNoStreamEntry:
    case Skip::kNoCapturedSlot:
    case Skip::kNoGraphEntry:
      launched.reason = wire::Unchecked::kGpuBusy;
      break;
    case Skip::kSteppedDown:
      if (const char* why = checker_->Reason(gpu);
          (gpus_down_.fetch_or(bit) & bit) == 0 && why != nullptr && *why != '\0') {
        launched.down = why;
      }
      break;
    default:
      break;
  }
  return launched;
}

void GpuChecks::AddStep(const ThreadState* thread) noexcept {
  const int gpu = thread->last_gpu - 1;
  if (gpu >= 0 && MayLaunch()) (void)checker_->AddStep(gpu, CurrentStream(gpu));
}

void GpuChecks::Ask(const ThreadState* thread) noexcept {
  // The default stream is always there. Others may have been destroyed since, and report by
  // themselves.
  const int gpu = thread->last_gpu - 1;
  if (gpu >= 0 && thread->last_stream == nullptr) (void)checker_->Flush(gpu, nullptr);
}

void GpuChecks::AskAll() noexcept {
  for (uint32_t gpus = gpus_seen(); gpus != 0; gpus &= gpus - 1) {
    (void)checker_->Flush(__builtin_ctz(gpus), nullptr);
  }
}

bool GpuChecks::AllSetUp() noexcept {
  for (uint32_t gpus = gpus_seen(); gpus != 0; gpus &= gpus - 1) {
    const int gpu = __builtin_ctz(gpus);
    if (!checker_->Ready(gpu) && checker_->Reason(gpu) == nullptr) return false;
  }
  return true;
}

GpuChecks::Graph GpuChecks::CapturedInto(const ThreadState* thread) const noexcept {
  if (streams_end) return {};
  // The GPU that this thread last used, else any.
  uint32_t gpus = thread->last_gpu != 0 ? uint32_t{1} << (thread->last_gpu - 1) : gpus_seen();
  for (; gpus != 0; gpus &= gpus - 1) {
    const int gpu = __builtin_ctz(gpus);
    const uint32_t number = checker_->CapturedInto(gpu, CurrentStream(gpu));
    if (number != 0) return {gpu, number};
  }
  return {};
}

uint64_t GpuChecks::Mark(int gpu) noexcept {
  if (!MayLaunch()) return 0;
  const device::Enqueued mark = checker_->Mark(gpu, CurrentStream(gpu));
  return mark.skip == device::Skip::kNone ? mark.first_ticket : 0;
}

bool GpuChecks::FindReplayed(int gpu, uint32_t slot, uint64_t after, uint64_t through,
                             GpuAnswer* answer) noexcept {
  using device::Found;
  const Found found = checker_->FoundIn(gpu, slot, after, through, &replayed_);
  if (found == Found::kNothing) return false;
  // Of a later replay the kinds alone are known, and taken to be those of the first.
  if (found == Found::kAgain) replayed_.brief = 1;
  *answer = {replayed_.ticket, device::Finished::Outcome::kBad, &replayed_};
  return true;
}

std::span<const uint64_t> GpuChecks::TakeNoticed() noexcept {
  const size_t count = noticed_count_;
  noticed_count_ = 0;
  return {noticed_, count};
}

void GpuChecks::OnFinished(void* self, const device::Finished& finished) {
  auto* checks = static_cast<GpuChecks*>(self);
  if (finished.captured) {
    if (checks->noticed_count_ < kNoticedMax) {
      checks->noticed_[checks->noticed_count_++] = finished.ticket;
    }
    return;
  }
  checks->newest_answer_ = std::max(checks->newest_answer_, finished.ticket);
  GpuAnswer& answer = checks->answers_[finished.ticket % kAnswers];
  device::CheckResult& result = checks->results_[finished.ticket % kAnswers];
  if (finished.result != nullptr) result = *finished.result;
  answer = {finished.ticket, finished.outcome, &result};
  if (finished.sums != nullptr) {
    device::ListSums& sums = checks->sums_[finished.ticket % kAnswers];
    sums = *finished.sums;
    answer.sums = &sums;
  }
  if (finished.measures != nullptr) {
    auto& kept = reinterpret_cast<device::MeasureResult&>(result);
    std::copy_n(finished.measures, device::kMeasuredMax, kept.measures);
    answer.measures = kept.measures;
  }
  if (finished.result == nullptr) return;
  for (const uint8_t kinds : finished.result->output_kinds) {
    checks->hit_ |= (kinds & (wire::kHasNan | wire::kHasPosInf)) != 0;
  }
}

void GpuChecks::Collect() noexcept { (void)checker_->Poll(&OnFinished, this); }

const GpuAnswer* GpuChecks::Find(uint64_t ticket, bool* lost) noexcept {
  const GpuAnswer& answer = answers_[ticket % kAnswers];
  *lost = answer.ticket > ticket ||
          (answer.ticket == ticket && answer.outcome == device::Finished::Outcome::kLost);
  return answer.ticket == ticket && !*lost ? &answer : nullptr;
}

bool GpuChecks::DriverIsUp() const noexcept {
  device::CuContext context = nullptr;
  return context_get_current_ != nullptr && context_get_current_(&context) == device::kCuSuccess;
}

int GpuChecks::CurrentGpu() const noexcept {
  device::CuDevice device = -1;
  if (context_get_device_ != nullptr && context_get_device_(&device) == device::kCuSuccess) {
    return device;
  }
  const uint32_t seen = gpus_seen();
  return std::has_single_bit(seen) ? std::countr_zero(seen) : -1;
}

bool GpuChecks::IsMemoryScarce() const noexcept {
  // Of 80 GB five: more than a job asks for at once, and has not got, but for our 32 MiB.
  constexpr size_t kShare = 16;
  constexpr size_t kAlwaysScarce = size_t{1} << 30;
  size_t free = 0;
  size_t total = 0;
  return mem_get_info_ == nullptr || mem_get_info_(&free, &total) != device::kCuSuccess ||
         free < std::max(total / kShare, kAlwaysScarce);
}

bool GpuChecks::ReadableForEver() const noexcept {
  const uint32_t seen = gpus_seen_.load();
  for (int gpu = 0; gpu < device::kDevicesMax; ++gpu) {
    if ((seen >> gpu & 1) != 0 && checker_->Ready(gpu) && !checker_->UsesGivenMemory(gpu)) {
      return false;
    }
  }
  return true;
}

}  // namespace nanwatch
