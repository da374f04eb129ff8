// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/capsule/open_calls.h"

#include <algorithm>

#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {
namespace {

constexpr uint64_t kImageBytesMax = 64 << 10;  // of one argument
constexpr size_t kImagesBytesMax = 256 << 10;  // of one op

size_t PlaceOf(const ThreadState& thread, const Frame& frame) {
  return static_cast<size_t>(&frame - thread.frames);
}

bool IsPlainValue(const c10::IValue& value) {
  if (value.isList()) {
    const auto list = value.toListRef();
    return std::all_of(list.begin(), list.end(), &IsPlainValue);
  }
  return value.isNone() || value.isBool() || value.isInt() || value.isDouble() ||
         value.isComplexDouble() || value.isString() || value.isDevice();
}

bool IsListOfNumbers(const c10::IValue& value) {
  return value.isIntList() || value.isDoubleList() || value.isBoolList();
}

bool HoldsTensors(const c10::IValue& value) {
  if (value.isTensorList()) return true;
  if (!value.isList()) return false;
  const auto list = value.toListRef();
  return std::any_of(list.begin(), list.end(),
                     [](const c10::IValue& item) { return item.isTensor(); });
}

const char* WhyNot(const c10::TensorImpl& tensor) {
  return tensor.key_set().has_backend(c10::BackendComponent::CPUBit)
             ? "an argument is no ordinary dense tensor"
             : "an argument is not in the memory of the CPU";
}

WeakTensor WeakOf(const at::TensorBase& tensor) { return WeakTensor(tensor.getIntrusivePtr()); }

}  // namespace

const c10::TensorImpl* TensorOf(const WeakTensor& held) noexcept {
  return held.expired() ? nullptr : held._unsafe_get_target();
}

Reach ReachOf(const c10::TensorImpl& tensor) noexcept {
  if (tensor.numel() == 0) return {};
  int64_t last = 0;
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  const auto element = static_cast<uint64_t>(tensor.itemsize());
  const auto offset = static_cast<uint64_t>(tensor.storage_offset());
  return {offset * element, (offset + static_cast<uint64_t>(last) + 1) * element};
}

bool IsPlainOnCpu(const c10::TensorImpl& tensor) noexcept {
  const c10::DispatchKeySet keys = tensor.key_set();
  return keys.has(c10::DispatchKey::CPU) && !keys.has(c10::DispatchKey::Python) &&
         !IsWrapper(tensor) && !tensor.has_symbolic_sizes_strides() && tensor.has_storage() &&
         !c10::isQIntType(c10::typeMetaToScalarType(tensor.dtype()));
}

void OpenCalls::Keep(const c10::IValue& value, CallNote* note) {
  ArgumentNote argument;
  argument.first = static_cast<uint32_t>(note->tensors.size());
  const auto keep = [&argument, note](const at::TensorBase& tensor) {
    if (!tensor.defined() || IsPlainOnCpu(*tensor.unsafeGetTensorImpl())) {
      note->tensors.push_back(WeakOf(tensor));
      ++argument.count;
    } else {
      argument.why_not = WhyNot(*tensor.unsafeGetTensorImpl());
    }
  };
  if (value.isTensor()) {
    argument.kind = ArgumentKind::kTensor;
    keep(value.toTensor());
  } else if (HoldsTensors(value)) {
    argument.kind = ArgumentKind::kTensors;
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor()) {
        keep(item.toTensor());
      } else {
        keep(at::TensorBase());
      }
    }
  } else if (IsListOfNumbers(value) || IsPlainValue(value)) {
    argument.kind = ArgumentKind::kValue;
    argument.value = value;
  } else {
    argument.why_not = "an argument is of a kind that cannot be kept";
  }
  if (argument.why_not[0] != '\0') argument.kind = ArgumentKind::kUnsupported;
  note->arguments.push_back(std::move(argument));
}

// Of small tensors alone: an update overwrites the parameters and states of the whole model, most
// of whose bytes are in a few large ones. What is written without being read is kept where the op
// may read it by another argument (log(x, out=x)).
void OpenCalls::KeepImages(CallNote* note) {
  const uint64_t updated = note->op->updates | note->op->rewrites;
  const uint64_t written = updated | note->op->overwrites;
  if (written == 0) return;
  for (size_t i = 0; i < note->arguments.size() && i < 64; ++i) {
    if ((written >> i & 1) == 0) continue;
    const ArgumentNote& argument = note->arguments[i];
    for (uint32_t t = argument.first; t < argument.first + argument.count; ++t) {
      if ((updated >> i & 1) != 0 || SharesStorage(*note, t)) KeepImage(t, note);
    }
  }
}

void OpenCalls::KeepImage(uint32_t place, CallNote* note) {
  const c10::TensorImpl* tensor = TensorOf(note->tensors[place]);
  if (tensor == nullptr) return;
  const c10::StorageImpl* storage = tensor->storage().unsafeGetStorageImpl();
  const Reach reach = ReachOf(*tensor);
  const uint64_t bytes = reach.end - reach.begin;
  const auto* base = static_cast<const unsigned char*>(DataOf(*storage));
  if (base == nullptr || reach.end > storage->nbytes() || bytes > kImageBytesMax ||
      note->bytes.size() + bytes > kImagesBytesMax) {
    return;
  }
  note->images.push_back({place, storage, reach.begin, reach.end, note->bytes.size()});
  note->bytes.insert(note->bytes.end(), base + reach.begin, base + reach.end);
}

bool SharesStorage(const CallNote& call, uint32_t place) noexcept {
  const c10::TensorImpl* tensor = TensorOf(call.tensors[place]);
  if (tensor == nullptr) return false;
  for (uint32_t t = 0; t < call.tensors.size(); ++t) {
    const c10::TensorImpl* other = TensorOf(call.tensors[t]);
    if (t != place && other != nullptr &&
        other->storage().unsafeGetStorageImpl() == tensor->storage().unsafeGetStorageImpl()) {
      return true;
    }
  }
  return false;
}

void OpenCalls::Clear(CallNote* note) noexcept {
  note->op = nullptr;
  note->arguments.clear();
  note->tensors.clear();
  note->images.clear();
  note->bytes.clear();
}

void OpenCalls::End(const ThreadState& thread, const Frame& frame) noexcept {
  const size_t place = PlaceOf(thread, frame);
  if (place < notes_.size()) Clear(&notes_[place]);
}

void OpenCalls::Begin(const ThreadState& thread, const Frame& frame,
                      c10::ArrayRef<const c10::IValue> arguments) {
  const size_t place = PlaceOf(thread, frame);
  if (notes_.size() <= place) notes_.resize(place + 1);
  CallNote& note = notes_[place];
  Clear(&note);
  // A boxed caller may hand over a deeper stack: the op's own arguments are its last ones.
  const size_t own = frame.op->arguments;
  if (arguments.size() < own) return;
  for (const c10::IValue& value : arguments.slice(arguments.size() - own)) Keep(value, &note);
  note.op = frame.op;
  KeepImages(&note);
}

const CallNote* OpenCalls::Find(const ThreadState& thread, const Frame& frame) const noexcept {
  const size_t place = PlaceOf(thread, frame);
  if (!frame.inputs_seen || place >= notes_.size() || notes_[place].op != frame.op) return nullptr;
  return &notes_[place];
}

}  // namespace nanwatch
