#include "tools/job_exit.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "daemon/base/unique_fd.h"
#include "proto/wire/naming.h"
#include "tools/terminal.h"

namespace nanwatch {

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
  const std::string path = segment_dir + "/" + job + wire::kExitSuffix;
  const std::string unfinished = path + "." + std::to_string(getpid()) + ".tmp";
  UniqueFd fd(
      open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot create " + unfinished);
  if (!WriteAll(fd.get(), JobExitText(job, pid, end, ended_real_ns)) ||
      rename(unfinished.c_str(), path.c_str()) != 0) {
    const Status failure = Status::FromErrno(errno, "cannot write " + path);
    unlink(unfinished.c_str());
    return failure;
  }
  return {};
}

}  // namespace nanwatch
