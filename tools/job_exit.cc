// SPDX-License-Identifier: Apache-2.0
#include "tools/job_exit.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "daemon/base/directories.h"
#include "daemon/base/unique_fd.h"
#include "tools/terminal.h"

namespace nanwatch {
namespace {

// `name` where that is free, else `otherwise`.
bool TakeName(const std::string& unfinished, const std::string& name,
              const std::string& otherwise) {
  if (link(unfinished.c_str(), name.c_str()) != 0) {
    return rename(unfinished.c_str(), otherwise.c_str()) == 0;
  }
  unlink(unfinished.c_str());
  return true;
}

}  // namespace

std::string JobExitText(const std::string& job, pid_t pid, const CommandEnd& end,
                        uint64_t ended_real_ns) {
  const std::string exit_code = end.by_signal ? "null" : std::to_string(end.exit_code);
  const std::string signal = end.by_signal ? std::to_string(end.signal) : "null";
  // A job's id holds no character that JSON would want escaped (FindWrongUse).
  return "{\"job\": \"" + job + "\", \"pid\": " + std::to_string(pid) +
         ", \"exit_code\": " + exit_code + ", \"signal\": " + signal +
         ", \"ended_real_ns\": " + std::to_string(ended_real_ns) + "}\n";
}

Status WriteJobExit(const std::string& segment_dir, const std::string& job, pid_t pid,
                    const CommandEnd& end, uint64_t ended_real_ns) {
  const std::string path = segment_dir + "/" + job + ExitSuffix();
  const std::string unfinished = path + "." + std::to_string(getpid()) + ".tmp";
  UniqueFd fd(
      open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot create " + unfinished);
  if (!WriteAll(fd.get(), JobExitText(job, pid, end, ended_real_ns)) ||
      !TakeName(unfinished, path,
                segment_dir + "/" + job + "." + std::to_string(pid) + ExitSuffix())) {
    const Status failure = Status::FromErrno(errno, "cannot write " + path);
    unlink(unfinished.c_str());
    return failure;
  }
  return {};
}

}  // namespace nanwatch
