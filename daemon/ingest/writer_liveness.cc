// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/writer_liveness.h"

#include <fcntl.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "daemon/base/directories.h"
#include "daemon/base/small_file.h"
#include "daemon/base/unique_fd.h"
#include "proto/wire/place.h"

namespace nanwatch {
namespace {

constexpr int kStartTicksField = 22;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// F_GETLK asks and takes nothing. Only a lock of another process counts, which a writer of our own
// process (in a test) is not.
bool SomebodyHoldsLock(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 0;
  lock.l_len = 1;
  return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

HostIdentity HostIdentity::Current() {
  HostIdentity self;
  self.boot_id = FirstLine("/proc/sys/kernel/random/boot_id");
  self.host = HostName();
  static const wire::Place place = wire::PlaceOfProcess(0);  // of a process it never changes
  self.pid_namespace = place.pid_namespace;
  self.place = place.key;
  return self;
}

bool IsOfAnotherPlace(const wire::SegmentHeader& header, const HostIdentity& self) {
  const std::string_view boot_id(header.boot_id, strnlen(header.boot_id, sizeof header.boot_id));
  const bool same_namespace = header.pid_namespace == self.pid_namespace;
  if (header.place != 0) {
    return header.place != self.place || !same_namespace || boot_id != self.boot_id;
  }
  // Of the host, or of a writer that does not know of places: its pid namespace tells, which across
  // boots and hosts means nothing.
  if (self.place != 0) return !same_namespace || boot_id != self.boot_id;
  return boot_id == self.boot_id && header.pid_namespace != 0 && !same_namespace;
}

bool IsLocked(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return fd.valid() && SomebodyHoldsLock(fd.get());
}

uint64_t ProcessStartTicks(int32_t pid) {
  if (pid <= 0) return 0;
  const std::string text = TextOfProcFile("/proc/" + std::to_string(pid) + "/stat");
  // The second field is the command's name in parentheses and may hold anything, parentheses
  // included.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  std::string field;
  for (int number = 3; rest >> field; ++number) {
    if (number == 3 && (field == "Z" || field == "X")) return 0;
    if (number == kStartTicksField) return std::strtoull(field.c_str(), nullptr, 10);
  }
  return 0;
}

bool WriterLiveness::Lives(int fd, const wire::SegmentHeader& header, uint64_t heartbeat_ns,
                           uint64_t now_ns) {
  if (SomebodyHoldsLock(fd)) return true;
  const std::string_view boot_id(header.boot_id, strnlen(header.boot_id, sizeof header.boot_id));
  const std::string_view host(header.host, strnlen(header.host, sizeof header.host));
  if (boot_id != self_.boot_id) {
    // This host was booted since, or it is another one that shares the directory.
    return host != self_.host && HeartbeatMoves(heartbeat_ns, now_ns);
  }
  if (header.pid_namespace == self_.pid_namespace) {
    return header.process_start_ticks != 0 &&
           ProcessStartTicks(header.pid) == header.process_start_ticks;
  }
  const uint64_t outer_start = ProcessStartTicks(header.pid_outer);
  if (outer_start != 0 && outer_start == header.process_start_ticks) return true;
  return HeartbeatMoves(heartbeat_ns, now_ns);
}

bool WriterLiveness::HeartbeatMoves(uint64_t heartbeat_ns, uint64_t now_ns) {
  if (heartbeat_seen_at_ns_ == 0 || heartbeat_ns != heartbeat_ns_) {
    heartbeat_ns_ = heartbeat_ns;
    heartbeat_seen_at_ns_ = now_ns;
  }
  return now_ns - heartbeat_seen_at_ns_ < kHeartbeatOldNs;
}

}  // namespace nanwatch
