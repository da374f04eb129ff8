// SPDX-License-Identifier: Apache-2.0
// NANWATCH_DIR as the daemon sees it: which files it has, and when that may have changed.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/base/unique_fd.h"

namespace nanwatch {

// Names, without the directory, sorted.
struct SegmentListing {
  std::vector<std::string> segments;  // *.seg
  std::vector<std::string>
      unfinished;                  // nw-*.tmp: segments under construction, or what is left of them
  std::vector<std::string> exits;  // *.exit, of this place
};

[[nodiscard]] Result<SegmentListing> ListSegments(const std::string& directory);

// A file among the segments that cannot be read as one.
struct UnreadableFile {
  std::string name;
  std::string reason;  // "written in wire format 2.0, ..."

  bool operator==(const UnreadableFile&) const = default;
};
// For `ps` and `doctor`; reads every header, changes nothing.
[[nodiscard]] std::vector<UnreadableFile> ListUnreadable(const std::string& directory);

// inotify on the directory. An event only means "list it again", so a lost event costs time and
// nothing else.
class SegmentDirectoryWatch {
 public:
  static Result<SegmentDirectoryWatch> Open(const std::string& directory);

  // Readable when there is something for TakeChange().
  [[nodiscard]] int fd() const { return inotify_.get(); }

  enum class Change { kNone, kContents, kDirectoryGone };
  // Empties the queue. Never blocks.
  [[nodiscard]] Change TakeChange();

 private:
  explicit SegmentDirectoryWatch(UniqueFd inotify) : inotify_(std::move(inotify)) {}
  UniqueFd inotify_;
};

}  // namespace nanwatch
