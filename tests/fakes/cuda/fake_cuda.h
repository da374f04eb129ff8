// SPDX-License-Identifier: Apache-2.0
// A fake CUDA driver in host memory: what a test says to it beside the driver's own functions.
//
// The library has the name of the real one, libcuda.so.1, and its functions under their names. A
// stream is a queue that runs when the test says so: results come late, streams overtake each other
// or never advance. A launch runs the host function that the test registered under the kernel's
// name. Device addresses are host addresses. Captures, graphs, failures of the N-th call and the
// loss of a context can be had at will, and every call is in a log.
//
// It is stricter than the real one where that serves: a call that a capture forbids is noted as a
// misdeed besides ruining the capture, and so is every call that waits. As the real one dies of a
// handle that it does not know, because it reads what that points to, this one aborts.
//
// Threads: the driver's functions from any. The control functions, unless they say otherwise, while
// no other thread is in the library.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

using FakeCudaKernel = void (*)(const void* parameter, uint32_t blocks, uint32_t threads);
using FakeCudaLook = void* (*)(const void* parameter, uint32_t blocks, uint32_t threads);
using FakeCudaTell = void (*)(void* seen);

// Forgets everything; `devices` devices, their primary contexts active, none current.
void fake_cuda_reset(int devices);
// The driver is initialised, once: as the real one does it registers a handler of the process's end
// behind which every call answers 4 (CUDA_ERROR_DEINITIALIZED), queues stop, and nobody may touch
// memory of cuMemHostAlloc. After a reset and before any other thread is in the library.
void fake_cuda_initialize();
// Milliseconds for which that handler goes on once all is at an end, other threads beside it.
void fake_cuda_set_end(int milliseconds);
// What cuMemGetInfo says of every device; 8 GiB, all of it free, where nobody has said so.
void fake_cuda_set_memory(size_t free, size_t total);
int fake_cuda_has_ended();
// cuMemHostRegister answers this from now on; 0: as ever.
void fake_cuda_refuse_registration(int result);
void fake_cuda_set_context_active(int device, int active);
// Makes the device's primary context the calling thread's, as cudaSetDevice does; -1: none.
void fake_cuda_set_device(int device);
// Makes another context of the device the thread's, as a green one is: with default streams of its
// own, in which nothing of the primary context's can be launched.
void fake_cuda_set_other_context(int device);
// The ordinal of the current context, -1 for none; and how many are on the thread's stack.
// The device that is current on every thread that has set none; -1: none is, as after a reset.
void fake_cuda_set_default_device(int device);
int fake_cuda_current_device();
int fake_cuda_context_depth();

// `parameter_bytes` are copied at the launch.
void fake_cuda_register_kernel(const char* name, FakeCudaKernel kernel, size_t parameter_bytes);

// For a job whose ops are done when they return: memory is as the launch must see it at the launch
// and not later. `look` runs inside cuLaunchKernel, `tell` gets what it returned in the stream's
// order. In a graph it runs at each replay.
void fake_cuda_register_early_kernel(const char* name, FakeCudaLook look, FakeCudaTell tell,
                                     size_t parameter_bytes);
// Streams run by themselves what has more than `launches` behind it, those of cuStreamCreate at
// once, and fill memory at once.
void fake_cuda_set_late(size_t launches);
// What is launched on streams of cuStreamCreate runs by itself so many milliseconds later, on a
// thread of the library's; 0: as ever.
void fake_cuda_set_own_lag(int milliseconds);
// What the attribute answers, on all devices; 0: 100 + the device's ordinal.
void fake_cuda_set_multiprocessors(int count);

// A stream of the job's, as a handle; any thread.
void* fake_cuda_new_stream(int device);
// Runs what is queued there; the handle means nothing any more, until a new stream gets it.
void fake_cuda_destroy_stream(void* handle);
// While it is stuck nothing runs there, whoever waits for it, as behind a kernel that never ends.
void fake_cuda_set_stuck(void* handle, int stuck);
// Whether it and the legacy stream wait for each other, as they do at first; libtorch's do not.
void fake_cuda_set_blocking(void* handle, int blocking);
// Runs what is queued on a stream, or the first `count` of it; returns how many ran. Any thread.
size_t fake_cuda_run(void* handle, size_t count);
// Runs all streams of all devices until they are empty; returns how many launches ran. Any thread.
size_t fake_cuda_run_all();
size_t fake_cuda_queued(void* handle);
// A launch of the job's own: the function runs in the stream's order, at replay too. Its result is
// that of cuLaunchKernel in the same place.
int fake_cuda_launch_host(void* stream, void (*function)(void* context), void* context);

// For tests/fakes/cupti: told of each launch, on the launching thread, and when it has run. Null:
// nobody is. `graph`: not 0, the launch is part of that graph's replay.
using FakeCudaLaunched = uint64_t (*)(const char* kernel, uint32_t graph, uint64_t launch);
using FakeCudaRan = void (*)(uint64_t launched, uint64_t nanoseconds);
void fake_cuda_set_trace(FakeCudaLaunched launched, FakeCudaRan ran);
int fake_cuda_is_traced();
// A kernel of the job's own, which does nothing that matters here, but takes 1,000 ns.
int fake_cuda_launch_named(void* stream, const char* kernel);

// Calls the function once, inside the next cuLaunchKernel, before that is queued: what another
// thread may do at just that moment. It may launch itself.
void fake_cuda_before_next_launch(void (*function)(void* context), void* context);

// mode: CU_STREAM_CAPTURE_MODE_*. The calling thread begins and ends.
int fake_cuda_begin_capture(void* handle, int mode);
// The graph, or -1 if the capture was ruined.
int fake_cuda_end_capture(void* handle);
int fake_cuda_is_capturing(void* handle);
size_t fake_cuda_graph_nodes(int graph);
// Queues the nodes of the graph on a stream. Where streams are late (fake_cuda_set_late) the job's
// own run at once, as its ops do outside graphs, and early kernels look at their turn.
void fake_cuda_replay(int graph, void* handle);

// Whether a kernel may use this address: allocated on a device, registered, or the device's view of
// memory of cuMemHostAlloc, which is not the host's.
int fake_cuda_is_device_address(uint64_t address);

// The calls number first to first + count - 1 of this function from now on, counted from 1, answer
// `result` and do nothing else.
void fake_cuda_fail(const char* function, int first, int count, int result);
// All calls that have to do with this device's context answer `result` from now on; queues stop.
void fake_cuda_lose_context(int device, int result);
// As cudaDeviceReset: streams, modules and memory of cuMemHostAlloc are gone, what was queued never
// runs, and calls in the context answer 709 (CUDA_ERROR_CONTEXT_IS_DESTROYED). Other threads may be
// in the library.
void fake_cuda_reset_device(int device);
// Words that a failing cuModuleLoadDataEx writes to the log buffer.
void fake_cuda_set_jit_log(const char* words);
// What the last cuModuleLoadDataEx that succeeded was given.
const void* fake_cuda_loaded_image();

// How often a function was called, and the whole log: "function" or "function!result". Any thread.
size_t fake_cuda_calls(const char* function);
// The same of the launches of one kernel, also while calls are not logged; a graph's nodes count
// once.
size_t fake_cuda_launches(const char* kernel);
// How many there were since the process began, logged or not. 0: calls of the driver's functions,
// 1: of cuLaunchKernel, 2: allocations of device memory by a fake libtorch. Any thread.
uint64_t fake_cuda_counted(int what);
void fake_cuda_count_allocation();
size_t fake_cuda_log_size();
const char* fake_cuda_log_entry(size_t index);
// What should never have been called: waiting, copying and freeing calls, calls that ruined a
// capture, launches on another device's stream. Null, or a description of the first.
const char* fake_cuda_misdeed();
// Calls are not logged while off, so that threads share no lock here but that of their stream.
void fake_cuda_set_logging(int on);

}  // extern "C"
