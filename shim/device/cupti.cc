#include "shim/device/cupti.h"

#include <dlfcn.h>

#include <cstring>
#include <type_traits>

#include "shim/device/library_lookup.h"

namespace nanwatch::device {
namespace {

static_assert(std::is_standard_layout_v<Cupti> && sizeof(void*) == 8);

struct CuptiEntry {
  const char* name;
  size_t offset;  // of the pointer in Cupti
  bool required;
};

constexpr CuptiEntry kCuptiEntries[] = {
    {"cuptiGetVersion", offsetof(Cupti, get_version), true},
    {"cuptiSubscribe", offsetof(Cupti, subscribe), true},
    {"cuptiUnsubscribe", offsetof(Cupti, unsubscribe), true},
    {"cuptiActivityRegisterCallbacks", offsetof(Cupti, register_callbacks), true},
    {"cuptiActivityEnable", offsetof(Cupti, enable), true},
    {"cuptiActivityDisable", offsetof(Cupti, disable), true},
    {"cuptiActivityEnableRuntimeApi", offsetof(Cupti, enable_runtime_call), false},
    {"cuptiActivityEnableDriverApi", offsetof(Cupti, enable_driver_call), false},
    {"cuptiActivityPushExternalCorrelationId", offsetof(Cupti, push_id), true},
    {"cuptiActivityPopExternalCorrelationId", offsetof(Cupti, pop_id), true},
    {"cuptiActivityFlushAll", offsetof(Cupti, flush_all), true},
    {"cuptiActivityGetNextRecord", offsetof(Cupti, next_record), true},
    {"cuptiActivityGetNumDroppedRecords", offsetof(Cupti, dropped_records), true},
};

}  // namespace

Cupti LookUpCupti(DriverLookup lookup, void* context) noexcept {
  Cupti cupti;
  for (const CuptiEntry& entry : kCuptiEntries) {
    void* const function = lookup(context, entry.name);
    std::memcpy(reinterpret_cast<char*>(&cupti) + entry.offset, &function, sizeof function);
    if (function == nullptr && entry.required && cupti.absent_required == nullptr) {
      cupti.absent_required = entry.name;
    }
  }
  return cupti;
}

std::optional<Cupti> CuptiOfProcess() noexcept {
  void* found = nullptr;
  for (const char* const name : {"libcupti.so.13", "libcupti.so.12"}) {
    // The handle is kept: the library must not go away under the pointers.
    void* const library = dlopen(name, RTLD_NOLOAD | RTLD_NOW);
    if (library == nullptr) continue;
    if (found != nullptr) return std::nullopt;
    found = library;
  }
  if (found == nullptr) return std::nullopt;
  return LookUpCupti(&LookUpInLibrary, found);
}

}  // namespace nanwatch::device
