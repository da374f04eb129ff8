#include "tools/verdict_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/terminal.h"

namespace nanwatch {

VerdictFile::VerdictFile(VerdictFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

VerdictFile& VerdictFile::operator=(VerdictFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

VerdictFile::~VerdictFile() {
  if (fd_ >= 0) close(fd_);
}

VerdictFile VerdictFile::Open(const std::string& path, std::string& error) {
  VerdictFile file;
  if (path.empty()) return file;
  file.path_ = path;
  // A duplicate, because the command must not inherit what we write to.
  file.fd_ = path == "-" ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                         : open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file.fd_ < 0) {
    error = "the verdict cannot be written to '" + path + "' (" + strerror(errno) +
            "): nothing was started; give --verdict a file in a directory that exists and is yours";
  }
  return file;
}

std::string VerdictFile::Write(std::string_view document) {
  if (fd_ < 0) return "";
  if (WriteAll(fd_, document) && (document.ends_with('\n') || WriteAll(fd_, "\n"))) return "";
  return "the verdict could not be written to '" + path_ + "': " + strerror(errno);
}

}  // namespace nanwatch
