// SPDX-License-Identifier: Apache-2.0
// The bridge behind a C interface, for the Python tests beside this file: they load it with ctypes
// into a real process with torch, so that every answer is compared with what Python and torch say
// themselves.
#include <ATen/record_function.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "shim/observe/python/python_bridge.h"

#define PROBE extern "C" __attribute__((visibility("default")))

namespace {

using nanwatch::PythonBridge;

PythonBridge* bridge = nullptr;
std::string* said = nullptr;  // what the callbacks got, one line each
const void* last_optimizer = nullptr;
uint32_t active = 1;

void OnTensors(const char* what, const at::TensorBase* const* tensors, const char* const* names,
               size_t count) {
  *said += what;
  for (size_t i = 0; i < count; ++i) {
    *said += ' ';
    *said += names[i];
    *said += ':' + std::to_string(tensors[i]->numel());
  }
  *said += '\n';
}
void OnArguments(const at::TensorBase* const* tensors, const char* const* names, size_t count) {
  OnTensors("arguments", tensors, names, count);
}
void OnOutputs(const at::TensorBase* const* outputs, size_t output_count,
               const at::TensorBase* const* inputs, const char* const* input_names,
               size_t input_count) {
  const nanwatch::Layer* layer = nanwatch::CurrentLayer();
  *said += layer == nullptr ? "outputs(?)" : "outputs";
  for (size_t i = 0; i < output_count; ++i) *said += ' ' + std::to_string(outputs[i]->numel());
  *said += '\n';
  OnTensors("of inputs", inputs, input_names, input_count);
}
void OnRoot(const nanwatch::Layer* root) { *said += std::string("root ") + root->root + '\n'; }
void OnMessage(const char* line) { *said += std::string("message ") + line + '\n'; }

size_t CopyOut(const std::string& text, char* out, size_t size) {
  snprintf(out, size, "%s", text.c_str());
  return text.size();
}

std::string Describe(const nanwatch::NamedTensor* tensor) {
  if (tensor == nullptr) return "";
  return std::string(tensor->layer->root) + ' ' + tensor->name + ' ' +
         (tensor->kind == nanwatch::NamedTensorKind::kBuffer ? "buffer" : "parameter");
}

// Notes the layer in which each op of interest runs, as the observer would.
std::string* trace = nullptr;
std::unique_ptr<at::ObserverContext> OnOp(const at::RecordFunction& op) {
  if (strncmp(op.name(), "Optimizer.step#", 15) == 0)
    last_optimizer = bridge->OptimizerOnThisThread();
  if (strncmp(op.name(), "Torch-Compiled Region", 21) == 0) nanwatch::MarkCompiledRegion();
  if (trace == nullptr || op.scope() != at::RecordScope::FUNCTION) return nullptr;
  const nanwatch::Layer* layer = nanwatch::CurrentLayer();
  char line[256];
  bridge->UserSourceLine(line, sizeof line);
  *trace += std::string(op.name()) + '|' + (layer == nullptr ? "-" : layer->root) + '|' +
            (layer == nullptr ? "" : layer->path) + '|' + (layer == nullptr ? "" : layer->type) +
            '|' + std::to_string(nanwatch::ScopeDepth()) + '|' + line + '\n';
  return nullptr;
}

PythonBridge& Door() {
  if (bridge == nullptr) {
    said = new std::string;
    nanwatch::PythonBridgeCallbacks callbacks;
    callbacks.on_root_arguments = OnArguments;
    callbacks.on_region_outputs = OnOutputs;
    callbacks.on_new_root = OnRoot;
    callbacks.on_message = OnMessage;
    bridge = new PythonBridge(callbacks);
  }
  return *bridge;
}

}  // namespace

PROBE int probe_install_now() { return Door().InstallNow() ? 1 : 0; }
// No callbacks: for timing.
PROBE int probe_install_bare() {
  bridge = new PythonBridge({});
  return bridge->InstallNow() ? 1 : 0;
}
PROBE void probe_install_loop() {
  Door();
  std::thread([] { bridge->RunInstallLoop(&active, /*late=*/false); }).detach();
}
PROBE void probe_stop() { active = 0; }
PROBE int probe_installed() { return bridge != nullptr && bridge->installed() ? 1 : 0; }
PROBE int probe_watch_ops() {
  return static_cast<int>(at::addGlobalCallback(at::RecordFunctionCallback(OnOp).scopes(
      {at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE})));
}
PROBE void probe_trace_begin() { trace = new std::string; }
PROBE size_t probe_trace_end(char* out, size_t size) {
  const size_t length = CopyOut(*trace, out, size);
  delete trace;
  trace = nullptr;
  return length;
}
PROBE size_t probe_said(char* out, size_t size) {
  const size_t length = CopyOut(*said, out, size);
  said->clear();
  return length;
}
PROBE unsigned probe_depth() { return nanwatch::ScopeDepth(); }
PROBE size_t probe_layer(char* out, size_t size) {
  const nanwatch::Layer* layer = nanwatch::CurrentLayer();
  return CopyOut(
      layer == nullptr ? "-" : std::string(layer->root) + '|' + layer->path + '|' + layer->type,
      out, size);
}
PROBE size_t probe_source_line(char* out, size_t size) { return Door().UserSourceLine(out, size); }
PROBE const void* probe_last_optimizer() { return last_optimizer; }
// A tensor's `_cdata` is the address of its TensorImpl, a storage's that of its StorageImpl.
PROBE size_t probe_name_of_impl(void* impl, char* out, size_t size) {
  return CopyOut(Describe(bridge->names().FindByImpl(static_cast<c10::TensorImpl*>(impl))), out,
                 size);
}
PROBE size_t probe_name_of_storage(void* storage, char* out, size_t size) {
  return CopyOut(Describe(bridge->names().FindByStorage(static_cast<c10::StorageImpl*>(storage))),
                 out, size);
}
PROBE size_t probe_names(char* out, size_t size) {
  std::string text;
  bridge->names().ForEach([&](const nanwatch::NamedTensor& tensor) {
    const auto view = bridge->names().Read(tensor);
    text += Describe(&tensor) + ' ' + (view ? std::to_string(view->numel) : "gone") + ' ' +
            (view && view->data != nullptr ? c10::toString(view->dtype) : "-") + '\n';
  });
  return CopyOut(text, out, size);
}
