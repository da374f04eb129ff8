// SPDX-License-Identifier: Apache-2.0
// A fake CUPTI: what a test says to it beside CUPTI's own functions.
//
// The library has the name of the real one, libcupti.so.13, and the functions that we and kineto
// use under their names, with the real one's symbol version, so that a libtorch built for CUDA
// takes it when it is loaded first. It knows of launches what it is told: by a test, or by the fake
// driver (fake_cuda_set_trace), which tells it of all that it launches and runs.
//
// As with the real one a kernel's record takes its place in a buffer when it is launched and is
// complete when it has run; a buffer is handed over when it is full and all in it is complete, or
// by a flush, which passes over those with something incomplete unless it is forced. Buffers are
// asked for on the launching thread.
//
// Environment, for jobs: NANWATCH_FAKE_CUPTI=held: another subscriber holds it;
// NANWATCH_FAKE_CUPTI_VERSION: what cuptiGetVersion says; NANWATCH_FAKE_CUPTI_LOG: the file that
// takes every call's name, a line each; NANWATCH_FAKE_CUPTI_FLUSH_MS: how long a flush takes. Where
// a fake driver is in the process, a call behind its end aborts, and so does a flush that lasts
// beyond.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Forgets everything: nothing registered, enabled, pushed, buffered.
void fake_cupti_reset();
void fake_cupti_set_version(uint32_t version);
// Another subscriber holds CUPTI from now on.
void fake_cupti_hold();
// This function answers `result` from now on and does nothing else; 0: it works again.
void fake_cupti_fail(const char* function, int result);
// Flushes deliver nothing while on.
void fake_cupti_set_late(int on);
// Of the buffers that are delivered together, the newest comes first.
void fake_cupti_set_backwards(int on);
// So many records from now on find no room, and are counted.
void fake_cupti_drop(size_t count);
// The callback id of the runtime's call that launches the job's kernels from now on; 0: the one of
// the version, 505 from CUDA 13 on and 211 before. Kernels named "nanwatch_..." are launched by the
// driver's cuLaunchKernel (307).
void fake_cupti_set_launch_id(uint32_t id);
// Launches of the calling thread bring no external ids while only single calls are enabled.
void fake_cupti_set_ids_need_kinds(int on);

// The calling thread launches a kernel; what to say when it has run. `graph`: not 0, it is part of
// that graph's replay, and `launch` that of the replay's first kernel, 0 for itself.
uint64_t fake_cupti_launched(const char* name, uint32_t graph, uint64_t launch);
void fake_cupti_ran(uint64_t launched, uint64_t nanoseconds);

size_t fake_cupti_calls(const char* function);
size_t fake_cupti_all_calls();
// How many ids the calling thread has pushed.
size_t fake_cupti_depth();
// Whether this kind of record is on.
int fake_cupti_enabled(int kind);
// Buffers that were asked for and not handed over yet.
size_t fake_cupti_buffers_held();
// Buffers that went to other callbacks than those that were asked for them: what must not be.
size_t fake_cupti_astray();
// Null, or what should never have been called.
const char* fake_cupti_misdeed();

}  // extern "C"
