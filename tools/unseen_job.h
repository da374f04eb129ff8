// SPDX-License-Identifier: Apache-2.0
// Jobs under `nanwatch run` in which nothing was observed. Their verdict documents are kept beside
// the database, so that `report` answers for such a job and not for the one before it.
//
// A file each: unseen-<start in ns>-<job>, the verdict as protobuf writes it. At most kUnseenMax;
// `run` writes them, and removes the oldest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/places.h"
#include "verdict.pb.h"

namespace nanwatch {

inline constexpr size_t kUnseenMax = 32;

struct UnseenJob {
  std::string job;
  uint64_t started_real_ns = 0;
  std::string path;
};

// Newest first.
[[nodiscard]] std::vector<UnseenJob> UnseenJobs(const Places& places);
// The newest that `name` means: the job's id or its beginning, or the pid of its command; "" is the
// newest of all.
[[nodiscard]] std::optional<UnseenJob> FindUnseen(const Places& places, const std::string& name);
// Nothing when the file is gone or damaged.
[[nodiscard]] std::optional<Verdict> ReadUnseen(const UnseenJob& job);

// Makes the state directory when there is none. Where nothing can be written, nothing is kept.
void KeepUnseen(const Places& places, uint64_t started_real_ns, const Verdict& verdict);

}  // namespace nanwatch
