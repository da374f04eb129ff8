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
  return tensor.is_cpu() && tensor.layout() == c10::kStrided && tensor.has_storage() &&
         !IsWrapper(tensor) && !c10::isQIntType(c10::typeMetaToScalarType(tensor.dtype()));
}

void OpenCalls::Keep(const c10::IValue& value, CallNote* note) {
  ArgumentNote argument;
  argument.first = static_cast<uint32_t>(note->tensors.size());
  if (value.isTensor()) {
    argument.kind = ArgumentKind::kTensor;
    argument.count = 1;
    note->tensors.push_back(WeakOf(value.toTensor()));
  } else if (HoldsTensors(value)) {
    argument.kind = ArgumentKind::kTensors;
    for (const c10::IValue& item : value.toListRef()) {
      note->tensors.push_back(item.isTensor() ? WeakOf(item.toTensor()) : WeakOf(at::TensorBase()));
      ++argument.count;
    }
  } else if (IsListOfNumbers(value) || IsPlainValue(value)) {
    argument.kind = ArgumentKind::kValue;
    argument.value = value;
  }
  note->arguments.push_back(std::move(argument));
}

// Of small tensors alone: an update overwrites the parameters and states of the whole model, most
// of whose bytes are in a few large ones.
void OpenCalls::KeepImages(CallNote* note) {
  const uint64_t written = note->op->updates | note->op->rewrites;
  if (written == 0) return;
  for (size_t i = 0; i < note->arguments.size() && i < 64; ++i) {
    if ((written >> i & 1) == 0) continue;
    const ArgumentNote& argument = note->arguments[i];
    for (uint32_t t = argument.first; t < argument.first + argument.count; ++t) {
      const c10::TensorImpl* held = TensorOf(note->tensors[t]);
      if (held == nullptr || !IsPlainOnCpu(*held)) continue;
      const Reach reach = ReachOf(*held);
      const uint64_t bytes = reach.end - reach.begin;
      const auto* base =
          static_cast<const unsigned char*>(DataOf(*held->storage().unsafeGetStorageImpl()));
      if (base == nullptr || bytes > kImageBytesMax ||
          note->bytes.size() + bytes > kImagesBytesMax) {
        continue;
      }
      note->images.push_back({t, reach.begin, reach.end, note->bytes.size()});
      note->bytes.insert(note->bytes.end(), base + reach.begin, base + reach.end);
    }
  }
}

void OpenCalls::Begin(const ThreadState& thread, const Frame& frame,
                      c10::ArrayRef<const c10::IValue> arguments) {
  const size_t place = PlaceOf(thread, frame);
  if (notes_.size() <= place) notes_.resize(place + 1);
  CallNote& note = notes_[place];
  note.op = nullptr;
  note.arguments.clear();
  note.tensors.clear();
  note.images.clear();
  note.bytes.clear();
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
