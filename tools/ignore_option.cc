// SPDX-License-Identifier: Apache-2.0
#include "tools/ignore_option.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "daemon/base/status.h"
#include "daemon/base/unique_fd.h"
#include "proto/wire/ignore_section.h"

namespace nanwatch {
namespace {

// At most one byte more than a segment carries, so that too many are noticed.
Result<std::string> ReadRules(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot open it");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Status(ErrorKind::kInvalid, "it is not a regular file");
  }
  std::string text(wire::kIgnoreBytesMax + 1, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, "cannot read it");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace

IgnoreText ReadIgnoreOptions(const std::vector<std::string>& given) {
  IgnoreText read;
  for (const std::string& option : given) {
    std::string text = option;
    if (option.starts_with('@')) {
      const std::string path = option.substr(1);
      const Result<std::string> rules = ReadRules(path);
      if (!rules.ok()) {
        read.problems.push_back("the rules in '" + path +
                                "' are not applied: " + rules.status().message());
        continue;
      }
      text = *rules;
    }
    if (!text.empty()) read.text += text + (text.ends_with('\n') ? "" : "\n");
  }
  return read;
}

}  // namespace nanwatch
