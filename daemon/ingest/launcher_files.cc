// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/launcher_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>

#include <memory>
#include <string_view>

#include "daemon/base/unique_fd.h"
#include "proto/wire/naming.h"

namespace nanwatch {
namespace {

// A launcher holds an exclusive lock.
bool IsHeld(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file.valid() && flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

}  // namespace

std::vector<LauncherFile> ListLauncherFiles(const std::string& segment_dir) {
  std::vector<LauncherFile> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(segment_dir.c_str()), closedir);
  while (directory != nullptr) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    if (!std::string_view(entry->d_name).ends_with(wire::kLauncherSuffix)) continue;
    files.push_back({.name = entry->d_name, .is_held = IsHeld(segment_dir + "/" + entry->d_name)});
  }
  return files;
}

}  // namespace nanwatch
