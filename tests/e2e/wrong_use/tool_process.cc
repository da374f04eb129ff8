// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/wrong_use/tool_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tools/daemon_start.h"

namespace nanwatch {
namespace {

constexpr unsigned kSecondsMax = 300;

[[noreturn]] void Become(const std::string& executable, const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& variables,
                         const TemporaryDirectory& home) {
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(open(home.Path("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
  dup2(open(home.Path("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  for (const auto& [name, value] : variables) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  std::vector<char*> words = {const_cast<char*>(executable.c_str())};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  alarm(kSecondsMax);  // survives exec
  execv(words[0], words.data());
  _exit(200);
}

}  // namespace

std::string PreloadLibrary() {
  return std::filesystem::path(NANWATCH_TOOL).parent_path().parent_path() / "lib/libnanwatch.so";
}

Tool::Tool() {
  variables_ = {{"HOME", home_.path()},
                {"NANWATCH_DIR", SegmentDir()},
                {"NANWATCH_STATE_DIR", home_.Path("state")},
                {"NANWATCH_JOB", ""},
                {"NANWATCH_LEVEL", ""},
                {"NANWATCH_BUDGET", ""},
                {"NANWATCH_ON_ANOMALY", ""},
                {"NANWATCH", ""},
                {"LD_PRELOAD", ""},
                {"NO_COLOR", ""},
                {"TERM", "xterm"}};
}

Tool::~Tool() {
  const pid_t daemon = RunningDaemon(SegmentDir()).value_or(0);
  if (daemon <= 0) return;
  kill(daemon, SIGTERM);
  for (int i = 0; i < 5000 && kill(daemon, 0) == 0; ++i) usleep(1000);
}

Tool& Tool::With(const std::string& name, const std::string& value) {
  variables_[name] = value;
  return *this;
}

Tool& Tool::As(const std::string& executable) {
  executable_ = executable;
  return *this;
}

ToolResult Tool::Run(const std::vector<std::string>& arguments) {
  const pid_t pid = fork();
  if (pid == 0) Become(executable_, arguments, variables_, home_);
  int status = 0;
  waitpid(pid, &status, 0);
  ToolResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.out = home_.Read("out");
  result.err = home_.Read("err");
  return result;
}

ToolResult Tool::RunScript(const std::string& script) {
  return Run({"run", "--", "/bin/sh", "-c", script});
}

}  // namespace nanwatch
