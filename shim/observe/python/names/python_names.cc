// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/python_names.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/torch_versions.h"

namespace nanwatch {
namespace {

constexpr int kSizesMax = 8;

// Where a torch.Tensor object keeps its at::Tensor: right behind the object's head or, in versions
// that keep a c10::MaybeOwned there, behind that one's flag. The likelier one first; Prove decides.
#if NANWATCH_TORCH_HOLDS_TENSOR_PLAINLY
constexpr ptrdiff_t kTensorOffsets[] = {16, 24};
#else
constexpr ptrdiff_t kTensorOffsets[] = {24, 16};
#endif

const char* KeepName(std::string_view text) {
  char* copy = new char[text.size() + 1];
  memcpy(copy, text.data(), text.size());
  copy[text.size()] = 0;
  return copy;
}

bool PointsBack(const c10::TensorImpl* impl, const void* object) noexcept {
  return PythonObjectIn(impl->pyobj_slot()) == object;
}

const c10::TensorImpl* ImplAt(const PyObj* object, ptrdiff_t offset) noexcept {
  const c10::TensorImpl* impl = nullptr;
  memcpy(&impl, reinterpret_cast<const unsigned char*>(object) + offset, sizeof impl);
  return impl;
}

// Null where a tensor has no storage of its own (sparse, opaque, undefined).
c10::StorageImpl* StorageOf(const c10::TensorImpl* impl) noexcept {
  return impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

bool PlainStrided(const c10::TensorImpl* impl) noexcept {
  using c10::DispatchKey;
  const c10::DispatchKeySet keys = impl->key_set();
  for (const DispatchKey key :
       {DispatchKey::Python, DispatchKey::Sparse, DispatchKey::Quantized, DispatchKey::NestedTensor,
        DispatchKey::Functionalize, DispatchKey::FuncTorchBatched}) {
    if (keys.has(key)) return false;
  }
  return !impl->has_symbolic_sizes_strides();
}

}  // namespace

struct PythonNames::Record : NamedTensor {
  // Guarded by mutex_.
  const void* object = nullptr;  // the Python object, an identity
  const void* impl = nullptr;    // an identity
  bool is_local = true;          // what follows is of the tensor itself
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  const c10::StorageImpl* storage_address = nullptr;  // kept from being used again by `storage`
  bool readable = false;                              // ordinary strided memory
  bool dense = false;
  bool forgotten = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  int64_t numel = 0;
  int64_t byte_offset = 0;
  int64_t item_size = 0;
  uint8_t dims = 0;
  int64_t sizes[kSizesMax] = {};

  Record() : storage(c10::intrusive_ptr<c10::StorageImpl>()) {}
  void See(const void* tensor_object, const c10::TensorImpl* tensor, const c10::TensorImpl* local);
  [[nodiscard]] bool IsLost() const noexcept {
    return storage_address != nullptr && storage.expired();
  }
};

// The tensor is alive: its object is held by the module, and the GIL by us.
void PythonNames::Record::See(const void* tensor_object, const c10::TensorImpl* tensor,
                              const c10::TensorImpl* local) {
  object = tensor_object;
  impl = tensor;
  is_local = local == tensor;
  forgotten = false;
  storage_address = StorageOf(local);
  readable = storage_address != nullptr && PlainStrided(local);
  if (storage_address != nullptr) {
    storage = local->unsafe_storage().getWeakStorageImpl();
  } else {
    storage.reset();
  }
  if (!readable) return;
  const c10::IntArrayRef shape = local->sizes();
  dtype = c10::typeMetaToScalarType(local->dtype());
  device = local->device();
  numel = local->numel();
  item_size = static_cast<int64_t>(local->itemsize());
  byte_offset = local->storage_offset() * item_size;
  dense = local->is_non_overlapping_and_dense();
  dims = static_cast<uint8_t>(std::min<size_t>(shape.size(), 255));
  for (size_t i = 0; i < shape.size() && i < kSizesMax; ++i) sizes[i] = shape[i];
}

void PythonNames::Prove(const PyObj* object) noexcept {
  for (const ptrdiff_t offset : kTensorOffsets) {
    const c10::TensorImpl* impl = ImplAt(object, offset);
    // The wrong one of the two places holds a flag in zeroed memory, or a pointer to a dict:
    // neither points back.
    if (reinterpret_cast<uintptr_t>(impl) < 4096 || (reinterpret_cast<uintptr_t>(impl) & 7) != 0)
      continue;
    if (PointsBack(impl, object)) {
      tensor_offset_ = offset;
      return;
    }
  }
  unusable_ = true;
}

void PythonNames::Add(const Layer* layer, std::string_view leaf, NamedTensorKind kind,
                      const at::TensorBase& tensor, const at::TensorBase& local) noexcept {
  try {
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    const void* object = PythonObjectIn(impl->pyobj_slot());
    const std::lock_guard<std::mutex> lock(mutex_);
    // A tensor that this root has under an earlier name keeps that, as named_parameters() has it.
    const auto shared = by_impl_.find(impl);
    if (shared != by_impl_.end() && shared->second->object == object &&
        shared->second->layer->root_layer == layer->root_layer) {
      return;
    }
    Record* record = RecordOf(layer, leaf, kind);
    if (record == nullptr) return;
    ForgetRecord(record);
    generation_.fetch_add(1, std::memory_order_release);
    record->See(object, impl, local.unsafeGetTensorImpl());
    by_impl_[impl] = record;
    if (record->storage_address != nullptr)
      by_storage_.try_emplace(record->storage_address, record);
  } catch (const std::exception&) {
    // Out of memory, or a tensor that refuses to tell its sizes: it stays without a name.
  }
}

const NamedTensor* PythonNames::SeeAgain(const c10::TensorImpl* impl) noexcept try {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_impl_.find(impl);
  if (found == by_impl_.end() || !PointsBack(impl, found->second->object)) return nullptr;
  Record* const record = found->second;
  if (!record->is_local) return record;
  const auto storage = by_storage_.find(record->storage_address);
  if (storage != by_storage_.end() && storage->second == record) by_storage_.erase(storage);
  record->See(record->object, impl, impl);
  if (record->storage_address != nullptr) by_storage_.try_emplace(record->storage_address, record);
  return record;                   // under the same name: the generation stays
} catch (const std::exception&) {  // as in Add
  return nullptr;
}

PythonNames::Record* PythonNames::RecordOf(const Layer* layer, std::string_view leaf,
                                           NamedTensorKind kind) {
  // A layer is a path and a class: another class under the same path is another layer.
  const void* const identity = layer;
  std::string key(reinterpret_cast<const char*>(&identity), sizeof identity);
  key += kind == NamedTensorKind::kParameter ? 'p' : 'b';
  key += leaf;
  const auto known = by_name_.find(key);
  if (known != by_name_.end()) return known->second;
  if (records_.size() >= kNamedTensorsMax) return nullptr;
  std::string name(layer->path);
  if (!name.empty()) name += '.';
  name += leaf;
  auto* record = new Record;
  record->name = KeepName(name);
  record->kind = kind;
  record->layer = layer;
  record->index = static_cast<uint32_t>(records_.size());
  records_.push_back(record);
  if (kind == NamedTensorKind::kBuffer) {
    buffers_.push_back(record);
    has_buffers_.store(true, std::memory_order_relaxed);
  }
  by_layer_[layer].push_back(record);
  by_root_[layer->root_layer].push_back(record);
  by_name_.emplace(std::move(key), record);
  return record;
}

bool PythonNames::IsParameterObject(const c10::TensorImpl* impl) const noexcept {
  const PyObj* type = parameter_type_.load(std::memory_order_relaxed);
  if (type == nullptr || impl == nullptr) return false;
  const auto* object =
      static_cast<const PyObj*>(PythonObjectIn(const_cast<c10::TensorImpl*>(impl)->pyobj_slot()));
  return object != nullptr && object->type == type;
}

const NamedTensor* PythonNames::FindByImpl(const c10::TensorImpl* impl) const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_impl_.find(impl);
  if (found == by_impl_.end()) return nullptr;
  // The address may have been used again since: the tensor must still have the same object or the
  // same storage.
  const Record* record = found->second;
  const bool same_object = PointsBack(impl, record->object);
  const bool same_storage =
      record->storage_address != nullptr && StorageOf(impl) == record->storage_address;
  return same_object || same_storage ? record : nullptr;
}

const NamedTensor* PythonNames::FindByImpl(const c10::TensorImpl* impl,
                                           const c10::StorageImpl* storage) const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_impl_.find(impl);
  if (found == by_impl_.end() || storage == nullptr) return nullptr;
  return found->second->storage_address == storage ? found->second : nullptr;
}

const NamedTensor* PythonNames::FindByStorage(const c10::StorageImpl* storage) const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The weak reference keeps the address from being used again.
  const auto found = by_storage_.find(storage);
  return found == by_storage_.end() ? nullptr : found->second;
}

std::optional<NamedTensorView> PythonNames::Read(const NamedTensor& tensor) const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Record& record = static_cast<const Record&>(tensor);
  if (!record.readable || record.forgotten) return std::nullopt;
  NamedTensorView view;
  view.storage = TakeStorage(record.storage_address);
  if (!view.storage) return std::nullopt;
  const auto* base = static_cast<const unsigned char*>(DataOf(*view.storage));
  const auto bytes = static_cast<int64_t>(view.storage->nbytes());
  const bool inside = record.byte_offset + record.numel * record.item_size <= bytes;
  view.data = base == nullptr || !inside ? nullptr : base + record.byte_offset;
  view.dtype = record.dtype;
  view.numel = record.numel;
  view.dense = record.dense;
  view.dims = record.dims;
  std::copy(std::begin(record.sizes), std::end(record.sizes), std::begin(view.sizes));
  view.device = record.device;
  return view;
}

const void* PythonNames::TensorsOf(const Layer* root) const noexcept {
  const auto found = by_root_.find(root);
  return found == by_root_.end() ? nullptr : &found->second;
}

// Without the lock: only a thread with the GIL changes any of this.
bool PythonNames::Moved(Root& root) const noexcept {
  if (root.tensors == nullptr) return false;
  const uint32_t times = std::bit_width(nameless_.load(std::memory_order_relaxed));
  if (std::exchange(root.nameless_times, times) != times) return true;
  const auto& records = *static_cast<const std::vector<Record*>*>(root.tensors);
  if (++root.next_checked >= records.size()) root.next_checked = 0;
  return records.front()->IsLost() || records[root.next_checked]->IsLost();
}

std::vector<PythonNames::Held> PythonNames::HeldBy(const Root& root) const {
  std::vector<Held> held;
  if (root.tensors == nullptr) return held;
  for (const Record* record : *static_cast<const std::vector<Record*>*>(root.tensors)) {
    held.push_back({record, record->storage_address});
  }
  return held;
}

std::vector<PythonNames::Held> PythonNames::LostBuffers(const Root& root) const {
  std::vector<Held> lost;
  if (root.tensors == nullptr) return lost;
  for (const Record* record : *static_cast<const std::vector<Record*>*>(root.tensors)) {
    if (record->kind == NamedTensorKind::kBuffer && record->IsLost()) {
      lost.push_back({record, record->storage_address});
    }
  }
  return lost;
}

at::TensorBase PythonNames::ReplacedBy(const Held& held) const noexcept {
  const Record& record = static_cast<const Record&>(*held.named);
  const bool is_other = record.storage_address != held.storage;
  if (!is_other || record.forgotten || record.storage_address == nullptr || record.IsLost()) {
    return {};
  }
  // Its object lives as long as the module holds it, and so does what stands in it.
  auto* impl = const_cast<c10::TensorImpl*>(static_cast<const c10::TensorImpl*>(record.impl));
  if (!PointsBack(impl, record.object)) return {};
  return at::TensorBase(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(
          impl));
}

void PythonNames::ForgetRoot(const Layer* root) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_root_.find(root);
  if (found == by_root_.end()) return;
  generation_.fetch_add(1, std::memory_order_release);
  for (Record* record : found->second) ForgetRecord(record);
}

void PythonNames::ForgetRecord(Record* record) noexcept {
  const auto impl = by_impl_.find(record->impl);
  if (impl != by_impl_.end() && impl->second == record) by_impl_.erase(impl);
  const auto storage = by_storage_.find(record->storage_address);
  if (storage != by_storage_.end() && storage->second == record) by_storage_.erase(storage);
  record->forgotten = true;
  record->storage.reset();
  record->storage_address = nullptr;
}

std::vector<const NamedTensor*> PythonNames::SnapshotOfBuffers() const noexcept {
  std::vector<const NamedTensor*> out;
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    out.reserve(buffers_.size());
    for (const Record* record : buffers_) {
      if (!record->forgotten) out.push_back(record);
    }
  } catch (const std::exception&) {
    out.clear();
  }
  return out;
}

std::vector<const NamedTensor*> PythonNames::Snapshot(const Layer* layer,
                                                      const Layer* root) const noexcept {
  std::vector<const NamedTensor*> out;
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::vector<Record*>* from = &records_;
    if (layer != nullptr || root != nullptr) {
      const auto& map = layer != nullptr ? by_layer_ : by_root_;
      const auto found = map.find(layer != nullptr ? layer : root);
      if (found == map.end()) return out;
      from = &found->second;
    }
    out.reserve(from->size());
    for (const Record* record : *from) {
      if (!record->forgotten) out.push_back(record);
    }
  } catch (const std::exception&) {
    out.clear();
  }
  return out;
}

}  // namespace nanwatch
