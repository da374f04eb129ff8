// SPDX-License-Identifier: Apache-2.0
// CUDA graphs of the fake device: what is called while a stream captures is called again, in that
// order and over the same memory, at every replay.
//
// A real capture computes nothing. Here the CPU's kernel must run, to tell the shapes of its
// results: what it wrote into its arguments is taken back, and its results are filled with NaN, as
// memory of a pool may well be. Checks between the ops are nodes of the same graph, in the fake
// driver. A node keeps memory, not tensors: storages that a program drops are gone, as in a real
// capture.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace nanwatch::fake {

// The CPU's kernel, below autograd, unseen by RecordFunction.
void CallOnCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Whether the calling thread's current stream captures.
[[nodiscard]] bool IsCapturing();

// One call in a capture, from before it to after it. Tensors are the CPU's.
class CallInCapture {
 public:
  CallInCapture(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);
  // Takes back what the call wrote, and makes it a node with these arguments, whose results lie
  // where these lie.
  void Record(std::vector<c10::IValue> arguments, std::vector<c10::IValue> results) &&;

 private:
  struct Bytes {
    c10::Storage storage;
    std::vector<char> before;
  };

  c10::OperatorHandle op_;
  std::vector<Bytes> written_;
};

}  // namespace nanwatch::fake
