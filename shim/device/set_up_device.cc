// SPDX-License-Identifier: Apache-2.0
// Setting a device up: the cold half of CheckedDevice.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "shim/device/checked_device.h"
#include "shim/device/current_context.h"
#include "shim/host/done_within.h"

namespace nanwatch::device {
namespace {

// Below this a checker would drop more than it sees.
constexpr uint32_t kSlotsLeast = 64;
constexpr CuDeviceAddress kStepWordBytes = (kStepWordsBytes + 63) / 64 * 64;  // whole lines

// Some calls are forbidden while any thread captures in CUDA's default mode, and ruin its graph.
// They are not, for a thread in relaxed mode; libtorch's own allocator does the same.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    entered_ = driver_.thread_exchange_capture_mode(&mode_) == kCuSuccess;
  }
  ~RelaxedCapture() {
    if (entered_) (void)driver_.thread_exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  [[nodiscard]] bool Entered() const { return entered_; }

 private:
  const Driver& driver_;
  int32_t mode_ = kCuCaptureModeRelaxed;  // once entered, the thread's own
  bool entered_ = false;
};

// Half of both, or false when there is nothing left to give up.
bool Halve(HostLayout* layout) {
  if (layout->slots / 2 < kSlotsLeast) return false;
  layout->slots /= 2;
  layout->captured_slots /= 2;
  return true;
}

}  // namespace

Skip CheckedDevice::SetUp(CuStream stream) noexcept {
  State expected = State::kUnseen;
  if (!state_.compare_exchange_strong(expected, State::kSettingUp, std::memory_order_acq_rel)) {
    return Skip::kStarting;
  }
  const Skip skip = SetUpInContext(stream);
  // Unless it stepped down on the way.
  expected = State::kSettingUp;
  state_.compare_exchange_strong(expected,
                                 skip == Skip::kStarting ? State::kWarming : State::kUnseen,
                                 std::memory_order_acq_rel);
  return skip == Skip::kStarting ? WaitForWarmUp() : skip;
}

// Reads the host's memory and calls nothing of the driver's, so that no capture of any thread is in
// the way, and none is ruined.
Skip CheckedDevice::WaitForWarmUp() noexcept {
  constexpr uint64_t kNsPerMs = 1'000'000;
  bool is_down = false;
  const auto is_over = [this, &is_down] {
    if (Ready()) return true;
    is_down = state_.load(std::memory_order_acquire) == State::kDown;
    return is_down;
  };
  const auto milliseconds = static_cast<int>(shared_.options.warm_up_wait_ns / kNsPerMs);
  if (!DoneWithin(milliseconds, is_over)) return Skip::kStarting;
  return is_down ? Skip::kSteppedDown : Skip::kNone;
}

Skip CheckedDevice::SetUpInContext(CuStream stream) noexcept {
  const Driver& driver = shared_.driver;
  if (const Skip skip = RetainContext(); skip != Skip::kNone) return skip;
  const CurrentContext current(driver, context_, device_, stream);
  if (const Skip skip = SkipFor(current); skip != Skip::kNone) return skip;

  bool capturing = false;
  if (const Skip skip = CaptureState(stream, &capturing); skip != Skip::kNone) return skip;
  if (capturing) return Skip::kCapturedBeforeReady;
  const RelaxedCapture relaxed(driver);
  if (!relaxed.Entered()) return Skip::kCaptureUnknown;

  using Step = Call (CheckedDevice::*)();
  const Step steps[] = {&CheckedDevice::LoadKernels, &CheckedDevice::AllocateOnDevice,
                        &CheckedDevice::AllocateForBoth, &CheckedDevice::WarmUp};
  for (const Step step : steps) {
    const Call call = (this->*step)();
    if (!call.Failed()) continue;
    CountFailure(call);
    // Some capture is in the way after all: later.
    if (MeansCapture(call.result)) return Skip::kCaptureUnknown;
    StepDown(call, image_log_[0] != 0 ? image_log_ : "the device could not be set up");
    return Skip::kDriverError;
  }
  return Skip::kStarting;
}

Skip CheckedDevice::RetainContext() noexcept {
  if (context_ != nullptr) return Skip::kNone;
  const Driver& driver = shared_.driver;
  Call call = {"cuDeviceGet", driver.device_get(&device_, ordinal_)};
  if (call.Failed()) return Judge(call);
  // Making a context takes hundreds of megabytes, so it is the job's to make.
  uint32_t flags = 0;
  int active = 0;
  call = {"cuDevicePrimaryCtxGetState", driver.primary_context_get_state(device_, &flags, &active)};
  if (call.Failed()) return Judge(call);
  if (active == 0) return Skip::kContextInactive;
  // Kept for good: launches of ours must not be what is left of a context.
  CuContext context = nullptr;
  call = {"cuDevicePrimaryCtxRetain", driver.primary_context_retain(&context, device_)};
  if (call.Failed()) return Judge(call);
  context_ = context;
  return Skip::kNone;
}

CheckedDevice::Call CheckedDevice::LoadKernels() noexcept {
  Call call = {"cuDeviceGetAttribute", shared_.driver.device_get_attribute(
                                           &multiprocessors_, kCuMultiprocessorCount, device_)};
  if (call.Failed()) return call;
  if (shared_.options.binary != nullptr && !binary_refused_) {
    call = LoadKernelsFrom(shared_.options.binary);
    if (!call.Failed() || MeansContextLost(call.result) || MeansCapture(call.result)) return call;
    // The driver is older than the binary, or the GPU newer. That is no failure: it compiles the
    // text.
    binary_refused_ = true;
    module_ = nullptr;
    image_log_[0] = 0;
  }
  return LoadKernelsFrom(shared_.options.image);
}

CheckedDevice::Call CheckedDevice::LoadKernelsFrom(const void* image) noexcept {
  const Driver& driver = shared_.driver;
  Call call;
  if (module_ == nullptr) {
    int32_t options[] = {kCuJitErrorLogBuffer, kCuJitErrorLogBufferSizeBytes};
    void* values[] = {image_log_, reinterpret_cast<void*>(uintptr_t{sizeof image_log_ - 1})};
    CuModule module = nullptr;
    call = {"cuModuleLoadDataEx", driver.module_load_data_ex(&module, image, 2, options, values)};
    if (call.Failed()) {
      image_log_[std::strcspn(image_log_, "\n")] = 0;
      return call;
    }
    image_log_[0] = 0;  // warnings
    module_ = module;
  }
  const struct {
    const char* name;
    CuFunction* function;
  } kernels[] = {
      {"nanwatch_check_few", &check_few_},       {"nanwatch_check_many", &check_many_},
      {"nanwatch_check_list", &check_list_},     {"nanwatch_sum_list", &sum_list_},
      {"nanwatch_measure_list", &measure_list_}, {"nanwatch_compare_list", &compare_list_},
      {"nanwatch_check_batch", &check_batch_},   {"nanwatch_add_step", &add_step_}};
  for (const auto& kernel : kernels) {
    call = {"cuModuleGetFunction",
            driver.module_get_function(kernel.function, module_, kernel.name)};
    if (call.Failed()) return call;
  }
  return call;
}

CheckedDevice::Call CheckedDevice::AllocateOnDevice() noexcept {
  if (scratch_ != 0) return {};
  layout_ = {shared_.options.slots, shared_.options.captured_slots};
  for (;;) {
    CuDeviceAddress memory = 0;
    const size_t scratch_bytes = layout_.All() * sizeof(LaunchScratch);
    const size_t measure_bytes = layout_.slots * sizeof(MeasureScratch);
    const size_t bytes =
        kStepWordBytes + scratch_bytes + measure_bytes + kSampleDoubles * sizeof(double);
    const Call call = {"cuMemAlloc", shared_.driver.mem_alloc(&memory, bytes)};
    if (call.result == kCuOutOfMemory && Halve(&layout_)) {
      CountFailure(call);
      continue;
    }
    if (call.Failed()) return call;
    step_word_ = memory;
    scratch_ = memory + kStepWordBytes;
    measures_ = scratch_ + scratch_bytes;
    samples_ = measures_ + measure_bytes;
    device_bytes_ = bytes;
    return call;
  }
}

CheckedDevice::Call CheckedDevice::UseGivenMemory() noexcept {
  const CheckerOptions& options = shared_.options;
  if (memory_asked_for_ || options.memory_for == nullptr) return {"", kCuNotSupported};
  memory_asked_for_ = true;
  const std::span<std::byte> given = options.memory_for(options.memory_context, ordinal_);
  HostLayout fitting = layout_;
  while (fitting.Bytes() > given.size()) {
    if (!Halve(&fitting)) return {"", kCuNotSupported};
  }
  std::memset(given.data(), 0, fitting.Bytes());
  if (shared_.driver.mem_host_register == nullptr) return {"", kCuNotSupported};
  Call call = {"cuMemHostRegister",
               shared_.driver.mem_host_register(given.data(), given.size(),
                                                kCuMemHostPortable | kCuMemHostDeviceMap)};
  if (call.Failed()) return call;
  call = {"cuMemHostGetDevicePointer",
          shared_.driver.mem_host_get_device_pointer(&host_address_, given.data(), 0)};
  if (call.Failed()) return call;
  host_ = given.data();
  layout_ = fitting;
  given_memory_used_ = true;
  return call;
}

CheckedDevice::Call CheckedDevice::AllocateForBoth() noexcept {
  if (host_ == nullptr) {
    const Call given = UseGivenMemory();
    // Registering is refused where locked memory is limited, and in some sandboxes.
    if (given.Failed()) {
      if (given.function[0] != 0) CountFailure(given);
      // An error that says nothing may be such a refusal, too: the next call will show it.
      if (MeansContextLost(given.result) && given.result != kCuUnknown) return given;
    }
  }
  while (host_ == nullptr) {
    void* memory = nullptr;
    Call call = {"cuMemHostAlloc",
                 shared_.driver.mem_host_alloc(&memory, layout_.Bytes(),
                                               kCuMemHostPortable | kCuMemHostDeviceMap)};
    if (call.result == kCuOutOfMemory && Halve(&layout_)) {
      CountFailure(call);
      continue;
    }
    if (call.Failed()) return call;
    call = {"cuMemHostGetDevicePointer",
            shared_.driver.mem_host_get_device_pointer(&host_address_, memory, 0)};
    if (call.Failed()) return call;
    std::memset(memory, 0, layout_.Bytes());
    host_ = static_cast<std::byte*>(memory);
  }
  if (table_ == nullptr) table_ = LaunchTable::Create(layout_.slots);
  if (captured_ == nullptr) {
    captured_.reset(new (std::nothrow) CapturedLaunch[layout_.captured_slots]);
  }
  if (table_ == nullptr || captured_ == nullptr) return {"new", kCuOutOfMemory};
  return {};
}

// The driver loads a kernel at its first launch, which a capture forbids, and the memory has to be
// zero before another stream uses it. Both are known to be done once the last launch here has
// written its word.
CheckedDevice::Call CheckedDevice::WarmUp() noexcept {
  const Driver& driver = shared_.driver;
  if (warm_stream_ == nullptr) {
    CuStream stream = nullptr;
    const Call call = {"cuStreamCreate", driver.stream_create(&stream, kCuStreamNonBlocking)};
    if (call.Failed()) return call;
    warm_stream_ = stream;
  }
  StepLaunch step = {step_word_, 1};
  Call call = {"cuLaunchKernel", Launch(add_step_, 1, 1, &step, warm_stream_)};
  if (call.Failed()) return call;
  call = {"cuMemsetD8Async", driver.memset_d8_async(step_word_, 0, device_bytes_, warm_stream_)};
  if (call.Failed()) return call;
  FewLaunch few = {};
  few.head.ticket = 1;
  call = {"cuLaunchKernel", Launch(check_few_, 1, kThreadsPerBlock, &few, warm_stream_)};
  if (call.Failed()) return call;
  ListLaunch list = {};
  list.head.ticket = 1;
  for (const CuFunction function : {check_list_, sum_list_, measure_list_, compare_list_}) {
    call = {"cuLaunchKernel", Launch(function, 1, kThreadsPerBlock, &list, warm_stream_)};
    if (call.Failed()) return call;
  }
  BatchLaunch batch = {};
  batch.head.ticket = 1;
  call = {"cuLaunchKernel", Launch(check_batch_, 1, kThreadsPerBlock, &batch, warm_stream_)};
  if (call.Failed()) return call;
  ManyLaunch many = {};
  many.head.ticket = 1;
  many.head.progress = host_address_;
  return {"cuLaunchKernel", Launch(check_many_, 1, kThreadsPerBlock, &many, warm_stream_)};
}

}  // namespace nanwatch::device
