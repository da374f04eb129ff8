// SPDX-License-Identifier: Apache-2.0
#include "shim/device/cupti.h"

#include <dlfcn.h>

#include <cstddef>
#include <type_traits>

#include "shim/device/library_lookup.h"

namespace nanwatch::device {
namespace {

static_assert(std::is_standard_layout_v<Cupti> && sizeof(void*) == 8);

constexpr LibraryEntry kCuptiEntries[] = {
    {"cuptiGetVersion", offsetof(Cupti, get_version)},
    {"cuptiSubscribe", offsetof(Cupti, subscribe)},
    {"cuptiUnsubscribe", offsetof(Cupti, unsubscribe)},
    {"cuptiActivityRegisterCallbacks", offsetof(Cupti, register_callbacks)},
    {"cuptiActivityEnable", offsetof(Cupti, enable)},
    {"cuptiActivityDisable", offsetof(Cupti, disable)},
    {"cuptiActivityEnableRuntimeApi", offsetof(Cupti, enable_runtime_call), Need::kOptional},
    {"cuptiActivityEnableDriverApi", offsetof(Cupti, enable_driver_call), Need::kOptional},
    {"cuptiActivityPushExternalCorrelationId", offsetof(Cupti, push_id)},
    {"cuptiActivityPopExternalCorrelationId", offsetof(Cupti, pop_id)},
    {"cuptiActivityFlushAll", offsetof(Cupti, flush_all)},
    {"cuptiActivityGetNextRecord", offsetof(Cupti, next_record)},
    {"cuptiActivityGetNumDroppedRecords", offsetof(Cupti, dropped_records)},
};

}  // namespace

Cupti LookUpCupti(DriverLookup lookup, void* context) noexcept {
  Cupti cupti;
  for (const LibraryEntry& entry : kCuptiEntries) {
    const void* const function = SetEntry(entry, lookup, context, cupti);
    if (function == nullptr && entry.need == Need::kRequired && cupti.absent_required == nullptr) {
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
