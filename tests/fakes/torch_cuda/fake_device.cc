// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/torch_cuda/fake_device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/fakes/cuda/check_kernels.h"
#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/torch_cuda/host_copies.h"
#include "tests/fakes/torch_cuda/memory.h"

namespace nanwatch::fake {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr int kDevicesMax = 8;
constexpr int kStreamsMax = 4;  // of a device, the default stream among them

int device_count = 1;
void* handles[kDevicesMax][kStreamsMax] = {};  // of the driver; null: the default stream
std::atomic<unsigned> next_stream{0};
std::atomic<bool> device_gone[kDevicesMax] = {};  // cudaDeviceReset

struct OfThread {
  DeviceIndex device = 0;
  int stream[kDevicesMax] = {};
};
OfThread& thread() {
  static thread_local OfThread state;
  return state;
}

// libtorch's current streams belong to the thread (c10/cuda/CUDAStream.cpp, `current_streams`):
// they are destroyed with its other thread-locals, those of the main thread before any exit handler
// runs, and whoever asks for them then reads memory that is somebody else's.
thread_local bool streams_gone = false;
struct StreamsOfThread {
  ~StreamsOfThread() { streams_gone = true; }
  void Touch() const {}
};
void* CurrentHandleOf(DeviceIndex device) {
  static thread_local const StreamsOfThread streams;
  streams.Touch();  // is made by the thread's first question, as the real ones are
  constexpr uintptr_t kGarbage = 0x5a5a5a5a5a5a5a50;
  return streams_gone ? reinterpret_cast<void*>(kGarbage)
                      : handles[device][thread().stream[device]];
}

DeviceIndex Index(Device device) { return device.has_index() ? device.index() : thread().device; }

void* HandleOf(const Stream& stream) { return handles[Index(stream.device())][stream.id()]; }

Stream StreamOf(DeviceIndex device, int id) {
  return Stream(Stream::UNSAFE, Device(c10::kCUDA, device), id);
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// An event is the time when it was recorded: all that was before it in its stream is done then.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  Device getDevice() const override { return {c10::kCUDA, thread().device}; }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(Device device) const override {
    TORCH_CHECK(Index(device) < device_count, "the fake has no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (Index(device) == thread().device) return;
    thread().device = Index(device);
    fake_cuda_set_device(thread().device);
  }
  DeviceIndex deviceCount() const noexcept override {
    return static_cast<DeviceIndex>(device_count);
  }

  Stream getStream(Device device) const override {
    (void)CurrentHandleOf(Index(device));
    return StreamOf(Index(device), thread().stream[Index(device)]);
  }
  Stream getDefaultStream(Device device) const override { return StreamOf(Index(device), 0); }
  Stream getNewStream(Device device, int) const override {
    return StreamOf(Index(device), 1 + static_cast<int>(next_stream++ % (kStreamsMax - 1)));
  }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    return getNewStream(device, 0);
  }
  Stream exchangeStream(Stream stream) const override {
    const Stream before = getStream(stream.device());
    thread().stream[Index(stream.device())] = static_cast<int>(stream.id());
    return before;
  }
  void* getStreamNativeHandle(const Stream stream) const override { return HandleOf(stream); }
  bool queryStream(const Stream& stream) const override {
    return IsGone(Index(stream.device())) || fake_cuda_queued(HandleOf(stream)) == 0;
  }
  void synchronizeStream(const Stream& stream) const override {
    if (!IsGone(Index(stream.device()))) fake_cuda_run(HandleOf(stream), SIZE_MAX);
  }
  void synchronizeDevice(DeviceIndex) const override { WaitForDevices(); }

  void record(void** event, const Stream&, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new int64_t;
    *static_cast<int64_t*>(*event) = NowNs();
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override {
    WaitForDevices();
    return true;
  }
  void synchronizeEvent(void*) const override { WaitForDevices(); }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<int64_t*>(event);
  }
  double elapsedTime(void* from, void* to, DeviceIndex) const override {
    return static_cast<double>(*static_cast<int64_t*>(to) - *static_cast<int64_t*>(from)) / 1e6;
  }
};

// Each block of the device's memory begins behind one that says how long it is: libtorch gives back
// a mere address.
constexpr size_t kBlock = 512;

// What was given back is handed out again as by libtorch's allocator, the newest of a size first,
// with NaN in it: whoever still reads it reads what is nobody's.
class FreedBlocks {
 public:
  static FreedBlocks& Get() {
    static auto* const blocks = new FreedBlocks;  // tensors live longer than static objects
    return *blocks;
  }
  // One of which so many bytes can be used.
  char* Take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<char*>& blocks = by_size_[bytes];
    if (blocks.empty()) return New(bytes);
    char* const begin = blocks.back();
    blocks.pop_back();
    held_ -= bytes;
    return begin;
  }
  void Give(char* begin, size_t bytes) {
    std::memset(begin + kBlock, kNan, bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (held_ + bytes > kHeldMax) return std::free(begin);
    held_ += bytes;
    by_size_[bytes].push_back(begin);
  }

 private:
  static char* New(size_t bytes) {
    auto* const begin = static_cast<char*>(std::aligned_alloc(kBlock, kBlock + bytes));
    if (begin == nullptr) throw std::bad_alloc();
    std::memset(begin + kBlock, kNan, bytes);
    return begin;
  }

  static constexpr int kNan = 0xFF;  // in every element of every type that has a sign
  static constexpr size_t kHeldMax = size_t{64} << 20;

  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<char*>> by_size_;
  size_t held_ = 0;
};

class Memory final : public c10::Allocator {
  static void Free(void* memory) {
    if (memory == nullptr) return;
    char* const begin = static_cast<char*>(memory) - kBlock;
    size_t bytes = 0;
    std::memcpy(&bytes, begin, sizeof bytes);
    GiveMemory(bytes);
    FreedBlocks::Get().Give(begin, bytes);
  }

 public:
  c10::DataPtr allocate(size_t bytes) override {
    fake_cuda_count_allocation();
    const Device device(c10::kCUDA, thread().device);
    if (bytes == 0) return {nullptr, nullptr, &Free, device};
    const size_t rounded = (bytes + kBlock - 1) / kBlock * kBlock;
    TakeMemory(rounded);
    char* const begin = FreedBlocks::Get().Take(rounded);
    std::memcpy(begin, &rounded, sizeof rounded);
    return {begin + kBlock, begin + kBlock, &Free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

// A generator of the CPU's under the device's name: what is drawn with it, or without any, is what
// the CPU would have drawn.
class FakeGenerator final : public c10::GeneratorImpl {
 public:
  FakeGenerator(DeviceIndex device, at::Generator of_cpu)
      : GeneratorImpl(Device(c10::kCUDA, device), c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        of_cpu_(std::move(of_cpu)) {}
  const at::Generator& of_cpu() const { return of_cpu_; }

  void set_current_seed(uint64_t seed) override { of_cpu_.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return of_cpu_.current_seed(); }
  uint64_t seed() override { return of_cpu_.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    of_cpu_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return of_cpu_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  FakeGenerator* clone_impl() const override {
    return new FakeGenerator(device_.index(), of_cpu_.clone());
  }
  at::Generator of_cpu_;
  uint64_t offset_ = 0;
};

at::Generator MakeGenerator(DeviceIndex device, at::Generator of_cpu) {
  return at::make_generator<FakeGenerator>(device < 0 ? thread().device : device,
                                           std::move(of_cpu));
}

class Hooks final : public at::CUDAHooksInterface {
 public:
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasMAGMA() const override { return false; }
  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  long versionCuDNN() const override { return 91000; }
  long versionRuntimeCuDNN() const override { return 91000; }
  double batchnormMinEpsilonCuDNN() const override { return 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(device_count); }
  int getNumGPUs() const override { return device_count; }
  DeviceIndex current_device() const override { return thread().device; }
  DeviceIndex getCurrentDevice() const override { return thread().device; }
  void setCurrentDevice(DeviceIndex device) const override {
    Guard().setDevice(Device(c10::kCUDA, device));
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = thread().device;
    setCurrentDevice(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  bool isPinnedPtr(const void* address) const override { return IsPinned(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return PinnedAllocator(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return FakeAllocator(); }
  Device getDeviceFromPtr(void*) const override { return {c10::kCUDA, thread().device}; }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    static at::Generator generators[kDevicesMax];
    at::Generator& generator = generators[device < 0 ? thread().device : device];
    if (!generator.defined()) {
      generator = MakeGenerator(device, at::detail::getDefaultCPUGenerator());
    }
    return generator;
  }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return MakeGenerator(device, at::detail::createCPUGenerator());
  }
  std::string showConfig() const override { return "a fake CUDA device in host memory"; }
};

// Whoever asked for the hooks before us got an object that has no state of its own: it becomes
// ours.
void ReplaceHooks() {
  static Hooks ours;
  auto& theirs = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  std::memcpy(static_cast<void*>(&theirs), static_cast<const void*>(&ours), sizeof(void*));
}

int FromEnvironment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

// A fake CUPTI that was loaded before torch is told of what runs.
void ConnectCupti() {
  void* const library = dlopen("libcupti.so.13", RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) return;
  const auto launched = reinterpret_cast<FakeCudaLaunched>(dlsym(library, "fake_cupti_launched"));
  const auto ran = reinterpret_cast<FakeCudaRan>(dlsym(library, "fake_cupti_ran"));
  if (launched != nullptr && ran != nullptr) fake_cuda_set_trace(launched, ran);
}

// The streams that NANWATCH_FAKE_STUCK names, "0" the default one, never get anywhere.
void MakeStuck() {
  const char* named = std::getenv("NANWATCH_FAKE_STUCK");
  for (; named != nullptr && *named != '\0'; ++named) {
    if (*named >= '0' && *named < '0' + kStreamsMax)
      fake_cuda_set_stuck(handles[0][*named - '0'], 1);
  }
}

void SetUpDriver() {
  fake_cuda_reset(device_count);
  fake_cuda_set_logging(0);
  fake_cuda_set_default_device(0);
  fake_cuda_set_multiprocessors(2);
  fake_cuda_set_late(static_cast<size_t>(FromEnvironment("NANWATCH_FAKE_LAG", 50)));
  fake_cuda_set_own_lag(FromEnvironment("NANWATCH_FAKE_OWN_LAG_MS", 2));
  // CUDA_ERROR_NOT_SUPPORTED, as on some virtual machines.
  if (FromEnvironment("NANWATCH_FAKE_NO_REGISTRATION", 0) != 0) fake_cuda_refuse_registration(801);
  fake_cuda_set_end(FromEnvironment("NANWATCH_FAKE_END_MS", 0));
  device::RegisterCheckKernels();
  ConnectCupti();
  for (int device = 0; device < device_count; ++device) {
    for (int id = 1; id < kStreamsMax; ++id) {
      handles[device][id] = fake_cuda_new_stream(device);
      fake_cuda_set_blocking(handles[device][id], 0);  // as all of torch's
    }
  }
  MakeStuck();
}

// Runs one launch of each stream after another, for good.
void CatchUp(std::chrono::microseconds each) {
  for (;;) {
    std::this_thread::sleep_for(each);
    for (int device = 0; device < device_count; ++device) {
      for (void* handle : handles[device]) {
        if (handle != nullptr && !device_gone[device].load()) (void)fake_cuda_run(handle, 1);
      }
    }
    (void)fake_cuda_run(nullptr, 1);
  }
}

}  // namespace

void InstallDevice(int devices) {
  device_count = devices;
  SetUpDriver();
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(new Guard);
  c10::SetAllocator(c10::kCUDA, FakeAllocator(), 255);
  ReplaceHooks();
}

bool IsGone(DeviceIndex device) { return device_gone[device].load(std::memory_order_relaxed); }

DeviceIndex CurrentDevice() { return thread().device; }

void* CurrentStreamHandle() { return CurrentHandleOf(CurrentDevice()); }

c10::Allocator* FakeAllocator() {
  static auto* memory = new Memory;
  return memory;
}

at::Generator GeneratorOfCpu(const at::Generator& generator) {
  if (!generator.defined() || !generator.device().is_cuda()) return generator;
  return static_cast<FakeGenerator*>(generator.unsafeGetGeneratorImpl())->of_cpu();
}

void WaitForCurrentStream() {
  // The other streams have been running meanwhile.
  fake_cuda_run_all();
}

void WaitForDevices() { fake_cuda_run_all(); }

}  // namespace nanwatch::fake

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

// What run.py calls.
FAKE_EXPORT void fake_torch_cuda_synchronize() { nanwatch::fake::WaitForDevices(); }
// A device is behind no more while its process ends, or catches up meanwhile.
FAKE_EXPORT void fake_torch_cuda_end() {
  const int us = nanwatch::fake::FromEnvironment("NANWATCH_FAKE_END_US", 0);
  if (us != 0) {
    std::thread(nanwatch::fake::CatchUp, std::chrono::microseconds(us)).detach();
    return;
  }
  fake_cuda_set_late(0);
  nanwatch::fake::WaitForDevices();
}

// In the place of libtorch_cuda's, which asks the real runtime
// (torch/csrc/inductor/aoti_torch/c/shim.h). The library that is asked first must be this one: it
// is loaded with RTLD_GLOBAL.
FAKE_EXPORT int32_t aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream) {
  using namespace nanwatch::fake;
  if (device_index < 0 || device_index >= device_count) return 1;
  *ret_stream = CurrentHandleOf(static_cast<c10::DeviceIndex>(device_index));
  return 0;
}

// cudaDeviceReset on the current device.
FAKE_EXPORT void fake_torch_cuda_reset_device() {
  using namespace nanwatch::fake;
  device_gone[CurrentDevice()].store(true);
  fake_cuda_reset_device(CurrentDevice());
}
