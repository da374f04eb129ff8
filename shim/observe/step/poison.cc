#include "shim/observe/step/poison.h"

#include "shim/check/scan.h"
#include "shim/observe/named_reading.h"
#include "shim/observe/observer.h"
#include "shim/observe/python/storage_hold.h"
#include "shim/observe/storage_data.h"

namespace nanwatch {
namespace {

// Memory whose storage is gone, or was resized since, can hold nobody back.
bool IsBadMemory(const WeakStorage& weak, wire::ElementType type, uint64_t byte_begin,
                 uint64_t byte_end) {
  const auto storage = TakeStorage(static_cast<const c10::StorageImpl*>(weak.storage));
  if (!storage) return false;
  const auto* base = static_cast<const char*>(DataOf(*storage));
  if (base == nullptr || byte_end > storage->nbytes()) return false;
  return HasNonFinite(type, base + byte_begin, (byte_end - byte_begin) / ElementBytes(type));
}

}  // namespace

void Poison::Mark(const NamedTensor* named, const PlainTensor& tensor) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  due_ = true;
  if (IsKnown(named, tensor)) return;
  if (count_ == kParametersMax) {
    more_ = true;
    return;
  }
  Parameter& parameter = parameters_[count_++];
  const bool on_gpu = tensor.gpu >= 0;
  parameter =
      Parameter{named, {}, tensor.view.type, tensor.byte_begin, tensor.byte_end, on_gpu, false, 0};
  if (named == nullptr || on_gpu) parameter.storage = HoldWeakly(tensor.storage);
}

void Poison::NoteCleanWrite(const void* storage, uint64_t byte_begin, uint64_t byte_end) noexcept {
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
  if (parameter.named != nullptr) return NamedReading(names, *parameter.named).IsBad();
  return IsBadMemory(parameter.storage, parameter.type, parameter.byte_begin, parameter.byte_end);
}

bool Poison::AnyIsBad(const PythonNames& names) noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    if (IsBad(names, parameters_[i])) return true;
  }
  bool any = false;
  // Reads every parameter of the process, once: the listed ones are clean again, so most likely all
  // are.
  if (more_) {
    names.ForEach([&](const NamedTensor& named) {
      any =
          any || (named.kind == NamedTensorKind::kParameter && NamedReading(names, named).IsBad());
    });
  }
  return any;
}

Poison::Change Poison::Settle(const PythonNames& names) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Poisoned()) {
    if (AnyIsBad(names)) return Change::kNone;
    for (uint32_t i = 0; i < count_; ++i) {
      if (parameters_[i].storage.handle != nullptr) {
        TorchWeakStorageOps().drop(parameters_[i].storage.handle);
      }
    }
    count_ = 0;
    due_ = more_ = false;
    poisoned_.store(false, std::memory_order_relaxed);
    return Change::kLeft;
  }
  if (!due_) return Change::kNone;
  due_ = false;
  poisoned_.store(true, std::memory_order_relaxed);
  return Change::kEntered;
}

}  // namespace nanwatch
