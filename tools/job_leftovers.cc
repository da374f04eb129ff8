// SPDX-License-Identifier: Apache-2.0
#include "tools/job_leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>

#include "daemon/base/unique_fd.h"
#include "proto/wire/naming.h"
#include "proto/wire/text.h"
#include "tools/whole_file.h"

namespace nanwatch {
namespace {

constexpr char kKeptPrefix[] = "unwatched-";
constexpr time_t kKeptSeconds = 90 * 24 * 3600;
constexpr size_t kMarkBytesMax = 1024;
constexpr size_t kKeptMax = 1024;  // processes of one job

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory.c_str()), closedir);
  if (stream == nullptr) return names;
  while (const dirent* entry = readdir(stream.get())) names.emplace_back(entry->d_name);
  return names;
}

// The pid in "<job>.<pid>.unwatched"; 0: no such name.
int32_t PidOfMark(std::string_view name, const std::string& job) {
  const std::string_view suffix = wire::kUnwatchedSuffix;
  if (!name.starts_with(job + ".") || !name.ends_with(suffix)) return 0;
  name.remove_prefix(job.size() + 1);
  if (name.size() <= suffix.size()) return 0;
  name.remove_suffix(suffix.size());
  int32_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc() && end == name.data() + name.size() ? std::max(pid, 0) : 0;
}

// "reason" or "reason detail"; an empty mark is that of an older library, which had no room.
UnwatchedProcess ParseMark(int32_t pid, const std::string& line) {
  UnwatchedProcess process;
  const size_t space = line.find(' ');
  process.set_pid(pid);
  process.set_reason(line.empty() ? "no_room" : wire::CleanText(line.substr(0, space)));
  if (space != std::string::npos) process.set_detail(wire::CleanText(line.substr(space + 1)));
  return process;
}

std::string ReadMark(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::string text(kMarkBytesMax, '\0');
  const ssize_t got = fd.valid() ? read(fd.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text.substr(0, text.find('\n'));
}

bool Lives(int32_t pid) { return kill(pid, 0) == 0 || errno == EPERM; }

std::string KeptPath(const Places& places, const std::string& job) {
  return places.state_dir + "/" + kKeptPrefix + job;
}

void RemoveOldKept(const std::string& state_dir) {
  const time_t now = time(nullptr);
  for (const std::string& name : NamesIn(state_dir)) {
    struct stat status {};
    const std::string path = state_dir + "/" + name;
    if (!name.starts_with(kKeptPrefix) || lstat(path.c_str(), &status) != 0) continue;
    if (S_ISREG(status.st_mode) && now - status.st_mtime > kKeptSeconds) unlink(path.c_str());
  }
}

bool WriteKept(const std::string& path, const std::vector<UnwatchedProcess>& unwatched) {
  std::string text;
  for (const UnwatchedProcess& process : unwatched) {
    text += std::to_string(process.pid()) + " " + process.reason() +
            (process.detail().empty() ? "" : " " + process.detail()) + "\n";
  }
  return WriteWholeFile(path, text);
}

}  // namespace

std::vector<UnwatchedProcess> UnwatchedOfJob(const Places& places, const std::string& job) {
  std::map<int32_t, UnwatchedProcess> by_pid;
  for (const std::string& name : NamesIn(places.segment_dir)) {
    const int32_t pid = PidOfMark(name, job);
    if (pid <= 0 || Lives(pid)) continue;
    by_pid[pid] = ParseMark(pid, ReadMark(places.segment_dir + "/" + name));
  }
  std::ifstream kept(KeptPath(places, job));
  for (std::string line; by_pid.size() < kKeptMax && std::getline(kept, line);) {
    std::istringstream words(line);
    int32_t pid = 0;
    std::string mark;
    if (words >> pid && std::getline(words >> std::ws, mark)) by_pid[pid] = ParseMark(pid, mark);
  }
  std::vector<UnwatchedProcess> unwatched;
  for (const auto& [pid, process] : by_pid) unwatched.push_back(process);
  return unwatched;
}

void KeepUnwatched(const Places& places, const std::string& job,
                   const std::vector<UnwatchedProcess>& unwatched) {
  if (unwatched.empty() || places.state_dir.empty()) return;
  RemoveOldKept(places.state_dir);
  if (!WriteKept(KeptPath(places, job), unwatched)) return;
  for (const UnwatchedProcess& process : unwatched) {
    const std::string mark = job + "." + std::to_string(process.pid()) + wire::kUnwatchedSuffix;
    unlink((places.segment_dir + "/" + mark).c_str());
  }
}

void RemoveReadSegments(Observations& observations, const std::string& job) {
  for (const SeenRun& run : observations.RunsOfJob(job)) {
    if (run.has_segment && !run.live && run.was_whole)
      unlink(observations.SegmentPathOf(run).c_str());
  }
  unlink((observations.places().segment_dir + "/" + job + wire::kExitSuffix).c_str());
  for (const std::string& path : observations.ExitFilesOfJob(job)) unlink(path.c_str());
}

}  // namespace nanwatch
