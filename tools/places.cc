// SPDX-License-Identifier: Apache-2.0
#include "tools/places.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "daemon/ingest/segment_directory_watch.h"
#include "proto/wire/place.h"
#include "proto/wire/segment.h"
#include "tools/daemon_start.h"
#include "tools/user_name.h"

namespace nanwatch {

std::string DatabaseOfProcess(int pid) {
  const std::string file = "/" + std::filesystem::path(DatabasePath("/")).filename().string();
  std::error_code error;
  const std::string descriptors = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(descriptors, error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (!error && target.ends_with(file)) return target;
  }
  return "";
}

namespace {

void UseDatabase(const std::string& database, Places& places) {
  places.database = database;
  places.state_dir = std::filesystem::path(database).parent_path();
  places.state_status = {};
}

// Whether NANWATCH_STATE_DIR names a database that exists.
bool IsChosen(const Environment& environment, const Places& places) {
  return !environment(wire::kEnvStateDir).empty() && access(places.database.c_str(), F_OK) == 0;
}

std::string AdviceFor(ErrorKind kind, const std::string& database) {
  switch (kind) {
    case ErrorKind::kBusy:
      return ": another process holds it, try again ('fuser " + database + "' names that process)";
    case ErrorKind::kCorrupt:
      return ": move it away, or set NANWATCH_STATE_DIR to another directory";
    case ErrorKind::kPermission:
      return ": it has to be your own file in a directory of your own";
    case ErrorKind::kFull:
      return ": make room there";
    case ErrorKind::kResources:
    case ErrorKind::kIo:
      return ": try again, and see whether the file system there is in order ('dmesg')";
    default:
      return "";  // said already
  }
}

}  // namespace

Places FindPlaces(const Environment& environment) {
  Places places;
  const Result<std::string> segments = SegmentDirectoryPath(environment);
  if (segments.ok()) {
    places.segment_dir = *segments;
    places.segment_status = CheckPrivateDirectory(*segments);
  } else {
    places.segment_status = segments.status();
  }
  const Result<StateDirectory> state = StateDirectoryPath(environment);
  if (state.ok()) {
    places.state_dir = state->path;
    places.wanted_state_dir = state->path;
    places.database = DatabasePath(state->path);
    places.note = state->note;
  } else {
    places.state_status = state.status();
  }
  const int daemon = places.segment_status.ok() ? RunningDaemon(places.segment_dir).value_or(0) : 0;
  const std::string in_use = daemon > 0 ? DatabaseOfProcess(daemon) : "";
  if (!in_use.empty()) {
    if (in_use != places.database) {
      UseDatabase(in_use, places);
      places.note = "the running daemon (pid " + std::to_string(daemon) +
                    ") keeps its database in " + places.state_dir + ", so that database is used";
    }
  } else if (places.segment_status.ok() && !IsChosen(environment, places)) {
    const std::string beside = DatabasePath(StateBesideSegments(places.segment_dir));
    if (access(beside.c_str(), F_OK) == 0) UseDatabase(beside, places);
  }
  if (places.is_beside()) {
    places.note = "the database is in " + places.state_dir +
                  " until the next boot, because the state directory cannot be used: 'nanwatch "
                  "doctor' says why";
  }
  return places;
}

std::vector<OtherPlace> FindOtherPlaces(const std::string& segment_dir) {
  std::vector<OtherPlace> others;
  const std::string host = wire::DefaultDirectoryOf(geteuid(), 0).path;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(host).parent_path(), error)) {
    const std::string path = entry.path();
    if (path == segment_dir || (path != host && !path.starts_with(host + "-"))) continue;
    if (!CheckPrivateDirectory(path).ok()) continue;
    const Result<SegmentListing> listing = ListSegments(path);
    if (!listing.ok()) continue;
    others.push_back({path, static_cast<int>(listing->segments.size())});
  }
  std::sort(others.begin(), others.end(),
            [](const OtherPlace& a, const OtherPlace& b) { return a.path < b.path; });
  return others;
}

std::string NoRunIsKnown(const Places& places) {
  std::string text = "there is no run yet: start one with 'nanwatch run -- python train.py'";
  if (places.state_dir.empty()) return text;
  struct stat status {};
  const bool there = stat(places.state_dir.c_str(), &status) == 0;
  const bool hidden = !there && errno == EACCES;
  text += " (looked in " + places.state_dir;
  if (there && status.st_uid != geteuid()) {
    const std::string owner = UserName(status.st_uid);
    text += ", which belongs to user " +
            (owner.empty() ? "number " + std::to_string(status.st_uid) : owner) +
            ": each user has their own directory";
  } else if (hidden || (there && access(places.state_dir.c_str(), R_OK | X_OK) != 0)) {
    text += ", which you may not read";
  } else if (there && access(places.database.c_str(), F_OK) == 0) {
    text += ", whose database is empty";
  } else if (there) {
    text += ", where there is no database";
  } else {
    text += ", which does not exist";
  }
  return text + "; set NANWATCH_STATE_DIR to look elsewhere)";
}

std::string JobInAnotherPlace(const std::string& segment_dir, const std::string& job) {
  std::vector<std::string> directories = {segment_dir};
  for (const OtherPlace& other : FindOtherPlaces(segment_dir)) directories.push_back(other.path);
  for (const std::string& directory : directories) {
    const Result<SegmentListing> listing = ListSegments(directory);
    if (!listing.ok()) continue;
    for (const std::string& name : listing->segments) {
      std::ifstream file(directory + "/" + name, std::ios::binary);
      wire::SegmentHeader header{};
      file.read(reinterpret_cast<char*>(&header), sizeof header);
      if (!file || header.magic != wire::kSegmentMagic) continue;
      if (job == std::string_view(header.job, strnlen(header.job, sizeof header.job)))
        return directory;
    }
  }
  return "";
}

Status UnreadableDatabase(const Status& why, const std::string& database) {
  return {why.kind(),
          "the database cannot be read: " + why.message() + AdviceFor(why.kind(), database)};
}

}  // namespace nanwatch
