// SPDX-License-Identifier: Apache-2.0
// Whether the process that writes a segment still lives: the three tests of proto/wire/segment.h.
#pragma once

#include <cstdint>
#include <string>

#include "proto/wire/segment.h"

namespace nanwatch {

// A heartbeat older than this speaks for nobody.
inline constexpr uint64_t kHeartbeatOldNs = 60'000'000'000;

// Identifies this kernel, pid namespace and place.
struct HostIdentity {
  std::string boot_id;
  std::string host;
  uint64_t pid_namespace = 0;
  uint32_t place = 0;  // key, proto/wire/place.h

  [[nodiscard]] static HostIdentity Current();
};

// Remembers the heartbeat, because that of another host can only be judged by whether it moves.
class WriterLiveness {
 public:
  explicit WriterLiveness(HostIdentity self) : self_(std::move(self)) {}

  // `fd` is open on the segment; `heartbeat_ns` and `now_ns` are monotonic.
  [[nodiscard]] bool Lives(int fd, const wire::SegmentHeader& header, uint64_t heartbeat_ns,
                           uint64_t now_ns);

 private:
  [[nodiscard]] bool HeartbeatMoves(uint64_t heartbeat_ns, uint64_t now_ns);

  HostIdentity self_;
  uint64_t heartbeat_ns_ = 0;
  uint64_t heartbeat_seen_at_ns_ = 0;
};

// Whether the writer belongs to another place: a container beside this one, or the host. Its
// segment is that place's daemon's, and its process cannot be seen from here.
[[nodiscard]] bool IsOfAnotherPlace(const wire::SegmentHeader& header, const HostIdentity& self);

// Whether another process holds a record lock on the file. Not to be called for a file of which this
// process holds one: asking gives it up.
[[nodiscard]] bool IsLocked(const std::string& path);

// Start time of a process in clock ticks (field 22 of /proc/PID/stat); 0 when it is gone or a
// zombie.
[[nodiscard]] uint64_t ProcessStartTicks(int32_t pid);

}  // namespace nanwatch
