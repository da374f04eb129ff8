// SPDX-License-Identifier: Apache-2.0
#include "tools/fellow_launchers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "daemon/ingest/launcher_files.h"
#include "proto/wire/naming.h"
#include "tools/job_launch.h"

namespace nanwatch {
namespace {

// A job's name may hold dots, a random number does not.
bool IsOfJob(std::string_view name, std::string_view job) {
  name.remove_suffix(std::string_view(wire::kLauncherSuffix).size());
  return name.substr(0, name.rfind('.')) == job;
}

}  // namespace

LauncherMark LauncherMark::Join(const std::string& segment_dir, const std::string& job) {
  LauncherMark mark;
  mark.segment_dir_ = segment_dir;
  mark.job_ = job;
  // Not the pid: those repeat among containers that share the directory.
  mark.path_ = segment_dir + "/" + job + "." + RandomJobId() + wire::kLauncherSuffix;
  // Nobody sees it before it is locked.
  const std::string unfinished = mark.path_ + ".tmp";
  UniqueFd file(open(unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return mark;
  flock(file.get(), LOCK_EX | LOCK_NB);
  if (rename(unfinished.c_str(), mark.path_.c_str()) == 0) mark.file_ = std::move(file);
  return mark;
}

LauncherMark& LauncherMark::operator=(LauncherMark&& other) noexcept {
  Leave();
  segment_dir_ = std::move(other.segment_dir_);
  job_ = std::move(other.job_);
  path_ = std::move(other.path_);
  file_ = std::move(other.file_);
  return *this;
}

int LauncherMark::OthersLive() const {
  int others = 0;
  for (const LauncherFile& file : ListLauncherFiles(segment_dir_)) {
    const std::string path = segment_dir_ + "/" + file.name;
    if (path == path_) continue;
    if (!file.is_held) {
      unlink(path.c_str());
    } else if (IsOfJob(file.name, job_)) {
      ++others;
    }
  }
  return others;
}

void LauncherMark::Leave() {
  if (file_.valid()) unlink(path_.c_str());
  file_ = UniqueFd();
}

}  // namespace nanwatch
