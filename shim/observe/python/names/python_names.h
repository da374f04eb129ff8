// SPDX-License-Identifier: Apache-2.0
// Names of parameters and buffers: from a tensor, or its storage, to "encoder.layers.0.weight".
//
// Filled with the GIL held while a root's modules are walked; read by callbacks without the GIL, on
// cold paths, under a mutex of its own that is never held while Python, torch or a caller's
// function runs. Entries are never freed (at most kNamedTensorsMax) and keep neither tensors nor
// their memory alive: a storage is held weakly, a TensorImpl not at all (a weak reference to it
// would make torch.utils.swap_tensors raise in the job).
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shim/observe/python/api/python_api.h"
#include "shim/observe/python/names/layer_table.h"

namespace nanwatch {

inline constexpr uint32_t kNamedTensorsMax = 262144;

enum class NamedTensorKind : uint8_t { kParameter, kBuffer };

// What to read of a tensor while nobody holds it: take the storage first (PythonNames::Read), then
// these.
struct NamedTensorView {
  c10::intrusive_ptr<c10::StorageImpl>
      storage;                 // keeps the memory alive for as long as the view lives
  const void* data = nullptr;  // first element; null when there is no memory (meta, resized to 0)
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  int64_t numel = 0;
  bool dense = false;  // the elements fill [data, data + numel * itemsize) without holes
  uint8_t dims = 0;
  int64_t sizes[8] = {};  // the first `dims`, at most 8
  c10::Device device = c10::Device(c10::DeviceType::CPU);
};

struct NamedTensor {
  // Fixed for life.
  const char* name = "";  // "encoder.layers.0.weight", relative to the layer's root
  NamedTensorKind kind = NamedTensorKind::kParameter;
  const Layer* layer = nullptr;  // the module that owns it
  uint32_t index = 0;            // dense, below kNamedTensorsMax; for side tables
};

class PythonNames {
 public:
  // ---- any thread, no GIL; one lock each
  // `impl` must be alive. Null when it is no parameter or buffer of a root that was called.
  [[nodiscard]] const NamedTensor* FindByImpl(const c10::TensorImpl* impl) const noexcept;
  // Whether Python holds it as what modules hold their parameters as (torch.nn.Parameter), whatever
  // module that is. No lock. False until a parameter has a name.
  [[nodiscard]] bool IsParameterObject(const c10::TensorImpl* impl) const noexcept;
  // The class of a module's parameter, which is not torch.Tensor itself. The first counts.
  void SetParameterType(const PyObj* type) noexcept {
    const PyObj* none = nullptr;
    parameter_type_.compare_exchange_strong(none, type, std::memory_order_relaxed);
  }
  // The same where `impl` may be gone: compares pointers only, and knows it by its storage.
  [[nodiscard]] const NamedTensor* FindByImpl(const c10::TensorImpl* impl,
                                              const c10::StorageImpl* storage) const noexcept;
  // Compares pointers only. The first of several tensors that share the storage.
  [[nodiscard]] const NamedTensor* FindByStorage(const c10::StorageImpl* storage) const noexcept;
  // Takes hold of a tensor's memory, as last seen. Empty when it is gone or was never ordinary
  // memory.
  [[nodiscard]] std::optional<NamedTensorView> Read(const NamedTensor& tensor) const noexcept;

  // fn(const NamedTensor&) for a snapshot, called without the lock.
  template <typename Fn>
  void ForEach(Fn&& fn) const noexcept {
    for (const NamedTensor* tensor : Snapshot(nullptr, nullptr)) fn(*tensor);
  }
  // Those of one layer's own module, not of its children.
  template <typename Fn>
  void ForEachOwnedBy(const Layer* layer, Fn&& fn) const noexcept {
    for (const NamedTensor* tensor : Snapshot(layer, nullptr)) fn(*tensor);
  }
  template <typename Fn>
  void ForEachInRoot(const Layer* root, Fn&& fn) const noexcept {
    for (const NamedTensor* tensor : Snapshot(nullptr, root)) fn(*tensor);
  }

  // Buffers of all roots. A load where there are none.
  template <typename Fn>
  void ForEachBuffer(Fn&& fn) const noexcept {
    for (const NamedTensor* tensor : SnapshotOfBuffers()) fn(*tensor);
  }
  [[nodiscard]] bool HasBuffers() const noexcept {
    return has_buffers_.load(std::memory_order_relaxed);
  }

  // Another number once a tensor is known by another name, or by none any more: what was found here
  // is to be asked for again.
  [[nodiscard]] uint64_t generation() const noexcept {
    return generation_.load(std::memory_order_acquire);
  }

  // Something bad came in that has no name here. The program may have given it to a module since:
  // each root is walked again where it is called next. Where such come in again and again, as
  // batches with NaN for what is missing do, it is not each time that counts.
  void ExpectReplaced() const noexcept { nameless_.fetch_add(1, std::memory_order_relaxed); }

  // Covers all that is known here. For a thread that forks (forks.h).
  [[nodiscard]] std::mutex& mutex() const noexcept { return mutex_; }

  // ---- the GIL is held
  // The at::Tensor inside a torch.Tensor object; null when it holds none. Lives as long as the
  // object. Where an object keeps it is found out and proven on the first one; when that fails the
  // answer is null for ever.
  [[nodiscard]] const at::TensorBase* TensorOf(PyObj* object) noexcept {
    if (tensor_offset_ == 0 && !unusable_) Prove(object);
    if (unusable_) return nullptr;
    const void* tensor = reinterpret_cast<const unsigned char*>(object) + tensor_offset_;
    const c10::TensorImpl* impl = nullptr;
    std::memcpy(&impl, tensor, sizeof impl);
    const bool defined = impl != c10::UndefinedTensorImpl::singleton();
    return defined ? static_cast<const at::TensorBase*>(tensor) : nullptr;
  }
  [[nodiscard]] bool unusable() const noexcept { return unusable_; }

  // A tensor of `layer` called `leaf` ("weight"), new or seen again, whose values lie in `local`:
  // in itself, or as local_tensor.h has it.
  void Add(const Layer* layer, std::string_view leaf, NamedTensorKind kind,
           const at::TensorBase& tensor, const at::TensorBase& local) noexcept;
  // A tensor that may be known here has other memory now. Its name; null: it has none.
  const NamedTensor* SeeAgain(const c10::TensorImpl* impl) noexcept;
  // What was noted for a root, for Moved; to be called after its tensors were noted. Null for none.
  [[nodiscard]] const void* TensorsOf(const Layer* root) const noexcept;
  // Whether a tensor noted for `root` has lost its storage since (model.half(), .to(), a replaced
  // parameter): looks at the root's first tensor and at one other, a different one each time. A few
  // loads.
  [[nodiscard]] bool Moved(Root& root) const noexcept;
  // What was noted for a root, by name and storage, to be compared with what another walk notes.
  struct Held {
    const NamedTensor* named;
    const void* storage;
  };
  [[nodiscard]] std::vector<Held> HeldBy(const Root& root) const;
  // Of these the buffers whose storage is gone: its modules may have others by these names now.
  [[nodiscard]] std::vector<Held> LostBuffers(const Root& root) const;
  // Right after that walk: what the module holds by the name, where that has other memory now; else
  // undefined.
  [[nodiscard]] at::TensorBase ReplacedBy(const Held& held) const noexcept;
  // Forgets a dead root's tensors for lookups.
  void ForgetRoot(const Layer* root) noexcept;

 private:
  struct Record;
  void ForgetRecord(Record* record) noexcept;  // mutex_ held
  void Prove(const PyObj* object) noexcept;
  [[nodiscard]] Record* RecordOf(const Layer* layer, std::string_view leaf,
                                 NamedTensorKind kind);  // mutex_ held
  [[nodiscard]] std::vector<const NamedTensor*> Snapshot(const Layer* layer,
                                                         const Layer* root) const noexcept;
  [[nodiscard]] std::vector<const NamedTensor*> SnapshotOfBuffers() const noexcept;

  mutable std::mutex mutex_;
  std::vector<Record*> records_;  // leaked
  std::vector<Record*> buffers_;  // of these
  std::atomic<bool> has_buffers_{false};
  std::unordered_map<const void*, Record*> by_impl_;
  std::unordered_map<const void*, Record*> by_storage_;
  std::unordered_map<std::string, Record*> by_name_;  // layer, kind and "weight"
  std::unordered_map<const Layer*, std::vector<Record*>> by_layer_;
  std::unordered_map<const Layer*, std::vector<Record*>> by_root_;
  std::atomic<uint64_t> generation_{0};        // written with mutex_ held
  mutable std::atomic<uint32_t> nameless_{0};  // bad values that came in without a name
  std::atomic<const PyObj*> parameter_type_{nullptr};
  ptrdiff_t tensor_offset_ = 0;  // 0: not proven yet
  bool unusable_ = false;
};

}  // namespace nanwatch
