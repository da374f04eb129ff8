// SPDX-License-Identifier: Apache-2.0
#include "tools/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "daemon/base/unique_fd.h"
#include "tools/terminal.h"

namespace nanwatch {
namespace {

Status Failure(const std::string& path, int error) {
  std::string advice = "name a file in a directory that exists and that you may write to";
  if (error == ENOSPC || error == EDQUOT)
    advice = "make room there, or name a file on another file system";
  if (error == EFBIG) advice = "raise the limit on the size of files ('ulimit -f')";
  return {Status::FromErrno(error, "").kind(),
          "'" + path + "' could not be written (" + strerror(error) + "): " + advice};
}

// Where links lead, so that the file that a link names is replaced, and not the link.
std::string TargetOf(const std::string& path) {
  char* const real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string target = real;
  std::free(real);
  return target;
}

bool WriteBeside(const std::string& target, std::string_view content, mode_t mode) {
  // A name that no reader takes for one of its files (TensorBoard searches for "tfevents").
  const size_t slash = target.rfind('/');
  std::string name =
      target.substr(0, slash == std::string::npos ? 0 : slash + 1) + ".nanwatch-XXXXXX.tmp";
  const UniqueFd fd(mkostemps(name.data(), 4, O_CLOEXEC));
  if (!fd.valid()) return false;
  if (WriteAll(fd.get(), content) && fchmod(fd.get(), mode) == 0 &&
      rename(name.c_str(), target.c_str()) == 0)
    return true;
  const int error = errno;
  unlink(name.c_str());
  errno = error;
  return false;
}

bool WriteStream(const std::string& path, std::string_view content) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.valid() && WriteAll(fd.get(), content);
}

// Only by setting it can the mask be read.
mode_t FileMode() {
  const mode_t mask = umask(0077);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

Status WriteOutputFile(const std::string& path, std::string_view content) {
  errno = 0;
  if (path == "-") {
    if (WriteAll(STDOUT_FILENO, content)) return {};
    return {ErrorKind::kIo, "standard output could not be written to: " + WhyNotWritten(errno)};
  }
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return Failure(path, EISDIR);
  const bool written =
      exists && !S_ISREG(status.st_mode)
          ? WriteStream(path, content)
          : WriteBeside(TargetOf(path), content, exists ? status.st_mode & 0777u : FileMode());
  return written ? Status() : Failure(path, errno);
}

}  // namespace nanwatch
