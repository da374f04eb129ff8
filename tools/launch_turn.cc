// SPDX-License-Identifier: Apache-2.0
#include "tools/launch_turn.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "daemon/base/unique_fd.h"
#include "proto/wire/launch.h"
#include "proto/wire/launchers.h"

namespace nanwatch {
namespace {

constexpr int kTurnsMax = 1000;
constexpr char kSuffix[] = ".turn";
constexpr time_t kTurnKeptSeconds = 60 * 24 * 3600;

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Rank and attempt of this `run`; "" where the launcher does not say. Slurm comes first here: its
// step names the launch whatever else is set (LaunchOfRank).
std::string RankAndAttempt(const EnvironmentBlock& environment) {
  std::string rank = environment.Text(wire::kSlurmRank.rank);
  for (const wire::RankVariables& launcher : wire::kRankVariables) {
    if (rank.empty()) rank = environment.Text(launcher.rank);
  }
  if (!IsNumber(rank)) return "";
  std::string attempt;
  for (const char* name : wire::kAttemptVariables) {
    if (attempt.empty()) attempt = environment.Text(name);
  }
  return rank + "-" + (IsNumber(attempt) ? attempt : "0");
}

// What launches of long ago have left.
void RemoveOld(const std::string& segment_dir) {
  const time_t now = time(nullptr);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(segment_dir, error)) {
    struct stat status {};
    const std::string path = entry.path();
    if (!path.ends_with(kSuffix) || lstat(path.c_str(), &status) != 0) continue;
    if (S_ISREG(status.st_mode) && now - status.st_mtime > kTurnKeptSeconds) unlink(path.c_str());
  }
}

}  // namespace

std::string JobOfLaunch(const EnvironmentBlock& environment, const std::string& segment_dir) {
  const wire::LaunchId launch = wire::LaunchOfRank([&](const std::string& name) -> const char* {
    for (const std::string& assignment : environment.Assignments()) {
      if (assignment.starts_with(name + "=")) return assignment.c_str() + name.size() + 1;
    }
    return nullptr;
  });
  if (!launch.known()) return "";
  const std::string id = launch.text;
  const std::string rank = RankAndAttempt(environment);
  if (rank.empty()) return id;
  RemoveOld(segment_dir);
  for (int turn = 1; turn <= kTurnsMax; ++turn) {
    std::string job = turn == 1 ? id : id.substr(0, 58) + "-" + std::to_string(turn);
    const std::string path = segment_dir + "/" + job + "." + rank + kSuffix;
    const UniqueFd made(
        open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (made.valid() || errno != EEXIST) return job;
  }
  return id;
}

bool SpeaksForRanks(const EnvironmentBlock& environment) {
  for (const wire::RankVariables& launcher : wire::kRankVariables) {
    std::string rank = environment.Text(launcher.local_rank);
    if (rank.empty()) rank = environment.Text(launcher.rank);
    if (IsNumber(rank)) return rank.find_first_not_of('0') == std::string::npos;
  }
  return true;
}

}  // namespace nanwatch
