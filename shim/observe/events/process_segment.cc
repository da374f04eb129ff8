// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/process_segment.h"

#include <dlfcn.h>

#include <cstddef>
#include <new>

#include "shim/observe/torch/op_table.h"
#include "shim/observe/torch/process_group.h"

namespace nanwatch {
namespace {

// "3.11.7"; "" in a program without Python.
const char* PythonVersion() {
  static char version[16];
  using GetVersion = const char* (*)();
  auto* get_version = reinterpret_cast<GetVersion>(dlsym(RTLD_DEFAULT, "Py_GetVersion"));
  if (get_version == nullptr) return "";
  const char* full = get_version();
  for (size_t i = 0; i + 1 < sizeof version && full[i] != ' ' && full[i] != '\0'; ++i) {
    version[i] = full[i];
  }
  return version;
}

}  // namespace

bool IsLate(const NanwatchEntry& entry) noexcept {
  // An older libnanwatch.so says nothing of it.
  return entry.struct_bytes >= offsetof(NanwatchEntry, late_directory) + sizeof(const char*) &&
         entry.late_level != nullptr;
}

Emitter* ProcessSegment::Ensure() noexcept {
  Emitter* ready = emitter();
  if (ready != nullptr) return ready;
  std::lock_guard<std::mutex> lock(mutex_);
  if (emitter() != nullptr || failed_) return emitter();
  SegmentOptions options;
  options.level = level_.LevelAskedFor();
  options.torch_version = entry_.torch_version;
  options.python_version = PythonVersion();
  options.forked_from = forked_from_;
  // A forked child is watched from its first step on.
  options.late = IsLate(entry_) && !is_forked();
  options.sweeps = true;
  const GroupPlace place = PlaceInDefaultGroup();
  options.rank = place.rank;
  options.world_size = place.size;
  if (IsLate(entry_)) options.directory = entry_.late_directory;
  SegmentReport report;
  Segment* segment = Segment::Create(options, report);
  if (report.message[0] != '\0') entry_.say(report.message);
  auto* made = segment != nullptr ? new (std::nothrow) Emitter(*segment) : nullptr;
  if (made == nullptr) {
    failed_ = true;
    *entry_.active = 0;
    return nullptr;
  }
  segment_ = segment;
  if (listens_) level_.ListenTo(segment->control());
  emitter_.store(made, std::memory_order_release);
  return made;
}

void ProcessSegment::Listen() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  listens_ = true;
  if (segment_ != nullptr) level_.ListenTo(segment_->control());
}

uint32_t ProcessSegment::NameOf(const OpTraits& op) const noexcept {
  auto& name_id = const_cast<OpTraits&>(op).name_id;
  const uint32_t known = name_id.load(std::memory_order_relaxed);
  Emitter* ready = emitter();
  if (known != 0 || ready == nullptr || op.name == nullptr) return known;
  const uint32_t made = ready->Intern(op.name);
  name_id.store(made, std::memory_order_relaxed);
  return made;
}

}  // namespace nanwatch
