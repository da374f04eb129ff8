// Where this user's segments and database are, and what is wrong with either, found out once per
// call of the tool. Makes nothing.
#pragma once

#include <string>

#include "daemon/base/directories.h"
#include "daemon/base/status.h"

namespace nanwatch {

struct Places {
  std::string segment_dir;  // "" when the variable that names it makes no sense
  Status segment_status;    // whether it may be trusted; kNotFound: no job has run yet
  std::string state_dir;
  Status state_status;   // whether a path could be found for it
  std::string database;  // "" when state_status is not ok
  std::string note;      // a sentence for the user, or ""
};

// A daemon that runs decides which database is looked at, whatever NANWATCH_STATE_DIR says here:
// what it has read is nowhere else.
[[nodiscard]] Places FindPlaces(const Environment& environment);

// The database that process `pid` has open, "" when that cannot be told.
[[nodiscard]] std::string DatabaseOfProcess(int pid);

}  // namespace nanwatch
