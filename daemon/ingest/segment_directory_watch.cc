// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/segment_directory_watch.h"

#include <dirent.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "daemon/base/directories.h"
#include "daemon/ingest/segment_file.h"
#include "proto/wire/naming.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

// IN_DELETE, because IN_DELETE_SELF of a directory waits until the last of its files is closed, and
// the daemon itself has some of them open.
constexpr uint32_t kEvents = IN_MOVED_TO | IN_CREATE | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM |
                             IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

}  // namespace

Result<SegmentListing> ListSegments(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory.c_str()), closedir);
  if (stream == nullptr) return Status::FromErrno(errno, "cannot list " + directory);
  const std::string exit_suffix = ExitSuffix();
  SegmentListing listing;
  while (const dirent* entry = readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name.ends_with(wire::kSegmentSuffix)) {
      listing.segments.emplace_back(name);
    } else if (name.ends_with(exit_suffix)) {
      listing.exits.emplace_back(name);
    } else if (name.starts_with(wire::kSegmentPrefix) && name.ends_with(wire::kSegmentTmpSuffix)) {
      listing.unfinished.emplace_back(name);
    }
  }
  for (auto* names : {&listing.segments, &listing.unfinished, &listing.exits}) {
    std::sort(names->begin(), names->end());
  }
  return listing;
}

std::vector<UnreadableFile> ListUnreadable(const std::string& directory) {
  std::vector<UnreadableFile> unreadable;
  const Result<SegmentListing> listing = ListSegments(directory);
  if (!listing.ok()) return unreadable;
  for (const std::string& name : listing->segments) {
    const Result<SegmentFile> file = SegmentFile::Open(directory + "/" + name, /*writable=*/false);
    if (file.ok() || file.status().kind() == ErrorKind::kNotFound) continue;
    unreadable.push_back({wire::CleanText(name), file.status().message()});
  }
  return unreadable;
}

Result<SegmentDirectoryWatch> SegmentDirectoryWatch::Open(const std::string& directory) {
  UniqueFd inotify(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify.valid()) return Status::FromErrno(errno, "inotify");
  if (inotify_add_watch(inotify.get(), directory.c_str(), kEvents) < 0) {
    return Status::FromErrno(errno, "cannot watch " + directory);
  }
  return SegmentDirectoryWatch(std::move(inotify));
}

SegmentDirectoryWatch::Change SegmentDirectoryWatch::TakeChange() {
  alignas(inotify_event) char buffer[16 * 1024];
  Change change = Change::kNone;
  while (true) {
    const ssize_t got = read(inotify_.get(), buffer, sizeof buffer);
    if (got <= 0) return change;
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      const bool gone =
          (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) != 0;
      change = std::max(change, gone ? Change::kDirectoryGone : Change::kContents);
      at += static_cast<ssize_t>(sizeof(inotify_event)) + event->len;
    }
  }
}

}  // namespace nanwatch
