// A process as the entry library would describe it, with a segment that goes with the test: facts in, records out.
#pragma once

#include <string>
#include <vector>

#include "proto/wire/ring.h"
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
  wire::Clocks clocks{};
  wire::Clocks Now() noexcept override { return clocks; }
};

}  // namespace nanwatch
