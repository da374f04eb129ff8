#include "tools/places.h"

#include <filesystem>

#include "tools/daemon_start.h"

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
    places.database = DatabasePath(state->path);
    places.note = state->note;
  } else {
    places.state_status = state.status();
  }
  const int daemon = places.segment_status.ok() ? RunningDaemon(places.segment_dir).value_or(0) : 0;
  const std::string in_use = daemon > 0 ? DatabaseOfProcess(daemon) : "";
  if (!in_use.empty() && in_use != places.database) {
    places.database = in_use;
    places.state_dir = std::filesystem::path(in_use).parent_path();
    places.state_status = {};
    places.note = "the daemon that runs (pid " + std::to_string(daemon) +
                  ") keeps its database in " + places.state_dir + ", so that one is used";
  }
  return places;
}

}  // namespace nanwatch
