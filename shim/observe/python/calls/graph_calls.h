// SPDX-License-Identifier: Apache-2.0
// torch.cuda.CUDAGraph's `capture_end` and `replay`, replaced by methods that tell of the call: ops
// of a graph announce nothing when it is replayed, and a replay's place among the ops around it is
// known to the thread alone that asks for it.
//
// Every way from Python ends there: torch.cuda.graph, make_graphed_callables and the graph trees of
// torch.compile. A replay costs a call more, some 100 ns beside the microseconds of the launch. A
// C++ program that replays at::cuda::CUDAGraph itself passes by; what that means: event_queue.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

enum class GraphCall : uint8_t {
  kCaptureEnds,  // its stream still captures
  kReplayBegins,
  kReplayed,  // its nodes are on the current stream
  kReplayFailed,
};
// With the GIL held. `graph` is the Python object's address, nothing more.
using OnGraphCall = void (*)(const void* graph, GraphCall call);

class GraphCalls {
 public:
  explicit GraphCalls(const PythonApi& api, OnGraphCall on_call) noexcept
      : api_(api), on_call_(on_call) {}
  GraphCalls(const GraphCalls&) = delete;
  GraphCalls& operator=(const GraphCalls&) = delete;

  // Any thread, no GIL: replaces them from Python's main thread, between two of its instructions.
  void ReplaceSoon() noexcept;

 private:
  static int Pending(void* self);
  void Replace();
  [[nodiscard]] PyObj* Wrap(PyObj* graph_class, const char* name, PyMethod* method);
  static PyObj* CaptureEnd(PyObj* graph, PyObj* unused);
  static PyObj* Replay(PyObj* graph, PyObj* unused);

  const PythonApi& api_;
  const OnGraphCall on_call_;
  std::atomic<bool> asked_{false};
  PyObj* capture_end_ = nullptr;  // the originals, owned for ever
  PyObj* replay_ = nullptr;
};

}  // namespace nanwatch
