// SPDX-License-Identifier: Apache-2.0
#include "tools/verdict_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "daemon/base/unique_fd.h"
#include "tools/terminal.h"

namespace nanwatch {
namespace {

constexpr int kLinksMax = 40;
constexpr int kNamesTried = 16;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// /dev/stdout, /dev/fd/3 and /proc/self/fd/3 stand for something that is open already, even where
// that is a regular file.
bool IsOpenElsewhere(const std::string& path) {
  return path.starts_with("/proc/") ||
         (path.starts_with("/dev/") && !path.starts_with("/dev/shm/"));
}

// Where the links at the end of `path` lead, whether or not a file is there.
std::string FollowLinks(std::string path) {
  char link[PATH_MAX];
  for (int i = 0; i < kLinksMax && !IsOpenElsewhere(path); ++i) {
    const ssize_t length = readlink(path.c_str(), link, sizeof link);
    if (length <= 0 || static_cast<size_t>(length) == sizeof link) break;
    const std::string to(link, static_cast<size_t>(length));
    path = to[0] == '/' ? to : FolderOf(path) + to;
  }
  return path;
}

// A new file beside `target`, under a name of its own; `name` says which.
UniqueFd MakeBeside(const std::string& target, std::string& name) {
  std::random_device random;
  for (int i = 0; i < kNamesTried; ++i) {
    name =
        fmt::format("{}.nanwatch-verdict-{:08x}{:08x}.tmp", FolderOf(target), random(), random());
    UniqueFd fd(open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (fd.valid() || errno != EEXIST) return fd;
  }
  return UniqueFd();
}

bool WriteDocument(int fd, std::string_view document) {
  return WriteAll(fd, document) && (document.ends_with('\n') || WriteAll(fd, "\n"));
}

}  // namespace

VerdictFile::VerdictFile(VerdictFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      mode_(std::exchange(other.mode_, Mode::kNone)),
      fd_(std::exchange(other.fd_, -1)),
      owner_(other.owner_) {}

VerdictFile& VerdictFile::operator=(VerdictFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(target_, other.target_);
  std::swap(mode_, other.mode_);
  std::swap(fd_, other.fd_);
  std::swap(owner_, other.owner_);
  return *this;
}

VerdictFile::~VerdictFile() {
  if (fd_ >= 0) close(fd_);
}

VerdictFile VerdictFile::Open(const std::string& path, std::string& error) {
  VerdictFile file;
  if (path.empty()) return file;
  file.path_ = path;
  file.target_ = FollowLinks(path);
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  bool opened = false;
  if (path == "-") {
    // A duplicate, because the command must not inherit what we write to.
    file.mode_ = Mode::kStream;
    file.fd_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    opened = file.fd_ >= 0;
  } else if (IsOpenElsewhere(file.target_) || path.ends_with('/') ||
             (exists && !S_ISREG(status.st_mode))) {
    file.mode_ = Mode::kStream;
    file.fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    opened = file.fd_ >= 0;
  } else {
    opened = file.OpenRegular();
  }
  if (!opened) {
    error = "the verdict cannot be written to '" + path + "' (" + strerror(errno) +
            "): nothing was started; give --verdict a file in a directory that exists and is yours";
  }
  return file;
}

// False with errno when it can be written neither beside its name nor in place.
bool VerdictFile::OpenRegular() {
  fd_ = open(target_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0 && errno != ENOENT) return false;
  std::string probe;
  const bool takes_files = MakeBeside(target_, probe).valid();
  const int error = errno;
  if (takes_files) unlink(probe.c_str());
  if (fd_ < 0) {
    mode_ = Mode::kReplace;
    errno = error;
    return takes_files;
  }
  if (takes_files && TakeAway()) {
    mode_ = Mode::kReplace;
    close(std::exchange(fd_, -1));
    return true;
  }
  mode_ = Mode::kInPlace;
  return Overwrite("");
}

// Removes an older verdict, if one with the same owner and permissions can take its place. Another
// launcher may have been faster.
bool VerdictFile::TakeAway() {
  struct stat status {};
  if (fstat(fd_, &status) != 0) return false;
  if (status.st_nlink == 0) return true;
  if (status.st_nlink > 1 || (status.st_uid != geteuid() && geteuid() != 0)) return false;
  if (unlink(target_.c_str()) != 0 && errno != ENOENT) return false;
  owner_ = Owner{status.st_mode & 07777u, status.st_uid, status.st_gid};
  return true;
}

bool VerdictFile::Replace(std::string_view document) const {
  std::string name;
  const UniqueFd fd = MakeBeside(target_, name);
  if (!fd.valid()) return false;
  std::optional<Owner> owner = owner_;
  struct stat status {};
  if (lstat(target_.c_str(), &status) == 0 && S_ISREG(status.st_mode))
    owner = Owner{status.st_mode & 07777u, status.st_uid, status.st_gid};
  // The group is kept where the kernel allows it; the owner is ours, or we are root.
  bool made = true;
  if (owner.has_value()) {
    if (fchown(fd.get(), owner->uid, owner->gid) != 0) made = owner->uid == geteuid();
    made = made && fchmod(fd.get(), owner->mode) == 0;
  }
  if (made && WriteDocument(fd.get(), document) && rename(name.c_str(), target_.c_str()) == 0)
    return true;
  const int error = errno;
  unlink(name.c_str());
  errno = error;
  return false;
}

// Launchers of this version take turns; a reader may see what is half written.
bool VerdictFile::Overwrite(std::string_view document) {
  while (flock(fd_, LOCK_EX) != 0) {
    if (errno != EINTR) break;  // no locks on this file system: then without
  }
  const bool written = ftruncate(fd_, 0) == 0 && lseek(fd_, 0, SEEK_SET) == 0 &&
                       (document.empty() || WriteDocument(fd_, document));
  const int error = errno;
  flock(fd_, LOCK_UN);
  errno = error;
  return written;
}

std::string VerdictFile::Write(std::string_view document) {
  bool written = true;
  if (mode_ == Mode::kStream) written = WriteDocument(fd_, document);
  if (mode_ == Mode::kInPlace) written = Overwrite(document);
  if (mode_ == Mode::kReplace) written = Replace(document);
  if (written) return "";
  return "the verdict could not be written to '" + path_ + "': " + strerror(errno);
}

}  // namespace nanwatch
