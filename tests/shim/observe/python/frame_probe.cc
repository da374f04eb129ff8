// Source lines alone, without torch: loaded by every CPython at hand.
#include "shim/observe/python/python_frames.h"

#define PROBE extern "C" __attribute__((visibility("default")))

namespace {
nanwatch::PythonApi* api = nullptr;
nanwatch::PythonFrames* frames = nullptr;
}  // namespace

// Called with the GIL (ctypes.PyDLL).
PROBE int probe_prove() {
  api = new nanwatch::PythonApi;
  if (api->Resolve() != nanwatch::PythonPresence::kUsable) return -1;
  frames = new nanwatch::PythonFrames(*api);
  return frames->Prove() ? 1 : 0;
}
// Called without it (ctypes.CDLL).
PROBE size_t probe_source_line(char* out, size_t size) { return frames->UserSourceLine(out, size); }
PROBE void probe_whole_stacks(int on) { frames->WantWholeStacks(on != 0); }
PROBE unsigned probe_call() { return frames->UserCall(); }
PROBE const void* probe_optimizer() { return frames->OptimizerOnThisThread(); }
