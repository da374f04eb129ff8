// SPDX-License-Identifier: Apache-2.0
// Where this user's segments and database are, and what is wrong with either, found out once per
// call of the tool. Makes nothing.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/directories.h"
#include "daemon/base/status.h"

namespace nanwatch {

struct Places {
  std::string segment_dir;  // "" when the variable that names it makes no sense
  Status segment_status;    // whether it may be trusted; kNotFound: no job has run yet
  std::string state_dir;
  Status state_status;           // whether a path could be found for it
  std::string database;          // "" when state_status is not ok
  std::string note;              // a sentence for the user, or ""
  std::string wanted_state_dir;  // where it would be if nothing stood in the way; "" as state_dir

  // The database lies beside the segments, because the state directory could not be had.
  [[nodiscard]] bool is_beside() const {
    return !segment_dir.empty() && state_dir == StateBesideSegments(segment_dir);
  }
};

// A daemon that runs decides which database is looked at, whatever NANWATCH_STATE_DIR says here:
// what it has read is nowhere else. Without one, a database beside the segments is looked at where
// there is one, unless NANWATCH_STATE_DIR names another that exists.
[[nodiscard]] Places FindPlaces(const Environment& environment);

// A directory of segments in shared memory that is another place's of this user: a container's, or
// seen from one the host's.
struct OtherPlace {
  std::string path;
  int segments = 0;
};
[[nodiscard]] std::vector<OtherPlace> FindOtherPlaces(const std::string& segment_dir);
// The one of them that holds a segment of this job, or `segment_dir` itself when another place
// shares it; "" none does.
[[nodiscard]] std::string JobInAnotherPlace(const std::string& segment_dir, const std::string& job);

// What to tell somebody for whom no run is known: how to begin, where was looked, and what was in
// the way there.
[[nodiscard]] std::string NoRunIsKnown(const Places& places);

// The database that process `pid` has open, "" when that cannot be told.
[[nodiscard]] std::string DatabaseOfProcess(int pid);

}  // namespace nanwatch
