// SPDX-License-Identifier: Apache-2.0
// The capsules of this user's jobs (proto/README.md has the format), in one directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "verdict.pb.h"

namespace nanwatch {

struct Capsule {
  std::string name;  // RUN-N
  std::string path;
  std::string run;
  uint64_t ticket = 0;  // of the finding it belongs to
  std::string op;       // what the finding names
  std::string layer;
  std::string phase;
  bool can_run = false;
  std::string why_not;  // where it cannot
  std::string python;   // the job's interpreter; "" is not known
  std::string torch;    // its version
  std::string word;     // what `nanwatch replay` said last; "": it was not run again yet
  uint64_t tensor_bytes = 0;
};

// The directory of a state directory's capsules.
[[nodiscard]] std::string CapsuleDirectory(const std::string& state_dir);

// Those that are complete, by name. Folders that make no sense are left out.
[[nodiscard]] std::vector<Capsule> ReadCapsules(const std::string& directory);
// kNotFound, kCorrupt: `path` is no capsule, and why.
[[nodiscard]] Result<Capsule> ReadCapsule(const std::string& path);

// By a path, a name, or the beginning of a name; "" is the newest. Of several that begin so, those
// of one run, it is the first. kNotFound, or kAmbiguous with the candidates named.
[[nodiscard]] Result<Capsule> FindCapsule(const std::string& directory, const std::string& named);

// The one of an origin's finding. Null: there is none.
[[nodiscard]] const Capsule* CapsuleOf(const Finding& origin, const std::vector<Capsule>& capsules);

}  // namespace nanwatch
