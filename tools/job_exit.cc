// SPDX-License-Identifier: Apache-2.0
#include "tools/job_exit.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

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
  using Json = nlohmann::ordered_json;
  const Json object = {{"job", job},
                       {"pid", pid},
                       {"exit_code", end.by_signal ? Json() : Json(end.exit_code)},
                       {"signal", end.by_signal ? Json(end.signal) : Json()},
                       {"ended_real_ns", ended_real_ns}};
  return object.dump() + "\n";
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
