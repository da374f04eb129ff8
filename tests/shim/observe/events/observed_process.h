// SPDX-License-Identifier: Apache-2.0
// A process as the entry library would describe it, with a segment that goes with the test: facts in, records out.
#pragma once

#include <sys/mman.h>

#include <string>
#include <vector>

#include "proto/wire/name_table.h"
#include "proto/wire/ring.h"
#include "proto/wire/segment.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/events/step_clock.h"
#include "tests/shim/emit/segment_view.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {

// Of one process at a time: what it says and whether it is on is kept beside it.
class ObservedProcess {
 public:
  ObservedProcess() {
    said().clear();
    setenv("NANWATCH_DIR", place_.directory().c_str(), 1);
  }
  ~ObservedProcess() { unsetenv("NANWATCH_DIR"); }

  static std::vector<std::string>& said() {
    static std::vector<std::string> lines;
    return lines;
  }
  [[nodiscard]] const NanwatchEntry& entry() const { return entry_; }
  [[nodiscard]] bool active() const { return active_ != 0; }
  SegmentPlace& place() { return place_; }

  // As `nanwatch attach` would have it.
  void ComesLate() {
    directory_ = place_.directory();
    entry_.late_level = "full";
    entry_.late_directory = directory_.c_str();
  }

 private:
  SegmentPlace place_;
  std::string directory_;
  volatile uint32_t active_ = 1;
  NanwatchEntry entry_{.struct_bytes = sizeof(NanwatchEntry),
                       .interface_version = NANWATCH_INTERFACE_VERSION,
                       .active = &active_,
                       .active_is_wiped_by_kernel = 1,
                       .reserved = 0,
                       .torch_version = "2.11.0",
                       .libtorch_path = "",
                       .library_path = "",
                       .say = [](const char* line) { said().emplace_back(line); },
                       .late_level = nullptr,
                       .late_directory = nullptr};
};

// The one segment of a directory, mapped once more, as the daemon has it.
class MappedSegment {
 public:
  explicit MappedSegment(const SegmentPlace& place) {
    const std::string path = place.directory() + "/" + place.Files().at(0);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    bytes_ = std::filesystem::file_size(path);
    memory_ = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0);
    // `fd` stays open: to close any of a file gives its lock away (segment_file.h).
  }
  ~MappedSegment() { munmap(memory_, bytes_); }
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;

  [[nodiscard]] const wire::SegmentHeader& header() const {
    return *static_cast<const wire::SegmentHeader*>(memory_);
  }
  template <class Reader>
  [[nodiscard]] Reader Read(wire::SectionType type) const {
    const wire::SectionEntry& section = header().sections[static_cast<uint32_t>(type) - 1];
    return *Reader::Open(static_cast<const char*>(memory_) + section.offset, section.size);
  }
  [[nodiscard]] std::string Name(uint32_t id) const {
    return Read<wire::NameReader>(wire::SectionType::kNames).Get(id);
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

class RecordingLevel final : public LevelRequests {
 public:
  wire::Level asked = wire::Level::kCanary;
  std::vector<const wire::ControlBlock*> listened_to;

  [[nodiscard]] wire::Level LevelAskedFor() const noexcept override { return asked; }
  void ListenTo(const wire::ControlBlock& control) noexcept override {
    listened_to.push_back(&control);
  }
};

class FixedClock final : public StepClock {
 public:
  [[nodiscard]] bool IsNewestRootOlder() noexcept override { return false; }
  [[nodiscard]] bool ThreadsTrain() const noexcept override { return false; }
  wire::Clocks clocks{};
  uint32_t open_range = 0;
  wire::Clocks Now() noexcept override { return clocks; }
  uint32_t completed() noexcept override {
    return clocks.optimizer_ranges + clocks.plain_updates + clocks.scaler_skips;
  }
  uint32_t range() const noexcept override { return open_range; }
};

}  // namespace nanwatch
