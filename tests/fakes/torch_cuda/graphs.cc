// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/torch_cuda/graphs.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/torch_cuda/fake_device.h"

namespace nanwatch::fake {
namespace {

using c10::IValue;

// All tensors among the values, those in lists too.
std::vector<at::Tensor> TensorsOf(const std::vector<IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const IValue& value : values) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        tensors.push_back(tensor.value_or(at::Tensor()));
      }
    }
  }
  return tensors;
}

bool HasMemory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.storage().data() != nullptr;
}

char* MemoryOf(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.storage().mutable_data());
}

// In what is left of a capture.
struct Node {
  c10::OperatorHandle op;
  std::vector<IValue> arguments;
  std::vector<at::Tensor> results;  // undefined: in the place of an argument
};

void Run(void* context) {
  const auto& node = *static_cast<const Node*>(context);
  torch::jit::Stack stack = node.arguments;
  CallOnCpu(node.op, &stack);
  const at::AutoDispatchBelowAutograd below;
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  const std::vector<at::Tensor> results = TensorsOf(stack);
  for (size_t i = 0; i < results.size(); ++i) {
    if (node.results[i].defined()) node.results[i].copy_(results[i]);
  }
}

// What a pool's memory may hold: NaN of every type, and for the sake of indices 0 of all others.
void FillWithGarbage(const at::Tensor& tensor) {
  const bool has_nan =
      at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
  std::memset(MemoryOf(tensor), has_nan ? 0xff : 0, tensor.storage().nbytes());
}

}  // namespace

void CallOnCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowAutograd below;
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

bool IsCapturing() { return fake_cuda_is_capturing(CurrentStreamHandle()) != 0; }

CallInCapture::CallInCapture(const c10::OperatorHandle& op, const std::vector<IValue>& arguments)
    : op_(op) {
  for (const at::Tensor& tensor : TensorsOf(arguments)) {
    if (!HasMemory(tensor)) continue;
    const char* memory = MemoryOf(tensor);
    written_.push_back({tensor.storage(), {memory, memory + tensor.storage().nbytes()}});
  }
}

void CallInCapture::Record(std::vector<IValue> arguments, std::vector<IValue> results) && {
  for (const Bytes& bytes : written_) {
    if (bytes.storage.nbytes() != bytes.before.size()) continue;
    std::copy(bytes.before.begin(), bytes.before.end(),
              static_cast<char*>(bytes.storage.mutable_data()));
  }
  auto* node = new Node{op_, std::move(arguments), TensorsOf(results)};  // as long as the process
  const std::vector<at::Tensor> given = TensorsOf(node->arguments);
  for (at::Tensor& result : node->results) {
    const bool is_given =
        !HasMemory(result) || std::any_of(given.begin(), given.end(), [&](const at::Tensor& one) {
          return HasMemory(one) && MemoryOf(one) == MemoryOf(result);
        });
    if (is_given) {
      result = at::Tensor();
    } else {
      FillWithGarbage(result);
    }
  }
  fake_cuda_launch_host(CurrentStreamHandle(), &Run, node);
}

}  // namespace nanwatch::fake

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

// What run.py calls, on the calling thread's current stream.
FAKE_EXPORT void fake_torch_cuda_begin_capture(int mode) {
  fake_cuda_begin_capture(nanwatch::fake::CurrentStreamHandle(), mode);
}
FAKE_EXPORT int fake_torch_cuda_end_capture() {
  return fake_cuda_end_capture(nanwatch::fake::CurrentStreamHandle());
}
FAKE_EXPORT int fake_torch_cuda_is_capturing() { return nanwatch::fake::IsCapturing() ? 1 : 0; }
FAKE_EXPORT void fake_torch_cuda_replay(int graph) {
  fake_cuda_replay(graph, nanwatch::fake::CurrentStreamHandle());
}
