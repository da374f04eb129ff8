// SPDX-License-Identifier: Apache-2.0
// Source lines alone, without torch: loaded by every CPython at hand.
#include <cstdint>
#include <cstdio>
#include <string>

#include "shim/observe/python/api/python_frames.h"
#include "shim/observe/python/calls/loader_fetch.h"

#define PROBE extern "C" __attribute__((visibility("default")))

namespace {
nanwatch::PythonApi* api = nullptr;
nanwatch::PythonFrames* frames = nullptr;
nanwatch::LoaderFetch* loader_fetch = nullptr;
}  // namespace

// Called with the GIL (ctypes.PyDLL).
PROBE int probe_prove() {
  api = new nanwatch::PythonApi;
  if (api->Resolve() != nanwatch::PythonPresence::kUsable) return -1;
  frames = new nanwatch::PythonFrames(*api);
  if (!frames->Prove()) return 0;
  loader_fetch = new nanwatch::LoaderFetch(*api, *frames);
  loader_fetch->Prove();
  return 1;
}
// Called without it (ctypes.CDLL).
PROBE size_t probe_source_line(char* out, size_t size) { return frames->UserSourceLine(out, size); }
PROBE void probe_whole_stacks(int on) { frames->WantWholeStacks(on != 0); }
PROBE unsigned probe_call() { return frames->UserCall(); }
PROBE const void* probe_optimizer() { return frames->OptimizerOnThisThread(); }
// Bit i of `bad_rows`: row i of `rows` is bad.
// "1 of 4: 17\n" or, of a batch, "2 of batch 4: 16\n17\n"; "" where nothing is known.
PROBE void probe_samples(char* out, size_t size, size_t rows, uint64_t bad_rows) {
  nanwatch::wire::LoaderSamples samples;
  out[0] = 0;
  const auto is_bad = [](const void* bad, size_t row) {
    return (*static_cast<const uint64_t*>(bad) >> row & 1) != 0;
  };
  if (!loader_fetch->ReadNow({rows, is_bad, &bad_rows}, &samples)) return;
  const bool whole = (samples.flags & nanwatch::wire::LoaderSamples::kWholeBatch) != 0;
  const std::string text(samples.text, samples.text_bytes);
  std::snprintf(out, size, "%d of %s%u: %s", samples.count, whole ? "batch " : "", samples.of_batch,
                text.c_str());
}
