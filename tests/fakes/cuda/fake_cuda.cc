// SPDX-License-Identifier: Apache-2.0
// A FAKE of NVIDIA's driver library: runs on the CPU, for tests only. See fake_cuda.h.
#include "tests/fakes/cuda/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define FAKE_CUDA extern "C" __attribute__((visibility("default")))

namespace {

// cuda.h, CUresult; written here anew, so that a wrong number in the code under test shows.
enum : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kDeinitialized = 4,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidDevice = 101,
  kInvalidHandle = 400,
  kNotFound = 500,
  kContextIsDestroyed = 709,
};
enum : int { kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureImplicit = 906 };
enum : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
enum : int { kNone = 0, kActive = 1, kInvalidated = 2 };

struct Kernel {
  std::string name;
  FakeCudaKernel function = nullptr;
  size_t parameter_bytes = 0;
  FakeCudaLook look = nullptr;  // of an early kernel, and `tell` instead of `function`
  FakeCudaTell tell = nullptr;
  size_t launches = 0;
};

// Who is told of launches; set before there are any.
FakeCudaLaunched trace_launched = nullptr;
FakeCudaRan trace_ran = nullptr;
constexpr uint64_t kKernelNs = 1000;

struct Node {
  const Kernel* kernel = nullptr;
  std::string name;     // of a kernel of the job's
  uint32_t graph = 0;   // that it is replayed in, plus one
  uint64_t traced = 0;  // what trace_launched has answered
  uint32_t blocks = 0;
  uint32_t threads = 0;
  std::vector<char> parameter;
  void (*function)(void*) = nullptr;
  void* context = nullptr;
  void* seen = nullptr;  // by an early kernel
  char* fill = nullptr;
  size_t fill_bytes = 0;
  unsigned char fill_value = 0;

  void Trace() {
    if (trace_launched == nullptr || (kernel == nullptr && name.empty())) return;
    traced = trace_launched(kernel != nullptr ? kernel->name.c_str() : name.c_str(), graph, 0);
  }
  void Run() const {
    if (traced != 0) trace_ran(traced, kKernelNs);
    if (kernel != nullptr && kernel->look != nullptr) {
      kernel->tell(seen);
    } else if (kernel != nullptr) {
      kernel->function(parameter.data(), blocks, threads);
    }
    if (function != nullptr) function(context);
    if (fill != nullptr) std::memset(fill, fill_value, fill_bytes);
  }
};

struct Device;

struct Stream {
  Device* device = nullptr;
  unsigned long long id = 0;
  bool blocking = true;
  bool prompt = false;  // never late: nobody but the library under test puts anything there
  std::atomic<bool> stuck{false};
  std::mutex queue_lock;
  std::mutex run_lock;  // one runner at a time, so that the order holds
  std::deque<Node> queue;
  std::atomic<int> capture{kNone};
  uint64_t capture_id = 0;
  int capture_mode = kGlobal;
  const void* capture_thread = nullptr;
  std::vector<Node> captured;
};

struct Device {
  int ordinal = 0;
  bool was_reset = false;
  std::atomic<bool> active{true};
  std::atomic<int> lost{kSuccess};
  Stream legacy;
};

struct Failing {
  int first = 0;
  int last = 0;
  int result = 0;
};

// What a test sets up and looks at; the one object of the library.
struct Fake {
  std::mutex lock;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Device>> other_contexts;  // of the devices, by their ordinals
  std::vector<std::unique_ptr<Stream>> streams;
  std::shared_mutex handles_lock;
  std::set<const void*> handles;  // of streams that have not been destroyed
  std::vector<Stream*> destroyed;
  std::map<std::pair<const void*, Device*>, Stream*> per_thread;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
  std::vector<std::vector<Node>> graphs;
  std::map<std::string, Failing> failing;
  std::map<std::string, int> calls;
  std::deque<std::string> log;
  std::string misdeed;
  std::string jit_log;
  const void* loaded_image = nullptr;
  std::vector<std::pair<void*, size_t>> mappings;
  std::vector<char*> allocations;
  std::map<char*, char*> device_views;       // of memory of cuMemHostAlloc
  std::map<uint64_t, size_t> device_ranges;  // what kernels may use
  std::atomic<void (*)(void*)> before_launch{nullptr};
  void* before_launch_context = nullptr;
  unsigned long long next_id = 1;
  uint64_t next_capture = 0;
  int generation = 0;
  Device* default_device = nullptr;
  int multiprocessors = 0;
  bool late = false;
  size_t late_max = 0;
  std::chrono::milliseconds own_lag{0};
  std::vector<std::thread> laggards;  // one for each launch
};

Fake& fake() {
  static auto* object = new Fake;
  return *object;
}
std::atomic<bool> logging{true};
std::atomic<bool> ended{false};
std::atomic<size_t> memory_free{size_t{1} << 33};
std::atomic<size_t> memory_total{size_t{1} << 33};
std::atomic<int> end_takes_ms{0};
// Always on; see fake_cuda_counted.
std::atomic<uint64_t> calls_counted{0};
std::atomic<uint64_t> launches_counted{0};
std::atomic<uint64_t> allocations_counted{0};
std::atomic<int> registration_refused{kSuccess};
std::atomic<int> open_captures{0};
std::atomic<int> generation{0};

struct ThreadState {
  int generation = -1;
  std::vector<Device*> contexts;
  int capture_mode = kGlobal;
};
ThreadState& thread() {
  // Never destroyed: exit handlers still call the driver, when a thread's own objects are gone.
  static thread_local auto* const state = new ThreadState;
  if (state->generation != generation.load()) *state = {generation.load(), {}, kGlobal};
  return *state;
}
const void* ThisThread() { return &thread(); }

void NoteMisdeed(const std::string& what) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  if (fake().misdeed.empty()) fake().misdeed = what;
}

// What the real driver does with a handle that it does not know: it reads what the handle points
// to.
[[noreturn]] void Crash(const char* what, const void* handle) {
  std::fprintf(stderr, "the fake driver was given %s that there is not: %p\n", what, handle);
  std::abort();
}

// Logs the call; the result that a test has planted for it, or 0.
int Called(const char* function) {
  calls_counted.fetch_add(1, std::memory_order_relaxed);
  if (ended.load()) return kDeinitialized;
  if (!logging.load(std::memory_order_relaxed)) return kSuccess;
  const std::lock_guard<std::mutex> guard(fake().lock);
  const int number = ++fake().calls[function];
  const auto failing = fake().failing.find(function);
  int result = kSuccess;
  if (failing != fake().failing.end() && number >= failing->second.first &&
      number <= failing->second.last) {
    result = failing->second.result;
  }
  fake().log.push_back(result == kSuccess ? function
                                          : std::string(function) + "!" + std::to_string(result));
  return result;
}

Device* Current() {
  return thread().contexts.empty() ? fake().default_device : thread().contexts.back();
}

// The result of a call that needs a context: none, or a lost one.
int ContextState(const Device* device) {
  if (device == nullptr) return kInvalidContext;
  return device->lost.load(std::memory_order_relaxed);
}

void NoteHandle(const Stream* stream) {
  const std::lock_guard<std::shared_mutex> guard(fake().handles_lock);
  fake().handles.insert(stream);
}

Stream* Resolve(void* handle) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  if (value > 2) {
    const std::shared_lock<std::shared_mutex> guard(fake().handles_lock);
    if (!fake().handles.contains(handle)) Crash("a stream", handle);
    return static_cast<Stream*>(handle);
  }
  Device* device = Current();
  if (device == nullptr) return nullptr;
  if (value < 2) return &device->legacy;
  const std::lock_guard<std::mutex> guard(fake().lock);
  Stream*& stream = fake().per_thread[{ThisThread(), device}];
  if (stream == nullptr) {
    fake().streams.push_back(std::make_unique<Stream>());
    stream = fake().streams.back().get();
    stream->device = device;
    stream->id = fake().next_id++;
    NoteHandle(stream);
  }
  return stream;
}

template <class Function>
void ForEachStream(Function function) {
  std::vector<Stream*> all;
  {
    const std::lock_guard<std::mutex> guard(fake().lock);
    for (const auto& device : fake().devices) all.push_back(&device->legacy);
    for (const auto& context : fake().other_contexts) all.push_back(&context->legacy);
    for (const auto& stream : fake().streams) {
      const auto& destroyed = fake().destroyed;
      if (std::find(destroyed.begin(), destroyed.end(), stream.get()) == destroyed.end()) {
        all.push_back(stream.get());
      }
    }
  }
  for (Stream* stream : all) function(*stream);
}

// A call of the kind that a capture forbids: ruins the captures that forbid it. cuda.h says which
// at cuThreadExchangeStreamCaptureMode.
int Unsafe(const char* function) {
  if (open_captures.load() == 0 || thread().capture_mode == kRelaxed) return kSuccess;
  bool forbidden = false;
  ForEachStream([&](Stream& stream) {
    if (stream.capture.load() == kNone || stream.capture_mode == kRelaxed) return;
    const bool own = stream.capture_thread == ThisThread();
    const bool others = stream.capture_mode == kGlobal && thread().capture_mode == kGlobal;
    if (!own && !others) return;
    forbidden = true;
    stream.capture.store(kInvalidated);
  });
  if (!forbidden) return kSuccess;
  NoteMisdeed(std::string(function) + " during a capture");
  return kCaptureUnsupported;
}

// Legacy streams wait for blocking ones, which a capture cannot express.
bool ConflictsWithCapture(const Stream& stream) {
  if (&stream != &stream.device->legacy || open_captures.load() == 0) return false;
  bool conflict = false;
  ForEachStream([&](Stream& other) {
    conflict = conflict ||
               (other.device == stream.device && other.blocking && other.capture.load() != kNone);
  });
  return conflict;
}

// Runs the first `count` of what is queued; returns how many ran.
size_t RunQueued(Stream& stream, size_t count) {
  if (stream.device->lost.load() != kSuccess || stream.stuck.load() || ended.load()) return 0;
  const std::lock_guard<std::mutex> running(stream.run_lock);
  size_t ran = 0;
  for (; ran < count; ++ran) {
    Node node;
    {
      const std::lock_guard<std::mutex> guard(stream.queue_lock);
      if (stream.queue.empty()) break;
      node = std::move(stream.queue.front());
      stream.queue.pop_front();
    }
    node.Run();
  }
  return ran;
}

// Runs the oldest of what is queued, a while later.
void RunLater(Stream& stream) {
  const auto lag = fake().own_lag;
  const std::lock_guard<std::mutex> guard(fake().lock);
  fake().laggards.emplace_back([&stream, lag] {
    std::this_thread::sleep_for(lag);
    RunQueued(stream, 1);
  });
}

int Enqueue(Stream* stream, Node node) {
  if (stream == nullptr) return kInvalidHandle;
  if (stream->device != Current()) {
    NoteMisdeed("a launch on a stream of another context");
    return kInvalidHandle;
  }
  if (const int state = ContextState(stream->device); state != kSuccess) return state;
  if (ConflictsWithCapture(*stream)) {
    NoteMisdeed("a launch on the legacy stream during a capture");
    return kCaptureImplicit;
  }
  switch (stream->capture.load()) {
    case kActive:
      stream->captured.push_back(std::move(node));
      return kSuccess;
    case kInvalidated:
      return kCaptureInvalidated;
    default: {
      const bool lags = stream->prompt && fake().own_lag.count() != 0;
      if (fake().late && node.fill != nullptr && !lags) {
        node.Run();  // early kernels count on it
        return kSuccess;
      }
      node.Trace();
      size_t queued = 0;
      {
        const std::lock_guard<std::mutex> guard(stream->queue_lock);
        stream->queue.push_back(std::move(node));
        queued = stream->queue.size();
      }
      if (lags) {
        RunLater(*stream);
        return kSuccess;
      }
      const size_t late_max = stream->prompt ? 0 : fake().late_max;
      if (fake().late && queued > late_max) RunQueued(*stream, queued - late_max);
      return kSuccess;
    }
  }
}

// A launch whose kernel looks now, or in a capture when it is replayed. What it saw is lost where
// the launch cannot be.
int LaunchEarly(Stream* stream, Node node) {
  if (stream != nullptr && stream->capture.load() != kNone) return Enqueue(stream, std::move(node));
  node.seen = node.kernel->look(node.parameter.data(), node.blocks, node.threads);
  return Enqueue(stream, std::move(node));
}

// A replay of a job whose ops are done when they return: those of the graph are, one after another,
// and the checks between them look.
void ReplayNow(const std::vector<Node>& nodes, Stream* stream) {
  for (Node node : nodes) {
    node.graph = 1;
    if (node.kernel != nullptr && node.kernel->look != nullptr) {
      (void)LaunchEarly(stream, std::move(node));
    } else {
      node.Run();
    }
  }
}

int NeverCall(const char* function) {
  (void)Called(function);
  NoteMisdeed(function);
  return kSuccess;
}

}  // namespace

// ---- the driver's functions

// Starts a function of the driver: logs it, and answers what a test planted.
#define ENTER(function)                                                     \
  do {                                                                      \
    if (const int planted = Called(function); planted != 0) return planted; \
  } while (false)
#define ENTER_UNSAFE(function)                                                    \
  do {                                                                            \
    ENTER(function);                                                              \
    if (const int state = ContextState(Current()); state != 0) return state;      \
    if (const int forbidden = Unsafe(function); forbidden != 0) return forbidden; \
  } while (false)

FAKE_CUDA int cuDriverGetVersion(int* version) {
  ENTER("cuDriverGetVersion");
  *version = 12000;
  return kSuccess;
}

FAKE_CUDA int cuDeviceGet(int* device, int ordinal) {
  ENTER("cuDeviceGet");
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= fake().devices.size()) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

FAKE_CUDA int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER("cuDeviceGetAttribute");
  if (attribute != 16) return kInvalidValue;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
  *value = fake().multiprocessors != 0 ? fake().multiprocessors : 100 + device;
  return kSuccess;
}

FAKE_CUDA int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  ENTER("cuDevicePrimaryCtxGetState");
  *flags = 0;
  *active = fake().devices[device]->active.load() ? 1 : 0;
  return kSuccess;
}

FAKE_CUDA int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER("cuDevicePrimaryCtxRetain");
  if (!fake().devices[device]->active.load()) {
    NoteMisdeed("a context was made that the job had not made");
  }
  *context = fake().devices[device].get();
  return kSuccess;
}

FAKE_CUDA int cuCtxGetCurrent(void** context) {
  ENTER("cuCtxGetCurrent");
  *context = Current();
  return kSuccess;
}

FAKE_CUDA int cuCtxGetDevice(int* device) {
  ENTER("cuCtxGetDevice");
  if (Current() == nullptr) return kInvalidContext;
  *device = Current()->ordinal;
  return kSuccess;
}

FAKE_CUDA int cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER("cuMemGetInfo_v2");
  if (Current() == nullptr) return kInvalidContext;
  *free = memory_free.load();
  *total = memory_total.load();
  return kSuccess;
}

FAKE_CUDA int cuCtxPushCurrent_v2(void* context) {
  ENTER("cuCtxPushCurrent_v2");
  if (context == nullptr) return kInvalidContext;
  if (static_cast<Device*>(context)->was_reset) return kContextIsDestroyed;
  thread().contexts.push_back(static_cast<Device*>(context));
  return kSuccess;
}

FAKE_CUDA int cuCtxPopCurrent_v2(void** context) {
  ENTER("cuCtxPopCurrent_v2");
  if (thread().contexts.empty()) return kInvalidContext;
  *context = thread().contexts.back();
  thread().contexts.pop_back();
  return kSuccess;
}

FAKE_CUDA int cuThreadExchangeStreamCaptureMode(int* mode) {
  ENTER("cuThreadExchangeStreamCaptureMode");
  std::swap(*mode, thread().capture_mode);
  return kSuccess;
}

FAKE_CUDA int cuModuleLoadDataEx(void** module, const void* image, unsigned option_count,
                                 const int* options, void** values) {
  if (const int planted = Called("cuModuleLoadDataEx"); planted != 0) {
    const char* words = fake().jit_log.c_str();
    char* buffer = nullptr;
    size_t bytes = 0;
    for (unsigned i = 0; i < option_count; ++i) {
      if (options[i] == 5) buffer = static_cast<char*>(values[i]);  // CU_JIT_ERROR_LOG_BUFFER
      if (options[i] == 6) bytes = reinterpret_cast<uintptr_t>(values[i]);  // ..._SIZE_BYTES
    }
    if (buffer != nullptr && bytes > 0) std::snprintf(buffer, bytes, "%s", words);
    return planted;
  }
  if (const int state = ContextState(Current()); state != 0) return state;
  if (const int forbidden = Unsafe("cuModuleLoadDataEx"); forbidden != 0) return forbidden;
  if (image == nullptr || *static_cast<const char*>(image) == 0) return kInvalidImage;
  fake().loaded_image = image;
  *module = Current();
  return kSuccess;
}

FAKE_CUDA int cuModuleGetFunction(void** function, void*, const char* name) {
  ENTER_UNSAFE("cuModuleGetFunction");
  const std::lock_guard<std::mutex> guard(fake().lock);
  const auto kernel = fake().kernels.find(name);
  if (kernel == fake().kernels.end()) return kNotFound;
  *function = kernel->second.get();
  return kSuccess;
}

FAKE_CUDA int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  ENTER_UNSAFE("cuMemAlloc_v2");
  auto* memory = new char[bytes];
  std::memset(memory, 0xa5, bytes);  // nobody promises zeros
  const std::lock_guard<std::mutex> guard(fake().lock);
  fake().allocations.push_back(memory);
  *address = reinterpret_cast<uint64_t>(memory);
  fake().device_ranges[*address] = bytes;
  return kSuccess;
}

FAKE_CUDA int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void* stream) {
  ENTER("cuMemsetD8Async");
  Node node;
  node.fill = reinterpret_cast<char*>(address);
  node.fill_bytes = bytes;
  node.fill_value = value;
  return Enqueue(Resolve(stream), std::move(node));
}

FAKE_CUDA int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  ENTER_UNSAFE("cuMemHostRegister_v2");
  if (const int refused = registration_refused.load(); refused != kSuccess) return refused;
  if (memory == nullptr || bytes == 0 || flags != 3) return kInvalidValue;
  const std::lock_guard<std::mutex> guard(fake().lock);
  fake().device_ranges[reinterpret_cast<uint64_t>(memory)] = bytes;
  return kSuccess;
}

// The device sees this memory at another address than the host, so that mixing them up shows.
FAKE_CUDA int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  ENTER_UNSAFE("cuMemHostAlloc");
  if (flags != 3) return kInvalidValue;
  const int file = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kInvalidValue;
  char* views[2];
  for (char*& view : views) {
    view = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  }
  close(file);
  const std::lock_guard<std::mutex> guard(fake().lock);
  for (char* view : views) fake().mappings.emplace_back(view, bytes);
  fake().device_views[views[0]] = views[1];
  fake().device_ranges[reinterpret_cast<uint64_t>(views[1])] = bytes;
  *memory = views[0];
  return kSuccess;
}

FAKE_CUDA int cuMemHostGetDevicePointer_v2(uint64_t* address, void* memory, unsigned flags) {
  ENTER("cuMemHostGetDevicePointer_v2");
  if (flags != 0) return kInvalidValue;
  const std::lock_guard<std::mutex> guard(fake().lock);
  const auto view = fake().device_views.find(static_cast<char*>(memory));
  *address = reinterpret_cast<uint64_t>(view == fake().device_views.end() ? memory : view->second);
  return kSuccess;
}

FAKE_CUDA int cuStreamCreate(void** stream, unsigned flags) {
  ENTER("cuStreamCreate");
  if (const int state = ContextState(Current()); state != 0) return state;
  *stream = fake_cuda_new_stream(Current()->ordinal);
  static_cast<Stream*>(*stream)->blocking = flags == 0;
  static_cast<Stream*>(*stream)->prompt = true;
  return kSuccess;
}

FAKE_CUDA int cuStreamIsCapturing(void* handle, int* status) {
  ENTER("cuStreamIsCapturing");
  Stream* stream = Resolve(handle);
  if (stream == nullptr) return kInvalidContext;
  if (const int state = ContextState(stream->device); state != 0) return state;
  *status = kActive;  // unspecified after an error
  if (ConflictsWithCapture(*stream)) return kCaptureImplicit;
  *status = stream->capture.load();
  return kSuccess;
}

FAKE_CUDA int cuStreamGetCaptureInfo_v2(void* handle, int* status, uint64_t* id, void** graph,
                                        const void** dependencies, size_t* dependency_count) {
  ENTER("cuStreamGetCaptureInfo_v2");
  if (graph != nullptr || dependencies != nullptr || dependency_count != nullptr) {
    return kInvalidValue;  // the fake has none to show
  }
  Stream* stream = Resolve(handle);
  if (stream == nullptr) return kInvalidContext;
  if (ConflictsWithCapture(*stream)) return kCaptureImplicit;
  *status = stream->capture.load();
  if (*status == kActive) *id = stream->capture_id;
  return kSuccess;
}

FAKE_CUDA int cuStreamGetCaptureInfo_v3(void* handle, int* status, uint64_t* id, void** graph,
                                        const void** dependencies, const void** edges,
                                        size_t* dependency_count) {
  ENTER("cuStreamGetCaptureInfo_v3");
  if (edges != nullptr) return kInvalidValue;
  return cuStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, dependency_count);
}

FAKE_CUDA int cuStreamGetId(void* handle, unsigned long long* id) {
  ENTER("cuStreamGetId");
  Stream* stream = Resolve(handle);
  if (stream == nullptr) return kInvalidContext;
  *id = stream->id;
  return kSuccess;
}

FAKE_CUDA int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                             void* stream, void** parameters, void**) {
  ENTER("cuLaunchKernel");
  launches_counted.fetch_add(1, std::memory_order_relaxed);
  auto* const kernel = static_cast<Kernel*>(function);
  if (Device* device = Current(); device != nullptr && device->was_reset) {
    Crash("a function of a module", function);  // it went with the context
  }
  if (kernel == nullptr || grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 ||
      block_y != 1 || block_z != 1) {
    return kInvalidValue;
  }
  __atomic_fetch_add(&kernel->launches, 1, __ATOMIC_RELAXED);
  if (const auto before = fake().before_launch.load(std::memory_order_relaxed); before != nullptr) {
    fake().before_launch.store(nullptr);
    before(fake().before_launch_context);
  }
  const auto* parameter = static_cast<const char*>(parameters[0]);
  Node node;
  node.kernel = kernel;
  node.blocks = grid_x;
  node.threads = block_x;
  node.parameter.assign(parameter, parameter + kernel->parameter_bytes);
  if (kernel->look != nullptr) return LaunchEarly(Resolve(stream), std::move(node));
  return Enqueue(Resolve(stream), std::move(node));
}

// What the driver does in its exit handler.
namespace {
void EndDriver() {
  ended.store(true);
  // Who runs a queue just now has done so.
  ForEachStream([](Stream& stream) { const std::lock_guard<std::mutex> running(stream.run_lock); });
  const std::lock_guard<std::mutex> guard(fake().lock);
  for (const auto& [memory, bytes] : fake().mappings) mprotect(memory, bytes, PROT_NONE);
  // Threads of the process go on meanwhile.
  std::this_thread::sleep_for(std::chrono::milliseconds(end_takes_ms.load()));
}
}  // namespace

// ---- functions that nobody may call; here to be caught

FAKE_CUDA int cuCtxSynchronize() { return NeverCall("cuCtxSynchronize"); }
FAKE_CUDA int cuStreamSynchronize(void*) { return NeverCall("cuStreamSynchronize"); }
FAKE_CUDA int cuStreamQuery(void*) { return NeverCall("cuStreamQuery"); }
FAKE_CUDA int cuEventSynchronize(void*) { return NeverCall("cuEventSynchronize"); }
FAKE_CUDA int cuMemcpy(uint64_t, uint64_t, size_t) { return NeverCall("cuMemcpy"); }
FAKE_CUDA int cuMemcpyDtoH_v2(void*, uint64_t, size_t) { return NeverCall("cuMemcpyDtoH_v2"); }
FAKE_CUDA int cuMemcpyHtoD_v2(uint64_t, const void*, size_t) {
  return NeverCall("cuMemcpyHtoD_v2");
}
FAKE_CUDA int cuMemFree_v2(uint64_t) { return NeverCall("cuMemFree_v2"); }
FAKE_CUDA int cuMemFreeHost(void*) { return NeverCall("cuMemFreeHost"); }
FAKE_CUDA int cuCtxSetCurrent(void*) { return NeverCall("cuCtxSetCurrent"); }

// ---- control

FAKE_CUDA void fake_cuda_reset(int devices) {
  Fake& all = fake();
  for (std::thread& laggard : std::exchange(all.laggards, {})) laggard.join();
  for (const auto& [memory, bytes] : all.mappings) munmap(memory, bytes);
  for (const char* memory : all.allocations) delete[] memory;
  const std::lock_guard<std::mutex> guard(all.lock);
  all.per_thread.clear();
  all.streams.clear();
  all.handles.clear();
  all.destroyed.clear();
  all.devices.clear();
  all.other_contexts.clear();
  all.kernels.clear();
  all.graphs.clear();
  all.failing.clear();
  all.calls.clear();
  all.log.clear();
  all.misdeed.clear();
  all.jit_log.clear();
  all.loaded_image = nullptr;
  all.mappings.clear();
  all.allocations.clear();
  all.device_views.clear();
  all.device_ranges.clear();
  all.before_launch = nullptr;
  all.default_device = nullptr;
  all.multiprocessors = 0;
  all.late = false;
  all.own_lag = {};
  for (int i = 0; i < devices; ++i) {
    all.devices.push_back(std::make_unique<Device>());
    all.devices.back()->ordinal = i;
    all.devices.back()->legacy.device = all.devices.back().get();
    all.devices.back()->legacy.id = all.next_id++;
    NoteHandle(&all.devices.back()->legacy);
  }
  open_captures.store(0);
  logging.store(true);
  generation.fetch_add(1);
}

FAKE_CUDA void fake_cuda_initialize() {
  static std::once_flag once;
  std::call_once(once, [] { (void)std::atexit(&EndDriver); });
}

FAKE_CUDA void fake_cuda_set_memory(size_t free, size_t total) {
  memory_free.store(free);
  memory_total.store(total);
}
FAKE_CUDA void fake_cuda_set_end(int milliseconds) { end_takes_ms.store(milliseconds); }

FAKE_CUDA int fake_cuda_has_ended() { return ended.load() ? 1 : 0; }

FAKE_CUDA void fake_cuda_refuse_registration(int result) { registration_refused.store(result); }

FAKE_CUDA void fake_cuda_set_context_active(int device, int active) {
  fake().devices[device]->active.store(active != 0);
}

FAKE_CUDA void fake_cuda_set_device(int device) {
  thread().contexts.clear();
  if (device >= 0) thread().contexts.push_back(fake().devices[device].get());
}

FAKE_CUDA void fake_cuda_set_other_context(int device) {
  auto context = std::make_unique<Device>();
  context->ordinal = device;
  context->legacy.device = context.get();
  const std::lock_guard<std::mutex> guard(fake().lock);
  context->legacy.id = fake().next_id++;
  NoteHandle(&context->legacy);
  thread().contexts = {context.get()};
  fake().other_contexts.push_back(std::move(context));
}

FAKE_CUDA int fake_cuda_current_device() { return Current() == nullptr ? -1 : Current()->ordinal; }
FAKE_CUDA int fake_cuda_context_depth() { return static_cast<int>(thread().contexts.size()); }

FAKE_CUDA void fake_cuda_register_kernel(const char* name, FakeCudaKernel kernel,
                                         size_t parameter_bytes) {
  fake().kernels[name] =
      std::make_unique<Kernel>(Kernel{name, kernel, parameter_bytes, nullptr, nullptr, 0});
}

FAKE_CUDA void fake_cuda_register_early_kernel(const char* name, FakeCudaLook look,
                                               FakeCudaTell tell, size_t parameter_bytes) {
  fake().kernels[name] =
      std::make_unique<Kernel>(Kernel{name, nullptr, parameter_bytes, look, tell, 0});
}

FAKE_CUDA void fake_cuda_set_default_device(int device) {
  fake().default_device = device < 0 ? nullptr : fake().devices[device].get();
}

FAKE_CUDA void fake_cuda_set_multiprocessors(int count) { fake().multiprocessors = count; }

FAKE_CUDA void fake_cuda_set_late(size_t launches) {
  fake().late = true;
  fake().late_max = launches;
}

FAKE_CUDA void fake_cuda_set_own_lag(int milliseconds) {
  fake().own_lag = std::chrono::milliseconds(milliseconds);
}

FAKE_CUDA void fake_cuda_set_blocking(void* handle, int blocking) {
  Resolve(handle)->blocking = blocking != 0;
}

FAKE_CUDA void* fake_cuda_new_stream(int device) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  Stream* stream = nullptr;
  if (!fake().destroyed.empty()) {
    stream = fake().destroyed.back();  // the handle comes back, with another id
    fake().destroyed.pop_back();
    stream->blocking = true;
    stream->prompt = false;
  } else {
    fake().streams.push_back(std::make_unique<Stream>());
    stream = fake().streams.back().get();
  }
  stream->device = fake().devices[device].get();
  stream->id = fake().next_id++;
  NoteHandle(stream);
  return stream;
}

FAKE_CUDA void fake_cuda_destroy_stream(void* handle) {
  Stream* stream = Resolve(handle);
  RunQueued(*stream, SIZE_MAX);
  {
    const std::lock_guard<std::shared_mutex> guard(fake().handles_lock);
    fake().handles.erase(stream);
  }
  const std::lock_guard<std::mutex> guard(fake().lock);
  fake().destroyed.push_back(stream);
}

FAKE_CUDA void fake_cuda_set_stuck(void* handle, int stuck) {
  Resolve(handle)->stuck.store(stuck != 0);
}

FAKE_CUDA void fake_cuda_reset_device(int ordinal) {
  Device* device = fake().devices[ordinal].get();
  device->active.store(false);
  device->lost.store(kContextIsDestroyed);
  // Who runs a queue of its just now has done so.
  ForEachStream([device](Stream& stream) {
    if (stream.device != device) return;
    const std::lock_guard<std::mutex> running(stream.run_lock);
    const std::lock_guard<std::mutex> guard(stream.queue_lock);
    stream.queue.clear();
  });
  {
    const std::lock_guard<std::shared_mutex> guard(fake().handles_lock);
    std::erase_if(fake().handles, [device](const void* handle) {
      const auto* stream = static_cast<const Stream*>(handle);
      return stream->device == device && stream != &device->legacy;
    });
  }
  const std::lock_guard<std::mutex> guard(fake().lock);
  device->was_reset = true;
  for (const auto& [memory, bytes] : fake().mappings) mprotect(memory, bytes, PROT_NONE);
}

FAKE_CUDA uint64_t fake_cuda_counted(int what) {
  switch (what) {
    case 0:
      return calls_counted.load();
    case 1:
      return launches_counted.load();
    case 2:
      return allocations_counted.load();
    default:
      return 0;
  }
}

FAKE_CUDA void fake_cuda_count_allocation() {
  allocations_counted.fetch_add(1, std::memory_order_relaxed);
}

FAKE_CUDA size_t fake_cuda_run(void* handle, size_t count) {
  Stream* stream = Resolve(handle);
  return stream == nullptr ? 0 : RunQueued(*stream, count);
}

FAKE_CUDA size_t fake_cuda_run_all() {
  size_t ran = 0;
  ForEachStream([&](Stream& stream) {
    // A legacy stream has no handle of its own outside its context.
    ran += RunQueued(stream, SIZE_MAX);
  });
  return ran;
}

FAKE_CUDA size_t fake_cuda_queued(void* handle) {
  Stream* stream = Resolve(handle);
  const std::lock_guard<std::mutex> guard(stream->queue_lock);
  return stream->queue.size();
}

FAKE_CUDA int fake_cuda_launch_host(void* stream, void (*function)(void* context), void* context) {
  Node node;
  node.function = function;
  node.context = context;
  return Enqueue(Resolve(stream), std::move(node));
}

FAKE_CUDA void fake_cuda_set_trace(FakeCudaLaunched launched, FakeCudaRan ran) {
  trace_launched = launched;
  trace_ran = ran;
}

FAKE_CUDA int fake_cuda_is_traced() { return trace_launched != nullptr ? 1 : 0; }

FAKE_CUDA int fake_cuda_launch_named(void* stream, const char* kernel) {
  Node node;
  node.name = kernel;
  return Enqueue(Resolve(stream), std::move(node));
}

FAKE_CUDA void fake_cuda_before_next_launch(void (*function)(void* context), void* context) {
  fake().before_launch = function;
  fake().before_launch_context = context;
}

FAKE_CUDA int fake_cuda_is_device_address(uint64_t address) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  const auto after = fake().device_ranges.upper_bound(address);
  if (after == fake().device_ranges.begin()) return 0;
  const auto& [begin, bytes] = *std::prev(after);
  return address - begin < bytes ? 1 : 0;
}

FAKE_CUDA int fake_cuda_begin_capture(void* handle, int mode) {
  Stream* stream = Resolve(handle);
  stream->captured.clear();
  stream->capture_mode = mode;
  stream->capture_thread = ThisThread();
  stream->capture_id = fake().next_capture++;
  stream->capture.store(kActive);
  open_captures.fetch_add(1);
  return kSuccess;
}

FAKE_CUDA int fake_cuda_end_capture(void* handle) {
  Stream* stream = Resolve(handle);
  open_captures.fetch_sub(1);
  if (stream->capture.exchange(kNone) != kActive) return -1;
  fake().graphs.push_back(std::move(stream->captured));
  return static_cast<int>(fake().graphs.size()) - 1;
}

FAKE_CUDA size_t fake_cuda_graph_nodes(int graph) { return fake().graphs[graph].size(); }

FAKE_CUDA void fake_cuda_replay(int graph, void* handle) {
  Stream* stream = Resolve(handle);
  if (fake().late) return ReplayNow(fake().graphs[graph], stream);
  const std::lock_guard<std::mutex> guard(stream->queue_lock);
  for (const Node& node : fake().graphs[graph]) stream->queue.push_back(node);
}

FAKE_CUDA int fake_cuda_is_capturing(void* handle) {
  const Stream* stream = Resolve(handle);
  return stream != nullptr && stream->capture.load() != kNone ? 1 : 0;
}

FAKE_CUDA void fake_cuda_fail(const char* function, int first, int count, int result) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  const int before = fake().calls[function];
  fake().failing[function] = {before + first, before + first + count - 1, result};
}

FAKE_CUDA void fake_cuda_lose_context(int device, int result) {
  fake().devices[device]->lost.store(result);
}

FAKE_CUDA const void* fake_cuda_loaded_image() { return fake().loaded_image; }

FAKE_CUDA void fake_cuda_set_jit_log(const char* words) { fake().jit_log = words; }

FAKE_CUDA size_t fake_cuda_calls(const char* function) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  const auto found = fake().calls.find(function);
  return found == fake().calls.end() ? 0 : static_cast<size_t>(found->second);
}

FAKE_CUDA size_t fake_cuda_launches(const char* kernel) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  const auto found = fake().kernels.find(kernel);
  return found == fake().kernels.end()
             ? 0
             : __atomic_load_n(&found->second->launches, __ATOMIC_RELAXED);
}

FAKE_CUDA size_t fake_cuda_log_size() {
  const std::lock_guard<std::mutex> guard(fake().lock);
  return fake().log.size();
}

FAKE_CUDA const char* fake_cuda_log_entry(size_t index) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  return fake().log[index].c_str();
}

FAKE_CUDA const char* fake_cuda_misdeed() {
  const std::lock_guard<std::mutex> guard(fake().lock);
  return fake().misdeed.empty() ? nullptr : fake().misdeed.c_str();
}

FAKE_CUDA void fake_cuda_set_logging(int on) { logging.store(on != 0); }
