// SPDX-License-Identifier: Apache-2.0
// A FAKE of NVIDIA's profiling library: runs on the CPU, for tests only. See fake_cupti.h.
#include "tests/fakes/cupti/fake_cupti.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#define FAKE_CUPTI extern "C" __attribute__((visibility("default")))

namespace {

// cupti_result.h and cupti_activity.h, written here anew, so that a wrong number in the code under
// test shows.
enum : int {
  kSuccess = 0,
  kInvalidParameter = 1,
  kInvalidOperation = 7,
  kMaxLimitReached = 12,
  kQueueEmpty = 18,
  kMultipleSubscribers = 39,
};
enum : int { kDriver = 4, kRuntime = 5, kConcurrentKernel = 10, kExternalCorrelation = 39 };
constexpr uint32_t kCudaLaunchKernel = 211;
constexpr uint32_t kCudaLaunchKernelOf13 = 505;
constexpr uint32_t kNewIdsOf13 = 505;  // and above
constexpr uint32_t kCuLaunchKernel = 307;

using Request = void (*)(uint8_t**, size_t*, size_t*);
using Done = void (*)(void* context, uint32_t stream, uint8_t*, size_t bytes, size_t valid);

// CUpti_ActivityKernel10.
struct alignas(8) KernelRecord {
  uint32_t kind;
  char gap0[12];
  uint64_t start;
  uint64_t end;
  char gap1[60];
  uint32_t correlation;
  char gap2[8];
  const char* name;
  char gap3[44];
  uint32_t graph;
  char gap4[56];
};
static_assert(sizeof(KernelRecord) == 216 && offsetof(KernelRecord, graph) == 156);
struct alignas(8) ExternalRecord {
  uint32_t kind;
  uint32_t id_kind;
  uint64_t id;
  uint32_t correlation;
  uint32_t reserved;
};
static_assert(sizeof(ExternalRecord) == 24);
struct alignas(8) ApiRecord {
  uint32_t kind;
  uint32_t callback_id;
  uint64_t start, end;
  uint32_t process, thread, correlation, result;
};
static_assert(sizeof(ApiRecord) == 40);

struct Buffer {
  uint8_t* memory = nullptr;
  size_t bytes = 0;
  size_t used = 0;
  size_t incomplete = 0;
  bool full = false;
  Done done = nullptr;  // beside whose request it was asked for
};

struct Launched {
  uint32_t correlation = 0;
  std::shared_ptr<Buffer> buffer;
  KernelRecord* record = nullptr;
};

struct Fake {
  std::mutex lock;
  uint32_t version = 130001;
  void* subscriber = nullptr;
  Request request = nullptr;
  Done done = nullptr;
  std::set<int> kinds;
  std::set<std::pair<int, uint32_t>> calls_on;  // of kDriver or kRuntime
  std::deque<std::shared_ptr<Buffer>> buffers;
  std::map<uint64_t, Launched> running;
  std::map<std::string, int> failing;
  std::map<std::string, size_t> calls;
  std::set<std::string> names;  // as long-lived as the real ones
  size_t call_count = 0;
  uint64_t next = 0;
  uint64_t clock = 1000;
  size_t to_drop = 0;
  uint32_t launch_id = 0;  // of the job's launches; 0: as CUPTI's version has it
  size_t dropped = 0;
  size_t astray = 0;
  bool late = false;
  bool backwards = false;
  bool ids_need_kinds = false;
  std::string misdeed;
  int generation = 0;
  FILE* log = nullptr;
  int flush_ms = 0;

  Fake() {
    if (const char* ms = std::getenv("NANWATCH_FAKE_CUPTI_FLUSH_MS"); ms != nullptr) {
      flush_ms = std::atoi(ms);
    }
    if (const char* held = std::getenv("NANWATCH_FAKE_CUPTI"); held != nullptr) {
      if (std::strcmp(held, "held") == 0) subscriber = this;
    }
    if (const char* number = std::getenv("NANWATCH_FAKE_CUPTI_VERSION"); number != nullptr) {
      version = static_cast<uint32_t>(std::atoi(number));
    }
    if (const char* path = std::getenv("NANWATCH_FAKE_CUPTI_LOG"); path != nullptr) {
      log = std::fopen(path, "a");
    }
  }
};

Fake& fake() {
  static auto* object = new Fake;
  return *object;
}

struct ThreadIds {
  int generation = 0;
  std::map<int, std::vector<uint64_t>> pushed;
};
ThreadIds& ids() {
  // Never destroyed: an ending thread still launches when its own objects are gone.
  static thread_local auto* const state = new ThreadIds;
  if (state->generation != fake().generation) *state = {fake().generation, {}};
  return *state;
}

// Where a fake driver is in the process and has ended, nobody may call: the real library reads what
// went with the driver.
void DieBehindTheDriver(const char* function) {
  using HasEnded = int (*)();
  // Looked up at each call: the driver may be loaded later than this library.
  const auto has_ended = reinterpret_cast<HasEnded>(dlsym(RTLD_DEFAULT, "fake_cuda_has_ended"));
  if (has_ended == nullptr || has_ended() == 0) return;
  std::fprintf(stderr, "the fake CUPTI was called behind the driver's end: %s\n", function);
  std::abort();
}

// The result that a test has planted, or 0.
int Called(const char* function) {
  DieBehindTheDriver(function);
  const std::lock_guard<std::mutex> guard(fake().lock);
  ++fake().calls[function];
  ++fake().call_count;
  if (fake().log != nullptr) {
    std::fprintf(fake().log, "%s\n", function);
    std::fflush(fake().log);
  }
  const auto failing = fake().failing.find(function);
  return failing == fake().failing.end() ? kSuccess : failing->second;
}
#define ENTER(function) \
  if (const int planted = Called(function); planted != kSuccess) return planted

// Room for a record, with the lock held; it is let go of while a buffer is asked for.
void* Reserve(std::unique_lock<std::mutex>& guard, size_t bytes, std::shared_ptr<Buffer>* in) {
  Fake& all = fake();
  if (all.to_drop != 0) {
    --all.to_drop;
    ++all.dropped;
    return nullptr;
  }
  for (const std::shared_ptr<Buffer>& buffer : all.buffers) {
    if (buffer->full) continue;
    if (buffer->used + bytes <= buffer->bytes) {
      void* const place = buffer->memory + buffer->used;
      buffer->used += bytes;
      *in = buffer;
      return place;
    }
    buffer->full = true;
  }
  const Request request = all.request;
  auto made = std::make_shared<Buffer>();
  made->done = all.done;
  size_t records_max = 0;
  if (request != nullptr) {
    guard.unlock();
    request(&made->memory, &made->bytes, &records_max);
    guard.lock();
  }
  if (made->memory == nullptr || made->bytes < bytes) {
    ++all.dropped;
    return nullptr;
  }
  all.buffers.push_back(made);
  made->used = bytes;
  *in = made;
  return made->memory;
}

template <class Record>
void Write(std::unique_lock<std::mutex>& guard, const Record& record) {
  std::shared_ptr<Buffer> in;
  void* const place = Reserve(guard, sizeof record, &in);
  if (place != nullptr) std::memcpy(place, &record, sizeof record);
}

// Hands over what `ready` says.
template <class Ready>
void Deliver(Ready ready) {
  Fake& all = fake();
  std::vector<std::shared_ptr<Buffer>> handed;
  Done done = nullptr;
  {
    const std::lock_guard<std::mutex> guard(all.lock);
    if (all.late) return;
    done = all.done;
    for (auto at = all.buffers.begin(); at != all.buffers.end();) {
      if (!ready(**at)) {
        ++at;
        continue;
      }
      (*at)->full = true;
      handed.push_back(*at);
      at = all.buffers.erase(at);
    }
    if (all.backwards) std::reverse(handed.begin(), handed.end());
    for (const auto& buffer : handed) {
      if (buffer->done == done) continue;
      ++all.astray;
      if (all.log != nullptr) std::fputs("(a buffer went astray)\n", all.log);
    }
  }
  for (const auto& buffer : handed) {
    done(nullptr, 0, buffer->memory, buffer->bytes, buffer->used);
  }
}

bool IsCallOn(int kind, uint32_t callback_id) {
  return fake().kinds.contains(kind) || fake().calls_on.contains({kind, callback_id});
}

// Kind and id of the call that launches this kernel. A job's `<<<>>>` compiles to a call of the
// runtime that CUDA 13 has given a new id; nanwatch launches its own by the driver.
std::pair<int, uint32_t> CallThatLaunches(const char* name) {
  if (std::strncmp(name, "nanwatch_", 9) == 0) return {kDriver, kCuLaunchKernel};
  const uint32_t by_version = fake().version >= 130000 ? kCudaLaunchKernelOf13 : kCudaLaunchKernel;
  return {kRuntime, fake().launch_id != 0 ? fake().launch_id : by_version};
}

int NeverCall(const char* function) {
  (void)Called(function);
  const std::lock_guard<std::mutex> guard(fake().lock);
  if (fake().misdeed.empty()) fake().misdeed = function;
  return kInvalidOperation;
}

}  // namespace

// ---- CUPTI

FAKE_CUPTI int cuptiGetVersion(uint32_t* version) {
  ENTER("cuptiGetVersion");
  *version = fake().version;
  return kSuccess;
}

FAKE_CUPTI int cuptiSubscribe(void** subscriber, void*, void*) {
  ENTER("cuptiSubscribe");
  const std::lock_guard<std::mutex> guard(fake().lock);
  if (fake().subscriber != nullptr) return kMultipleSubscribers;
  *subscriber = fake().subscriber = &fake().subscriber;
  return kSuccess;
}

FAKE_CUPTI int cuptiUnsubscribe(void* subscriber) {
  ENTER("cuptiUnsubscribe");
  const std::lock_guard<std::mutex> guard(fake().lock);
  if (subscriber == nullptr || subscriber != fake().subscriber) return kInvalidParameter;
  fake().subscriber = nullptr;
  return kSuccess;
}

FAKE_CUPTI int cuptiActivityRegisterCallbacks(Request request, Done done) {
  ENTER("cuptiActivityRegisterCallbacks");
  if (request == nullptr || done == nullptr) return kInvalidParameter;
  const std::lock_guard<std::mutex> guard(fake().lock);
  fake().request = request;
  fake().done = done;
  return kSuccess;
}

FAKE_CUPTI int cuptiActivityEnable(int kind) {
  ENTER("cuptiActivityEnable");
  const std::lock_guard<std::mutex> guard(fake().lock);
  fake().kinds.insert(kind);
  return kSuccess;
}

FAKE_CUPTI int cuptiActivityDisable(int kind) {
  ENTER("cuptiActivityDisable");
  const std::lock_guard<std::mutex> guard(fake().lock);
  fake().kinds.erase(kind);
  return kSuccess;
}

static int EnableCall(int kind, uint32_t callback_id, uint8_t on) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  if (on != 0) {
    fake().calls_on.insert({kind, callback_id});
  } else {
    fake().calls_on.erase({kind, callback_id});
  }
  return kSuccess;
}
FAKE_CUPTI int cuptiActivityEnableRuntimeApi(uint32_t callback_id, uint8_t on) {
  ENTER("cuptiActivityEnableRuntimeApi");
  if (callback_id >= kNewIdsOf13 && fake().version < 130000) return kInvalidParameter;
  return EnableCall(kRuntime, callback_id, on);
}
FAKE_CUPTI int cuptiActivityEnableDriverApi(uint32_t callback_id, uint8_t on) {
  ENTER("cuptiActivityEnableDriverApi");
  return EnableCall(kDriver, callback_id, on);
}

FAKE_CUPTI int cuptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
  ENTER("cuptiActivityPushExternalCorrelationId");
  if (kind < 1 || kind > 5) return kInvalidParameter;
  ids().pushed[kind].push_back(id);
  return kSuccess;
}

FAKE_CUPTI int cuptiActivityPopExternalCorrelationId(int kind, uint64_t* last) {
  ENTER("cuptiActivityPopExternalCorrelationId");
  std::vector<uint64_t>& pushed = ids().pushed[kind];
  if (pushed.empty()) return kQueueEmpty;
  if (last != nullptr) *last = pushed.back();
  pushed.pop_back();
  return kSuccess;
}

FAKE_CUPTI int cuptiActivityFlushAll(uint32_t flags) {
  ENTER("cuptiActivityFlushAll");
  if (fake().done == nullptr) return kInvalidOperation;
  // Whoever waits here while the driver ends is in what goes with it.
  std::this_thread::sleep_for(std::chrono::milliseconds(fake().flush_ms));
  DieBehindTheDriver("cuptiActivityFlushAll, which was under way");
  Deliver([flags](const Buffer& buffer) { return flags != 0 || buffer.incomplete == 0; });
  return kSuccess;
}

FAKE_CUPTI int cuptiActivityGetNextRecord(uint8_t* buffer, size_t bytes_valid, void** record) {
  ENTER("cuptiActivityGetNextRecord");
  if (buffer == nullptr) return kInvalidParameter;
  auto* at = static_cast<uint8_t*>(*record);
  if (at == nullptr) {
    at = buffer;
  } else {
    uint32_t kind = 0;
    std::memcpy(&kind, at, sizeof kind);
    const size_t of_call =
        kind == kExternalCorrelation ? sizeof(ExternalRecord) : sizeof(ApiRecord);
    at += kind == kConcurrentKernel ? sizeof(KernelRecord) : of_call;
  }
  if (at >= buffer + bytes_valid) return kMaxLimitReached;
  *record = at;
  return kSuccess;
}

FAKE_CUPTI int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* count) {
  ENTER("cuptiActivityGetNumDroppedRecords");
  const std::lock_guard<std::mutex> guard(fake().lock);
  *count = fake().dropped;
  fake().dropped = 0;
  return kSuccess;
}

// What kineto calls beside.
FAKE_CUPTI int cuptiActivitySetAttribute(int, size_t*, void*) {
  ENTER("cuptiActivitySetAttribute");
  return kSuccess;
}
FAKE_CUPTI int cuptiActivityRegisterTimestampCallback(void*) {
  ENTER("cuptiActivityRegisterTimestampCallback");
  return kSuccess;
}
FAKE_CUPTI int cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) {
  ENTER("cuptiActivityEnableCudaEventDeviceTimestamps");
  return kSuccess;
}
FAKE_CUPTI int cuptiEnableCallback(uint32_t, void*, int, uint32_t) {
  ENTER("cuptiEnableCallback");
  return kSuccess;
}
FAKE_CUPTI int cuptiEnableDomain(uint32_t, void*, int) {
  ENTER("cuptiEnableDomain");
  return kSuccess;
}
FAKE_CUPTI int cuptiGetResultString(int, const char** text) {
  ENTER("cuptiGetResultString");
  *text = "an error of the fake CUPTI";
  return kSuccess;
}
FAKE_CUPTI int cuptiFinalize() { return NeverCall("cuptiFinalize"); }

// ---- control

FAKE_CUPTI void fake_cupti_reset() {
  Fake& all = fake();
  const std::lock_guard<std::mutex> guard(all.lock);
  all.version = 130001;
  all.subscriber = nullptr;
  all.request = nullptr;
  all.done = nullptr;
  all.kinds.clear();
  all.calls_on.clear();
  all.buffers.clear();
  all.running.clear();
  all.failing.clear();
  all.calls.clear();
  all.call_count = all.to_drop = all.dropped = all.astray = 0;
  all.late = all.backwards = all.ids_need_kinds = false;
  all.launch_id = 0;
  all.misdeed.clear();
  ++all.generation;
}

FAKE_CUPTI void fake_cupti_set_version(uint32_t version) { fake().version = version; }
FAKE_CUPTI void fake_cupti_hold() { fake().subscriber = &fake(); }
FAKE_CUPTI void fake_cupti_set_late(int on) { fake().late = on != 0; }
FAKE_CUPTI void fake_cupti_set_backwards(int on) { fake().backwards = on != 0; }
FAKE_CUPTI void fake_cupti_drop(size_t count) { fake().to_drop = count; }
FAKE_CUPTI void fake_cupti_set_launch_id(uint32_t id) { fake().launch_id = id; }
FAKE_CUPTI void fake_cupti_set_ids_need_kinds(int on) { fake().ids_need_kinds = on != 0; }

FAKE_CUPTI void fake_cupti_fail(const char* function, int result) {
  if (result == kSuccess) {
    fake().failing.erase(function);
  } else {
    fake().failing[function] = result;
  }
}

FAKE_CUPTI uint64_t fake_cupti_launched(const char* name, uint32_t graph, uint64_t launch) {
  Fake& all = fake();
  std::unique_lock<std::mutex> guard(all.lock);
  const uint64_t number = ++all.next;
  const auto correlation = static_cast<uint32_t>(launch != 0 ? launch : number);
  const auto [kind, id] = CallThatLaunches(name);
  // Of a graph there is one call, that of the first kernel.
  const bool calls = IsCallOn(kind, id) && launch == 0;
  const bool ids_told = calls && all.kinds.contains(kExternalCorrelation) &&
                        (!all.ids_need_kinds || all.kinds.contains(kind));
  if (ids_told) {
    for (const auto& [id_kind, pushed] : ids().pushed) {
      if (pushed.empty()) continue;
      Write(guard, ExternalRecord{kExternalCorrelation, static_cast<uint32_t>(id_kind),
                                  pushed.back(), correlation, 0});
    }
  }
  if (calls) {
    Write(guard,
          ApiRecord{static_cast<uint32_t>(kind), id, all.clock, all.clock, 0, 0, correlation, 0});
  }
  Launched launched;
  launched.correlation = correlation;
  if (all.kinds.contains(kConcurrentKernel)) {
    launched.record =
        static_cast<KernelRecord*>(Reserve(guard, sizeof(KernelRecord), &launched.buffer));
    if (launched.record != nullptr) {
      *launched.record = {};
      launched.record->kind = kConcurrentKernel;
      launched.record->correlation = correlation;
      launched.record->name = all.names.insert(name).first->c_str();
      launched.record->graph = graph;
      ++launched.buffer->incomplete;
    }
  }
  all.running[number] = launched;
  return number;
}

FAKE_CUPTI void fake_cupti_ran(uint64_t number, uint64_t nanoseconds) {
  Fake& all = fake();
  {
    const std::lock_guard<std::mutex> guard(all.lock);
    const auto at = all.running.find(number);
    if (at == all.running.end()) return;
    if (at->second.record != nullptr) {
      at->second.record->start = all.clock;
      at->second.record->end = all.clock += nanoseconds;
      --at->second.buffer->incomplete;
    }
    all.running.erase(at);
    if (all.done == nullptr) return;
  }
  Deliver([](const Buffer& buffer) { return buffer.full && buffer.incomplete == 0; });
}

FAKE_CUPTI size_t fake_cupti_calls(const char* function) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  return fake().calls[function];
}
FAKE_CUPTI size_t fake_cupti_all_calls() { return fake().call_count; }
FAKE_CUPTI size_t fake_cupti_depth() {
  size_t depth = 0;
  for (const auto& [kind, pushed] : ids().pushed) depth += pushed.size();
  return depth;
}
FAKE_CUPTI int fake_cupti_enabled(int kind) {
  const std::lock_guard<std::mutex> guard(fake().lock);
  if (fake().kinds.contains(kind)) return 1;
  for (const auto& [of_kind, id] : fake().calls_on) {
    if (of_kind == kind) return 1;
  }
  return 0;
}
FAKE_CUPTI size_t fake_cupti_buffers_held() {
  const std::lock_guard<std::mutex> guard(fake().lock);
  return fake().buffers.size();
}
FAKE_CUPTI size_t fake_cupti_astray() { return fake().astray; }
FAKE_CUPTI const char* fake_cupti_misdeed() {
  const std::lock_guard<std::mutex> guard(fake().lock);
  return fake().misdeed.empty() ? nullptr : fake().misdeed.c_str();
}
