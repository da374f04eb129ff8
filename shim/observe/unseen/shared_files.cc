// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/shared_files.h"

#include <cstring>

#include "shim/host/shared_mapping.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/unseen/collective_records.h"
#include "shim/observe/unseen/collective_results.h"

namespace nanwatch {

// torch's allocators make no shared memory: a storage over a file, or over another library's
// memory, has none.
uint64_t SharedFiles::FileOf(const c10::StorageImpl& storage) noexcept {
  if (storage.device_type() != c10::DeviceType::CPU ||
      const_cast<c10::StorageImpl&>(storage).allocator() != nullptr) {
    return 0;
  }
  const void* data = DataOf(storage);
  if (data == nullptr || lookups_.fetch_add(1, std::memory_order_relaxed) >= kLookupsMax) return 0;
  return SharedFileAt(data);
}

uint64_t SharedFiles::FileOf(const PlainTensor& tensor) noexcept {
  return tensor.gpu < 0 && tensor.storage != nullptr ? FileOf(*tensor.storage) : 0;
}

uint64_t SharedFiles::BringerOf(const PlainTensor& tensor) noexcept {
  const uint64_t file = FileOf(tensor);
  return file != 0 ? file : collective_results_.UnnamedBringer();
}

void SharedFiles::EmitFile(ThreadState* thread, uint64_t file, const wire::Source& value) noexcept {
  CollectiveName name;
  std::strncpy(name.name, wire::kSharedMemory, sizeof name.name - 1);
  name.sequence = file;
  records_.Emit(thread, name, &value, {});
}

void SharedFiles::AddSource(const PlainTensor& tensor, const Written& written, uint8_t kinds,
                            Sources* sources) noexcept {
  const uint64_t file = BringerOf(tensor);
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

void SharedFiles::OnBadOutputs(ThreadState* thread, const BadOutput* outputs, int count,
                               const wire::Source& value) noexcept {
  for (int i = 0; i < count; ++i) {
    const uint64_t file = FileOf(outputs[i].tensor);
    if (file != 0) EmitFile(thread, file, value);
  }
}

void SharedFiles::OnByteCopy(ThreadState* thread, const at::TensorBase& to,
                             const at::TensorBase& from) noexcept try {
  // A traced tensor has no memory, and asking for its size throws.
  if (!to.has_storage() || !from.has_storage()) return;
  const c10::StorageImpl* source = from.storage().unsafeGetStorageImpl();
  BadEntry entry;
  if (!bad_values_.Find(source, 0, source->nbytes(), &entry)) return;
  const uint64_t file = FileOf(*to.storage().unsafeGetStorageImpl());
  if (file != 0) EmitFile(thread, file, SourceFrom(entry));
} catch (...) {
}

}  // namespace nanwatch
