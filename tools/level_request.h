// SPDX-License-Identifier: Apache-2.0
// Asks one live process to check at another level, through the control word of its segment
// (proto/wire/control.h). The process is neither stopped nor signaled: it reads the word by itself.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"
#include "daemon/ingest/segment_file.h"
#include "proto/wire/segment.h"

namespace nanwatch {

class LevelRequest {
 public:
  // Writes the request. `for_ns`: after so long the process goes back to the level it was started
  // with, by itself; 0: it stays. `stacks`: findings are to say who called the user's line, as long
  // as this request is in force; kUnsupported where the process's observer is too old for it.
  [[nodiscard]] static Result<LevelRequest> Send(const std::string& segment_path, wire::Level level,
                                                 uint64_t for_ns, bool stacks);

  // The process has applied it, or a later one of somebody else's.
  [[nodiscard]] bool IsApplied() const;
  // The process is gone, or its segment is.
  [[nodiscard]] bool IsLost() const;
  [[nodiscard]] wire::Level before() const { return before_; }

 private:
  LevelRequest(SegmentFile file, wire::Level before) : file_(std::move(file)), before_(before) {}
  [[nodiscard]] const wire::LiveBlock& live() const;

  SegmentFile file_;
  wire::Level before_;
  uint32_t generation_ = 0;
};

}  // namespace nanwatch
