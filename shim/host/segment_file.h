// The segment of this process: made, kept in place, and handed out as typed pointers.
//
// Everything here is for the life of the process and is leaked on purpose: the order of exit
// handlers is undefined, and the daemon reads the file after we are gone. Nothing throws, nothing
// prints: failures are a sentence in a SegmentReport, which says what to do and which the caller
// may show once.
//
// The file is locked (POSIX record lock on byte 0) as long as the process lives. The lock belongs
// to the process: a forked child does not hold it, so a dead parent is seen as dead although the
// child lives on. It is lost if anything in the process closes any descriptor of the file;
// StillThere() takes it again.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "proto/wire/naming.h"
#include "proto/wire/segment.h"
#include "shim/host/segment_layout.h"
#include "shim/host/segment_report.h"

namespace nanwatch {

struct SegmentOptions {
  wire::Level level = wire::Level::kIdle;
  const char* torch_version = "";
  const char* python_version = "";  // "" in a C++ program
  int32_t forked_from = 0;  // pid of the observed process that this one was forked from, else 0
  bool late = false;        // the process ran already when the observer came
  const char* directory = nullptr;  // instead of NANWATCH_DIR and its default
  SegmentLayout layout = kSegmentLayout;
};

class Segment {
 public:
  // Makes the segment of the calling process: directory (made 0700 if missing; refused if it could
  // be somebody else's), file, header, lock, final name. A tmpfs without room for the layout gets
  // one of a quarter the size. nullptr, with the reason in `report`, when there can be none. May be
  // called again in a forked child, which gets a segment of its own.
  [[nodiscard]] static Segment* Create(const SegmentOptions& options,
                                       SegmentReport& report) noexcept;

  // Whether the file still has its name. Two system calls; a few more when the program has closed
  // our descriptor, which is then opened anew. Takes the lock again if it was lost. Not in a forked
  // child.
  [[nodiscard]] bool StillThere() noexcept;

  // After StillThere() said no (logind and tidy administrators remove files under running jobs):
  // makes directory and file anew, with the same identity, name and content, and maps it at the
  // same addresses, so that every pointer stays valid. Between the copy and the new mapping lies a
  // window in which a store would go to the old file only and be lost, a reservation in the ring
  // for good: the caller keeps its writers out meanwhile (Emitter does). Requests that a tool
  // writes into the control block in the window are lost. On failure everything is as it was.
  SegmentReport Remake() noexcept;

  [[nodiscard]] wire::SegmentHeader& header() const noexcept { return *At<wire::SegmentHeader>(0); }
  [[nodiscard]] wire::LiveBlock& live() const noexcept { return *At<wire::LiveBlock>(map_.live); }
  [[nodiscard]] wire::ControlBlock& control() const noexcept {
    return *At<wire::ControlBlock>(map_.control);
  }
  [[nodiscard]] wire::RingHeader* ring() const noexcept { return At<wire::RingHeader>(map_.ring); }
  [[nodiscard]] wire::Slot* slots() const noexcept {
    return At<wire::Slot>(map_.ring + sizeof(wire::RingHeader));
  }
  [[nodiscard]] wire::StepRingHeader* steps() const noexcept {
    return At<wire::StepRingHeader>(map_.steps);
  }
  [[nodiscard]] wire::StepRingHeader* telemetry() const noexcept {
    return At<wire::StepRingHeader>(map_.telemetry);
  }
  [[nodiscard]] wire::StepRingHeader* trails() const noexcept {
    return At<wire::StepRingHeader>(map_.trails);
  }
  [[nodiscard]] wire::StepRingHeader* stats() const noexcept {
    return At<wire::StepRingHeader>(map_.stats);
  }
  [[nodiscard]] wire::FirstFinding* first() const noexcept {
    return At<wire::FirstFinding>(map_.first);
  }
  [[nodiscard]] wire::FirstReach* reach() const noexcept {
    return At<wire::FirstReach>(map_.reach);
  }
  [[nodiscard]] wire::SiteTableHeader* sites() const noexcept {
    return At<wire::SiteTableHeader>(map_.sites);
  }
  [[nodiscard]] wire::NameTableHeader* names() const noexcept {
    return At<wire::NameTableHeader>(map_.names);
  }

  // The sizes in force: the ones asked for, or a quarter of them.
  [[nodiscard]] const SegmentLayout& layout() const noexcept { return map_.layout; }
  // "<directory>/nw-<pid>-<nonce>.seg".
  [[nodiscard]] const char* path() const noexcept { return path_; }
  [[nodiscard]] const char* directory() const noexcept { return directory_; }

 private:
  Segment() = default;
  template <typename T>
  T* At(uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);
  }
  bool Make(int directory, const SegmentOptions& options, SegmentReport& report) noexcept;
  bool Reopen() noexcept;
  bool Replace(int directory, int fd, const char* tmp, const char* seg) noexcept;

  unsigned char* base_ = nullptr;
  SegmentMap map_{};
  int fd_ = -1;  // holds the lock; close-on-exec
  dev_t device_ = 0;
  ino_t inode_ = 0;
  char directory_[wire::kDirPathMax + 1] = "";
  char path_[256] = "";
};

}  // namespace nanwatch
