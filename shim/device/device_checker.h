// SPDX-License-Identifier: Apache-2.0
// Has the outputs of an op on a GPU checked there, behind the op, on the op's own stream, and tells
// later what was found. The kernel and its half of the protocol: check_launch.h.
//
// The job's threads call Enqueue, AddStep and Flush from where the op was called. Some thread calls
// Poll now and then; Poll only reads memory, so it may be any thread, and at any time.
//
// Life of a device: it is set up at the first request for it that comes outside a capture (module,
// memory, one launch of each kernel on a stream of our own, so that the driver loads nothing lazily
// later). Checks begin when that launch is known to be done; until then requests are answered
// kStarting. A device whose context is lost, that fails kFailuresInARow times in a row, or that
// cannot be set up steps down: for good, with a reason in words, without touching the others.
//
//   unseen -> setting up -> warming -> ready -> down
//      ^----------'  ('context not there', 'a capture is in the way': tried again later)
//
// What is promised to the job: no call asks to wait for a stream, an event, a context or another
// thread, and none does but what sets a device up (driver.h says why that may); none allocates or
// takes a lock once the device is ready; where there is no room the check is not made, and
// counted. The current context, the capture mode and the errors of the calling thread are as
// before. In a capture only kernel launches are made, which become nodes of the graph.
//
// Graphs. Before the first check in a capture stands a node that counts the replays of the graph,
// in a word of the graph's own that its checks carry as their step. So a result says in which
// replays something was found, however late it is read. Nobody here knows when a graph is replayed:
// who does (gpu_graphs.h) puts a Mark behind the replay, and asks with FoundIn for what each
// check has found in it once the mark is told. Slots of checks in graphs are never given back.
//
// Known limits. A graph that is instantiated twice, both running at once, shares the slots and the
// count of its checks. In a graph that forks before its first check, what runs beside the count
// may be taken for the replay before or after. A stream that is destroyed keeps the slots of its
// last launches, progress_every at most, unless Flush was called on it. A per-thread default
// stream needs cuStreamGetId (CUDA 12.0) to be told from that of a thread before it with the same
// pthread_t. A default stream of another context of the device (a green one) is not checked.
//
// A launch of ours waits behind the op's kernel, and what shares its hardware queue waits behind
// it: work of other streams, where CUDA_DEVICE_MAX_CONNECTIONS is 1 or there are more streams than
// queues. So a kernel that spins until work of another stream is done, as torch's native
// asynchronous tensor parallelism has them, may find that work behind our launch, which is behind
// the kernel: a job that counts on an order of launches within one queue can hang. Not tried on a
// GPU.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shim/device/batch_launch.h"
#include "shim/device/check_launch.h"
#include "shim/device/driver.h"
#include "shim/device/list_launch.h"
#include "shim/device/measure_launch.h"

namespace nanwatch::device {

inline constexpr int kDevicesMax = 32;
// So many failures of our own calls, none succeeding between them, and the device steps down.
inline constexpr uint32_t kFailuresInARow = 8;

// Number of blocks for a launch: GridFor of check_kernel.h.
using GridFunction = uint32_t (*)(const LaunchHead& head, const DeviceTensor* tensors,
                                  int multiprocessors);
// The same for a list: ListGridFor of check_list.h.
using ListGridFunction = uint32_t (*)(const ListLaunch& launch, int multiprocessors);

struct CheckerOptions {
  const char* image = nullptr;  // PTX, with its final zero
  size_t image_bytes = 0;       // without it; 0: this build has no kernels
  // The same kernels for some architectures, or null. Tried first: it needs no compiler.
  const void* binary = nullptr;
  GridFunction grid_for = nullptr;
  ListGridFunction list_grid_for = nullptr;

  // Memory for a device's results that others can read too, such as a section of the segment:
  // page-aligned, never unmapped. Called once per device, by the thread that sets it up. Null,
  // nothing returned, or a driver that refuses to register it: the driver's own memory is used.
  std::span<std::byte> (*memory_for)(void* context, int device) = nullptr;
  void* memory_context = nullptr;

  // Launches that can be under way on a device. The job's thread runs ahead of the GPU by about a
  // thousand launches at most (the depth of the driver's queue), all else is the time between two
  // calls of Poll. One stream may hold three quarters.
  uint32_t slots = 2048;
  // Checks in graphs. Their slots are never given back: a graph may be replayed at any time.
  uint32_t captured_slots = 4096;
  // Every how many launches of a stream the kernel says how far the stream is: one write across the
  // bus each time.
  uint32_t progress_every = 64;
  // And whenever so much time has gone by since the stream last did, so that one with little to do
  // is never far behind. 0: never for that reason.
  uint64_t progress_after_ns = 0;
  // What was launched on a device that has stepped down is waited for so long. Nobody asks its
  // streams any more how far they are, and what is never told holds up all that is told in order.
  uint64_t down_after_ns = 2'000'000'000;
  // The tensor that a device is set up for is looked at too, if the kernels are loaded and have run
  // within so much time. Setting up takes a second or two where their text is compiled, once; what
  // is launched at its end runs in less than a millisecond, unless the job has filled the device.
  // 0: it is not waited for.
  uint64_t warm_up_wait_ns = 20'000'000;
};

// Bytes that memory_for should return to hold as many slots as the options ask for. With less there
// are fewer.
[[nodiscard]] size_t HostBytesFor(const CheckerOptions& options) noexcept;

struct CheckRequest {
  CuStream stream = nullptr;  // current where the op ran
  int device = 0;
  std::span<const DeviceTensor> outputs;
  std::span<const DeviceTensor> inputs;  // the first kInputsMax are looked at after a hit
  // The stream reports as soon as it is there, whatever the options say: nobody will ask it later.
  bool reports = false;
};

// Tensors that are each one run of memory: a step's gradients, what an update has written.
struct CheckListRequest {
  CuStream stream = nullptr;
  int device = 0;
  std::span<const ListEntry> gate;
  // Looked at where the gate is bad, by the launch that has looked at it. A gate of more than
  // kListGateMax entries has none: they are left out, and counted as inputs are.
  std::span<const ListEntry> others;
  bool reports = false;  // as in CheckRequest
  // The gate is summed besides: Finished::sums. Each entry by one launch: where several look at the
  // gate, for there are many others, by the first of them. Not in a capture: there the list is
  // checked alone.
  bool sums = false;
  // Of the gate it is only asked which entries are bad (list_launch.h). There must be no others.
  bool kinds_only = false;
  // The gate is measured instead, kMeasuredMax entries in each launch, and nothing is said of what
  // is bad: Finished::measures. There must be no others. In a capture nothing is launched, which is
  // answered kNothingToCheck.
  bool measures = false;
  // With `measures`, as many as the gate has entries: samples of these are compared with what was
  // kept in these places of the device's memory, and kept there. Nobody else has to use them.
  std::span<const SampleSpan> samples = {};
  // TilesOf (check_list.h) of all of the gate, where it is one launch; 0: not known.
  uint32_t tiles = 0;
};
inline constexpr int kListGateMax = kListMax / 2;

// Outputs of a few ops that stand one behind another on the stream; each is one run of memory.
struct CheckBatchRequest {
  CuStream stream = nullptr;
  int device = 0;
  // The first kBatchEntriesMax and kBatchOthersMax. What is beyond is left out, and counted as
  // inputs are.
  std::span<const BatchEntry> entries;
  std::span<const BatchEntry> others;  // read on a hit, by the same launch
  uint32_t phase = 0;                  // which sixteenth of large entries is read: batch_launch.h
  bool read_all = false;               // all of them instead
  bool reports_masks = false;          // kReportMasks; not in a capture
  bool reports = false;                // as in CheckRequest
};

// Why a check was not made.
enum class Skip : uint8_t {
  kNone = 0,
  kNothingToCheck,       // no output holds an element
  kNoSuchDevice,         // index out of range
  kSteppedDown,          // see Reason
  kStarting,             // the device is being set up or warmed
  kContextInactive,      // the device's primary context is not there
  kCapturedBeforeReady,  // the first sight of the device was in a capture
  kCaptureUnknown,       // the state of the stream's capture could not be told, or is invalidated
  kNoSlot,               // all slots are in use
  kStreamNoSlot,         // all slots that one stream may use are
  kNoCapturedSlot,
  kNoStreamEntry,   // kStreamsMax streams were seen
  kDriverError,     // one of our calls failed
  kNoGraphEntry,    // kGraphsMax graphs were seen
  kForeignContext,  // a default stream, of another context of the device: see current_context.h
};
inline constexpr int kSkipCount = 15;

// Failures of our own calls, by what they say.
enum class Failure : uint8_t {
  kOutOfMemory = 0,
  kContextLost,
  kCapture,
  kImage,  // the module or a function in it is not accepted
  kOther,
};
inline constexpr int kFailureCount = 5;

struct Enqueued {
  Skip skip = Skip::kNone;  // kNone: all launches were made
  // Launch i has ticket first_ticket + i and looks at outputs kOutputsMax * i onwards; of a list,
  // at entries kListMax * i of the gate, or at all of the gate and kListMax - gate.size() of the
  // others; where it measures, at entries kMeasuredMax * i.
  uint32_t launches = 0;
  uint64_t first_ticket = 0;
  // The graph that the launches are nodes of, counted from 1 on each device; 0: none. The slot is
  // that of the last launch, for FoundIn.
  uint32_t graph = 0;
  uint32_t captured_slot = 0;
};

// What a check in a graph has found in a span of replays.
enum class Found : uint8_t {
  kNothing = 0,
  kFirst,  // and the result has the figures of it
  kAgain,  // the figures are those of an earlier replay
};

// What became of a launch.
struct Finished {
  enum class Outcome : uint8_t {
    kClean,
    kBad,   // `result` says what was found, ListOf(*result) of a list and BatchOf(*result) of a
            // batch; valid during the callback
    kLost,  // the context went away, or the device stepped down, before it was known to be done
  };
  int device = 0;
  Outcome outcome = Outcome::kClean;
  // In a graph: told whenever replays found something again, with the hits so far. Clean replays
  // are not told.
  bool captured = false;
  uint64_t ticket = 0;
  uint64_t hits = 0;
  const CheckResult* result = nullptr;
  // Of a list, of kClean and kBad, where asked for; entry i is that of the launch. Null of every
  // other launch. Valid during the callback.
  const ListSums* sums = nullptr;
  // The same of a list that was measured, of kClean: kMeasuredMax of them, in the order of the
  // launch, those behind its entries without meaning.
  const Measure* measures = nullptr;
};
using FinishedCallback = void (*)(void* context, const Finished& finished);

struct CheckerCounters {
  uint64_t launches = 0;
  uint64_t inputs_left_out = 0;  // beyond kInputsMax
  uint64_t skips[kSkipCount] = {};
  uint64_t failures[kFailureCount] = {};
};

class CheckedDevice;

// What all devices of one checker share.
struct CheckerShared {
  Driver driver;
  CheckerOptions options;
  std::atomic<uint64_t> next_ticket{1};
  std::atomic<uint64_t> launches{0};
  std::atomic<uint64_t> inputs_left_out{0};
  std::atomic<uint64_t> skips[kSkipCount] = {};
  std::atomic<uint64_t> failures[kFailureCount] = {};
};

// Everything from any thread, at once. In the shim it is never destroyed: the GPU may still write
// to its memory.
class DeviceChecker final {
 public:
  // Null if the driver lacks a function that is needed, the options name no kernels or are out of
  // range, or there is no memory. Makes no CUDA call.
  [[nodiscard]] static std::unique_ptr<DeviceChecker> Create(
      const Driver& driver, const CheckerOptions& options) noexcept;
  ~DeviceChecker();

  // Launches the check of the outputs on the op's stream; several launches if there are more than
  // kOutputsMax. To be called right after the op, by its thread, while its outputs are alive.
  Enqueued Enqueue(const CheckRequest& request) noexcept;
  // The same for a list, kListMax tensors in each launch.
  Enqueued EnqueueList(const CheckListRequest& request) noexcept;
  // The same for a batch, by one launch.
  Enqueued EnqueueBatch(const CheckBatchRequest& request) noexcept;

  // A step has ended: what later checks on the device may count begins anew (StepWords), by a
  // launch where Poll has told of something bad since the last one, and by none else: nothing was
  // counted. Always by one in a capture, since any replay may be. To be called by the thread that
  // ended the step, with its stream.
  Skip AddStep(int device, CuStream stream) noexcept;

  // Puts an empty launch on the stream, which Poll tells of as of any when all that was launched
  // there before it is done.
  Enqueued Mark(int device, CuStream stream) noexcept;

  // The graph that the stream is being captured into, as in Enqueued; 0: none, or the device is not
  // ready. Where nothing has been checked in it yet, its replays are counted from here on.
  [[nodiscard]] uint32_t CapturedInto(int device, CuStream stream) noexcept;

  // What the launch in this captured slot has found in the replays after `after`, up to `through`,
  // all of them done; they are counted from 1. Anything but kNothing fills *result. To be called
  // by one thread at a time, as the next.
  Found FoundIn(int device, uint32_t captured_slot, uint64_t after, uint64_t through,
                CheckResult* result) noexcept;
  // Forgets what the launch has found. Not while a replay of its graph may be under way: what that
  // finds may be lost.
  void Forget(int device, uint32_t captured_slot) noexcept;

  // Has the stream say how far it is, if launches are not known to be finished and nothing under
  // way would tell. For a stream that has gone quiet; to be called by a thread that uses it, since
  // the handle of a destroyed stream must not be touched.
  Skip Flush(int device, CuStream stream) noexcept;

  // Tells `callback` of each launch that has finished since the last call: those of one stream in
  // the order in which they were launched (threads that launch on one stream at the same time have
  // no order). Answers how many it told. Does nothing while another thread is in it.
  size_t Poll(FinishedCallback callback, void* context) noexcept;

  // Whether checks are made.
  [[nodiscard]] bool Ready(int device) noexcept;
  // Why the device stepped down, a sentence; null while it has not. Empty: the process ends, and
  // the driver has ended before it.
  [[nodiscard]] const char* Reason(int device) const noexcept;
  // Whether results lie in the memory that memory_for returned. False before the device is ready.
  [[nodiscard]] bool UsesGivenMemory(int device) const noexcept;
  [[nodiscard]] CheckerCounters Counters() const noexcept;

 private:
  DeviceChecker() = default;
  // Made at the first request for the device; null: out of range, or no memory.
  CheckedDevice* DeviceFor(int device) noexcept;
  [[nodiscard]] CheckedDevice* Seen(int device) const noexcept;
  Skip Count(Skip skip) noexcept;
  template <class Request>
  Enqueued EnqueueBy(Skip (CheckedDevice::*enqueue)(const Request&, Enqueued*),
                     const Request& request) noexcept;

  CheckerShared shared_;
  std::atomic<CheckedDevice*> devices_[kDevicesMax] = {};
  std::atomic<bool> polling_{false};
};

}  // namespace nanwatch::device
