#include "shim/observe/shared_files.h"

#include <atomic>
#include <cstring>

#include "shim/host/shared_mapping.h"
#include "shim/observe/collectives.h"
#include "shim/observe/observer.h"
#include "shim/observe/sources.h"
#include "shim/observe/storage_data.h"
#include "shim/observe/written_tensor.h"

namespace nanwatch::shared_files {
namespace {

// A process that trains on bad parameters writes bad values into shared memory for ever.
constexpr uint32_t kToldMax = 4096;
std::atomic<uint32_t> told{0};

void Tell(Observer& observer, ThreadState* thread, uint64_t file,
          const wire::Source& value) noexcept {
  if (told.fetch_add(1, std::memory_order_relaxed) >= kToldMax) return;
  CollectiveName name;
  std::strncpy(name.name, wire::kSharedMemory, sizeof name.name - 1);
  name.sequence = file;
  EmitCollective(observer, thread, name, &value, {});
}

}  // namespace

// torch's allocators make no shared memory: a storage over a file, or over another library's
// memory, has none.
uint64_t FileOf(const c10::StorageImpl& storage) noexcept {
  const void* data = storage.device_type() == c10::DeviceType::CPU &&
                             const_cast<c10::StorageImpl&>(storage).allocator() == nullptr
                         ? DataOf(storage)
                         : nullptr;
  return data != nullptr ? SharedFileAt(data) : 0;
}

void AddSource(const PlainTensor& tensor, const Written& written, uint8_t kinds,
               Sources* sources) noexcept {
  if (tensor.gpu >= 0 || tensor.storage == nullptr) return;
  const uint64_t file = FileOf(*tensor.storage);
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
    const PlainTensor& tensor = outputs[i].tensor;
    if (tensor.gpu >= 0 || tensor.storage == nullptr) continue;
    if (const uint64_t file = FileOf(*tensor.storage); file != 0) {
      Tell(observer, thread, file, value);
    }
  }
}

void OnByteCopy(Observer& observer, ThreadState* thread, const at::TensorBase& to,
                const at::TensorBase& from) noexcept {
  if (!to.has_storage() || !from.has_storage()) return;
  const c10::StorageImpl* source = from.storage().unsafeGetStorageImpl();
  BadEntry entry;
  if (!observer.bad_values.Find(source, 0, source->nbytes(), &entry)) return;
  const uint64_t file = FileOf(*to.storage().unsafeGetStorageImpl());
  if (file != 0) Tell(observer, thread, file, SourceFrom(entry));
}

}  // namespace nanwatch::shared_files
