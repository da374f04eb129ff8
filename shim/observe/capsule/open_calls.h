// SPDX-License-Identifier: Apache-2.0
// What a thread's open ops were called with, kept from begin to end for the one that turns out to
// be an origin. Tensors are held weakly: a strong reference would change what autograd may take
// over instead of copying.
#pragma once

#include <ATen/core/TensorBase.h>
#include <ATen/core/ivalue.h>
#include <c10/core/UndefinedTensorImpl.h>

#include <cstdint>
#include <vector>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

enum class ArgumentKind : uint8_t { kValue, kTensor, kTensors, kUnsupported };

struct ArgumentNote {
  ArgumentKind kind = ArgumentKind::kUnsupported;
  const char* why_not = "";  // kUnsupported
  c10::IValue value;         // kValue: no tensor, nor anything that holds one
  uint32_t first = 0;        // kTensor, kTensors: the place in CallNote::tensors
  uint32_t count = 0;
};

// What stood in an argument that the op overwrites.
struct BeforeImage {
  uint32_t tensor;  // its place in CallNote::tensors
  const c10::StorageImpl* storage;
  uint64_t begin;  // bytes of its storage
  uint64_t end;
  size_t at;  // in CallNote::bytes
};

struct CallNote {
  const OpTraits* op = nullptr;  // null: nothing is known
  std::vector<ArgumentNote> arguments;
  std::vector<WeakTensor> tensors;
  std::vector<BeforeImage> images;
  std::vector<unsigned char> bytes;
};

// Null: undefined, or gone. No strong reference is taken: from torch 2.10 on that may ask for the
// GIL. Whoever called the op holds its arguments.
[[nodiscard]] const c10::TensorImpl* TensorOf(const WeakTensor& held) noexcept;

// The bytes of its storage that a strided tensor reaches.
struct Reach {
  uint64_t begin = 0;
  uint64_t end = 0;
};
[[nodiscard]] Reach ReachOf(const c10::TensorImpl& tensor) noexcept;
// Strided memory of the CPU that may be read as it lies. Goes by the tensor's keys alone: a wrapper
// may ask Python for its device or layout.
[[nodiscard]] bool IsPlainOnCpu(const c10::TensorImpl& tensor) noexcept;

// Whether another tensor of the call lies in the same storage.
[[nodiscard]] bool SharesStorage(const CallNote& call, uint32_t place) noexcept;

// Of one thread, which alone uses it.
class OpenCalls {
 public:
  // The op's own arguments. May throw for lack of memory; nothing is known of the call then.
  void Begin(const ThreadState& thread, const Frame& frame,
             c10::ArrayRef<const c10::IValue> arguments);
  // The op has ended: lets go of its tensors. A weak reference that is left over keeps
  // torch.utils.swap_tensors from its work.
  void End(const ThreadState& thread, const Frame& frame) noexcept;
  // Null: nothing is known of it.
  [[nodiscard]] const CallNote* Find(const ThreadState& thread, const Frame& frame) const noexcept;

 private:
  static void Clear(CallNote* note) noexcept;
  void Keep(const c10::IValue& value, CallNote* note);
  static void KeepImages(CallNote* note);
  static void KeepImage(uint32_t place, CallNote* note);

  std::vector<CallNote> notes_;  // by the frame's place
};

}  // namespace nanwatch
