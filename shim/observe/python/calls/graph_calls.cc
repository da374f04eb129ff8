// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/graph_calls.h"

namespace nanwatch {
namespace {

// A method has no room for a pointer of ours. There is one bridge per process.
GraphCalls* replaced = nullptr;

}  // namespace

void GraphCalls::ReplaceSoon() noexcept {
  if (on_call_ != nullptr) api_.CallSoon(&asked_, Pending, this);
}

int GraphCalls::Pending(void* self) {
  static_cast<GraphCalls*>(self)->Replace();
  return 0;
}

void GraphCalls::Replace() {
  static PyMethod capture_end = {"capture_end", CaptureEnd, kPyMethodNoArguments, nullptr};
  static PyMethod replay = {"replay", Replay, kPyMethodNoArguments, nullptr};
  const KeptError error(api_);
  PyObj* module = api_.LoadedModule("torch.cuda.graphs");
  const PyOwned graph_class(
      api_, module == nullptr ? nullptr : api_.AttributeOrNull(module, "CUDAGraph"));
  if (graph_class && replaced == nullptr) {
    replaced = this;
    capture_end_ = Wrap(graph_class.get(), "capture_end", &capture_end);
    // Without both a replay belongs to no capture.
    if (capture_end_ != nullptr) replay_ = Wrap(graph_class.get(), "replay", &replay);
  }
}

// The original, owned; null: it stays.
PyObj* GraphCalls::Wrap(PyObj* graph_class, const char* name, PyMethod* method) {
  PyOwned original(api_, api_.AttributeOrNull(graph_class, name));
  const PyOwned wrapper(api_, api_.PyDescr_NewMethod(graph_class, method));
  if (!original || !wrapper || api_.PyObject_SetAttrString(graph_class, name, wrapper.get()) != 0) {
    return nullptr;
  }
  return original.release();
}

PyObj* GraphCalls::CaptureEnd(PyObj* graph, PyObj*) {
  const GraphCalls& mine = *replaced;
  mine.on_call_(graph, GraphCall::kCaptureEnds);
  return mine.api_.PyObject_CallFunctionObjArgs(mine.capture_end_, graph,
                                                static_cast<PyObj*>(nullptr));
}

PyObj* GraphCalls::Replay(PyObj* graph, PyObj*) {
  const GraphCalls& mine = *replaced;
  mine.on_call_(graph, GraphCall::kReplayBegins);
  PyObj* done =
      mine.api_.PyObject_CallFunctionObjArgs(mine.replay_, graph, static_cast<PyObj*>(nullptr));
  mine.on_call_(graph, done != nullptr ? GraphCall::kReplayed : GraphCall::kReplayFailed);
  return done;
}

}  // namespace nanwatch
