// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/poison.h"

#include "shim/check/scan.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/python/names/named_reading.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

// Whether one of the elements is bad. `*at`: the place of one that was; where it no longer is, the
// place of the first that is.
bool HoldsBad(wire::ElementType type, const void* data, int64_t count, int64_t* at) {
  constexpr int64_t kBlock = 4096;
  const auto* begin = static_cast<const char*>(data);
  const auto bytes = static_cast<int64_t>(ElementBytes(type));
  const auto is_bad = [&](int64_t first, int64_t elements) {
    return HasNonFinite(type, begin + first * bytes, static_cast<size_t>(elements));
  };
  if (*at < count && is_bad(*at, 1)) return true;
  if (!is_bad(0, count)) return false;
  int64_t first = 0;
  while (first + kBlock < count && !is_bad(first, kBlock)) first += kBlock;
  while (first + 1 < count && !is_bad(first, 1)) ++first;
  *at = first;
  return true;
}

// Memory whose storage is gone, or was resized since, can hold nobody back.
bool IsBadMemory(const WeakStorage& weak, wire::ElementType type, uint64_t byte_begin,
                 uint64_t byte_end, int64_t* at) {
  const auto storage = TakeStorage(static_cast<const c10::StorageImpl*>(weak.storage));
  if (!storage) return false;
  const auto* base = static_cast<const char*>(DataOf(*storage));
  if (base == nullptr || byte_end > storage->nbytes()) return false;
  return HoldsBad(type, base + byte_begin,
                  static_cast<int64_t>((byte_end - byte_begin) / ElementBytes(type)), at);
}

}  // namespace

void Poison::Mark(const NamedTensor* named, const PlainTensor& tensor) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (idle_.load(std::memory_order_relaxed) || left_alone_ == kLeftAloneMax) return;
  due_ = true;
  if (IsKnown(named, tensor)) return;
  if (count_ == kParametersMax && !DropOneGone()) {
    more_ = true;
    return;
  }
  Parameter& parameter = parameters_[count_++];
  const bool on_gpu = tensor.gpu >= 0;
  parameter =
      Parameter{named, {}, tensor.view.type, tensor.byte_begin, tensor.byte_end, on_gpu, false,
                0,     0,  tensor.gpu};
  if (named == nullptr || on_gpu) parameter.storage = HoldWeakly(tensor.storage);
}

bool Poison::DropOneGone() noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    void* const handle = parameters_[i].storage.handle;
    if (handle == nullptr || parameters_[i].on_gpu || !TorchWeakStorageOps().expired(handle)) {
      continue;
    }
    TorchWeakStorageOps().drop(handle);
    parameters_[i] = parameters_[--count_];
    return true;
  }
  return false;
}

void Poison::Move(const NamedTensor& named, const PlainTensor& tensor) noexcept {
  if (!Poisoned() || tensor.gpu < 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < count_; ++i) {
    Parameter& known = parameters_[i];
    if (known.named != &named || !known.on_gpu || known.storage.storage == tensor.storage) continue;
    if (known.storage.handle != nullptr) TorchWeakStorageOps().drop(known.storage.handle);
    known.storage = HoldWeakly(tensor.storage);
    known.byte_begin = tensor.byte_begin;
    known.byte_end = tensor.byte_end;
    known.gone_by = 0;
  }
}

void Poison::RecordCleanWrite(const void* storage, uint64_t byte_begin,
                              uint64_t byte_end) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < count_; ++i) {
    Parameter& known = parameters_[i];
    known.clean_again =
        known.clean_again || (known.on_gpu && known.storage.storage == storage &&
                              byte_begin <= known.byte_begin && known.byte_end <= byte_end);
  }
}

bool Poison::IsKnown(const NamedTensor* named, const PlainTensor& tensor) const noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    const Parameter& known = parameters_[i];
    if (known.named != named) continue;
    if ((named != nullptr && !known.clean_again) ||
        (known.storage.storage == tensor.storage && known.byte_begin == tensor.byte_begin)) {
      return true;
    }
  }
  return false;
}

bool Poison::IsGone(Parameter& parameter) const noexcept {
  return TorchWeakStorageOps().expired(parameter.storage.handle) &&
         clock_->HasCaughtUp(&parameter.gone_by);
}

bool Poison::IsBad(const PythonNames& names, Parameter& parameter) const noexcept {
  if (parameter.on_gpu) return !parameter.clean_again && !IsGone(parameter);
  if (parameter.named == nullptr) {
    return IsBadMemory(parameter.storage, parameter.type, parameter.byte_begin, parameter.byte_end,
                       &parameter.bad_at);
  }
  const NamedReading reading(names, *parameter.named);
  if (!reading) return false;
  const TensorView& view = reading.tensor().view;
  return HoldsBad(view.type, view.data, view.numel, &parameter.bad_at);
}

bool Poison::Hold(const Parameter& parameter, HeldParameter* held) noexcept {
  if (!parameter.on_gpu) return false;
  held->storage = TakeStorage(static_cast<const c10::StorageImpl*>(parameter.storage.storage));
  const auto* base = held->storage ? static_cast<const char*>(DataOf(*held->storage)) : nullptr;
  if (base == nullptr || parameter.byte_end > held->storage->nbytes()) return false;
  held->numel = static_cast<int64_t>((parameter.byte_end - parameter.byte_begin) /
                                     ElementBytes(parameter.type));
  PlainTensor& tensor = held->tensor;
  tensor.storage = held->storage.get();
  tensor.view = TensorView{
      base + parameter.byte_begin, parameter.type, 1, &held->numel, &held->stride, held->numel};
  tensor.byte_begin = parameter.byte_begin;
  tensor.byte_end = parameter.byte_end;
  tensor.gpu = parameter.gpu;
  return true;
}

void Poison::RecordCleanGpus() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < count_; ++i) parameters_[i].clean_again |= parameters_[i].on_gpu;
}

bool Poison::AnyIsBad(const PythonNames& names) noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    if (IsBad(names, parameters_[i])) return true;
  }
  if (!more_) return false;
  // Those that are listed are clean again, so most likely all are. One that is not speaks for the
  // rest from here on.
  bool any = false;
  names.ForEach([&](const NamedTensor& named) {
    if (any || named.kind != NamedTensorKind::kParameter) return;
    const NamedReading reading(names, named);
    if (!reading.IsBad()) return;
    any = true;
    const PlainTensor& tensor = reading.tensor();
    Forget();
    parameters_[count_++] =
        Parameter{&named, {}, tensor.view.type, tensor.byte_begin, tensor.byte_end, false, false,
                  0,      0,  int8_t{-1}};
  });
  return any;
}

void Poison::Forget() noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    if (parameters_[i].storage.handle != nullptr) {
      TorchWeakStorageOps().drop(parameters_[i].storage.handle);
    }
  }
  count_ = 0;
}

void Poison::Leave() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  LeaveLocked();
}

void Poison::LeaveLocked() noexcept {
  Forget();
  due_ = more_ = false;
  poisoned_.store(false, std::memory_order_relaxed);
}

bool Poison::LeaveAlone() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!Poisoned() && !due_) return false;
  LeaveLocked();
  idle_.store(true, std::memory_order_relaxed);
  ++left_alone_;
  return true;
}

Poison::Change Poison::Settle(const PythonNames& names) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Poisoned()) {
    if (AnyIsBad(names)) return Change::kNone;
    LeaveLocked();
    return Change::kLeft;
  }
  if (!due_) return Change::kNone;
  due_ = false;
  poisoned_.store(true, std::memory_order_relaxed);
  return Change::kEntered;
}

}  // namespace nanwatch
