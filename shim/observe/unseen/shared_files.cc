// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/shared_files.h"

#include <cstring>

#include "shim/host/shared_mapping.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/finding/written_tensor.h"
#include "shim/observe/observer.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/unseen/collective_results.h"

namespace nanwatch::shared_files {
namespace {

// A process that trains on bad values meets them for ever, and a look takes up to some
// milliseconds.
constexpr uint32_t kLooksMax = 8192;

// torch's allocators make no shared memory: a storage over a file, or over another library's
// memory, has none.
uint64_t FileOf(Observer& observer, const c10::StorageImpl& storage) noexcept {
  if (storage.device_type() != c10::DeviceType::CPU ||
      const_cast<c10::StorageImpl&>(storage).allocator() != nullptr) {
    return 0;
  }
  const void* data = DataOf(storage);
  if (data == nullptr ||
      observer.shared_file_looks.fetch_add(1, std::memory_order_relaxed) >= kLooksMax) {
    return 0;
  }
  return SharedFileAt(data);
}

void EmitFile(Observer& observer, ThreadState* thread, uint64_t file,
              const wire::Source& value) noexcept {
  CollectiveName name;
  std::strncpy(name.name, wire::kSharedMemory, sizeof name.name - 1);
  name.sequence = file;
  EmitCollective(observer, thread, name, &value, {});
}

}  // namespace

uint64_t FileOf(Observer& observer, const PlainTensor& tensor) noexcept {
  return tensor.gpu < 0 && tensor.storage != nullptr ? FileOf(observer, *tensor.storage) : 0;
}

void AddSource(Observer& observer, const PlainTensor& tensor, const Written& written, uint8_t kinds,
               Sources* sources) noexcept {
  uint64_t file = FileOf(observer, tensor);
  if (file == 0) file = observer.collective_results.UnnamedBringer(observer);
  if (file == 0) return;
  wire::Source source{};
  source.kind = static_cast<uint8_t>(wire::SourceKind::kExternal);
  source.target = static_cast<uint8_t>(written.target);
  source.kinds = kinds;
  source.input = 255;
  source.name = written.name;
  source.value = file;
  sources->Add(source, 0);
}

void OnBadOutputs(Observer& observer, ThreadState* thread, const BadOutput* outputs, int count,
                  const wire::Source& value) noexcept {
  for (int i = 0; i < count; ++i) {
    const uint64_t file = FileOf(observer, outputs[i].tensor);
    if (file != 0) EmitFile(observer, thread, file, value);
  }
}

void OnByteCopy(Observer& observer, ThreadState* thread, const at::TensorBase& to,
                const at::TensorBase& from) noexcept try {
  // A traced tensor has no memory, and asking for its size throws.
  if (!to.has_storage() || !from.has_storage()) return;
  const c10::StorageImpl* source = from.storage().unsafeGetStorageImpl();
  BadEntry entry;
  if (!observer.bad_values.Find(source, 0, source->nbytes(), &entry)) return;
  const uint64_t file = FileOf(observer, *to.storage().unsafeGetStorageImpl());
  if (file != 0) EmitFile(observer, thread, file, SourceFrom(entry));
} catch (...) {
}

}  // namespace nanwatch::shared_files
