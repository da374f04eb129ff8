// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/live_launchers.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>

#include <memory>
#include <string_view>

#include "daemon/base/unique_fd.h"
#include "proto/wire/naming.h"

namespace nanwatch {
namespace {

// A launcher holds an exclusive lock. Asking for a shared one disturbs no other who asks.
bool IsHeld(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file.valid() && flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

}  // namespace

bool AnyLauncherLives(const std::string& segment_dir) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(segment_dir.c_str()), closedir);
  while (directory != nullptr) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    if (std::string_view(entry->d_name).ends_with(wire::kLauncherSuffix) &&
        IsHeld(segment_dir + "/" + entry->d_name))
      return true;
  }
  return false;
}

}  // namespace nanwatch
