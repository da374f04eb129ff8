// SPDX-License-Identifier: Apache-2.0
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
//
// The file is as long as its layout says and has holes; pages are made as sections grow (Room), and
// never so many that others in the file system are hurt (file_room.h). A store to a page that
// somebody has taken away ends nothing (bus_guard.h).
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include <atomic>
#include <mutex>

#include "proto/wire/naming.h"
#include "proto/wire/section_room.h"
#include "proto/wire/segment.h"
#include "shim/host/segment_layout.h"
#include "shim/host/segment_report.h"
#include "shim/host/segment_rooms.h"

namespace nanwatch {

struct SegmentOptions {
  wire::Level level = wire::Level::kIdle;
  const char* torch_version = "";
  const char* python_version = "";  // "" in a C++ program
  int32_t forked_from = 0;  // pid of the observed process that this one was forked from, else 0
  bool late = false;        // the process ran already when the observer came
  // By torch.distributed, where no launcher has left variables that say so. 0 processes: not known.
  int32_t rank = 0;
  int32_t world_size = 0;
  const char* directory = nullptr;  // instead of NANWATCH_DIR and its default
  SegmentLayout layout = kSegmentLayout;
  bool sweeps = false;  // first removes what dead processes left in the directory
};

class Segment {
 public:
  // Makes the segment of the calling process: directory (made 0700 if missing; refused if it could
  // be somebody else's), file, header, lock, final name. nullptr, with the reason in `report`, when
  // there can be none, also where it would take more than a quarter of the room that is left;
  // `nanwatch run` then finds a mark (wire::kUnwatchedSuffix). May be called again in a forked
  // child, which gets a segment of its own.
  [[nodiscard]] static Segment* Create(const SegmentOptions& options,
                                       SegmentReport& report) noexcept;

  // Whether the file still has its name, its length and its header. Three system calls; a few more
  // when the program has closed our descriptor, which is then opened anew. Takes the lock again if
  // it was lost. Not in a forked child.
  [[nodiscard]] bool StillThere() noexcept;
  // Whether what it held is gone, wholly or in part: somebody cut the file short or wrote over it.
  // Valid from a StillThere() that said no to the next.
  [[nodiscard]] bool ContentIsLost() const noexcept { return content_lost_; }

  // After StillThere() said no (logind and tidy administrators remove files under running jobs):
  // makes directory and file anew, with the same identity, name and content, and maps it at the
  // same addresses, so that every pointer stays valid. Content that is lost is zeros but for the
  // header: the caller writes again what it knows. Between the copy and the new mapping lies a
  // window in which a store would go to the old file only and be lost, a reservation in the ring
  // for good: the caller keeps its writers out meanwhile (Emitter does). Requests that a tool
  // writes into the control block in the window are lost. On failure everything is as it was.
  SegmentReport Remake() noexcept;

  // The process ends in an orderly way. Removes the file where nobody waits for it and it holds
  // nothing to tell. Returns whether it was removed. Nothing may be published afterwards, and the
  // file is not made anew.
  bool Retire(bool has_something_to_tell) noexcept;

  [[nodiscard]] wire::SectionRoom* room(Room which) noexcept {
    return &rooms_[static_cast<int>(which)];
  }

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
  static void Grow(void* self, wire::SectionRoom& room, uint64_t wanted);
  template <typename T>
  T* At(uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);
  }
  bool Make(int directory, const SegmentOptions& options, SegmentReport& report) noexcept;
  void PlanRooms() noexcept;
  bool IsOurs(const struct stat& status) const noexcept;
  bool HoldsOurHeader() const noexcept;
  int MakeFile(int directory, const char* name) noexcept;
  int MakeFirstPages(int fd) const noexcept;
  int GrowBy(wire::SectionRoom& room, uint64_t next) noexcept;
  bool Reopen() noexcept;
  bool Replace(int directory, int fd, const char* tmp, const char* seg) noexcept;
  bool CopyTo(int fd) const noexcept;
  void FillSections(unsigned char* base) const noexcept;

  unsigned char* base_ = nullptr;
  SegmentMap map_{};
  uint64_t ignore_ = 0;  // offset of the user's rules; 0: there are none
  wire::SectionRoom rooms_[kRooms];
  std::mutex file_mutex_;  // around fd_ and growth
  wire::SegmentHeader header_copy_{};
  int guard_ = -1;  // bus_guard's number
  bool content_lost_ = false;
  std::atomic<bool> retired_{false};
  int fd_ = -1;  // holds the lock; close-on-exec
  dev_t device_ = 0;
  ino_t inode_ = 0;
  char directory_[wire::kDirPathMax + 1] = "";
  char path_[256] = "";
};

}  // namespace nanwatch
