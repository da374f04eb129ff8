// events.jsonl: what happened, one JSON object per line, for log shippers. Each line has "time"
// (RFC 3339, UTC) and "event": run_started, run_ended, command_ended, incident, reach_grew,
// warning, level, file_unreadable, trouble, remark. A line is at most kEventBytesMax long; the
// first line of a file names the format and is unique, so that shippers that know files by their
// beginning can tell them apart.
//
// Rotated by rename: events.jsonl.1 is the newest of the old ones. A failed write (full disk) is
// counted, never fatal, and told in the next line that succeeds.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/unique_fd.h"
#include "daemon/loop/observer.h"

namespace nanwatch {

inline constexpr size_t kEventBytesMax = 8 * 1024;
inline constexpr uint64_t kEventFileBytesMax = uint64_t{16} << 20;
inline constexpr int kEventFilesKept = 4;

class EventLog final : public Observer {
 public:
  EventLog(std::string path, const Clock& clock, uint64_t file_bytes_max = kEventFileBytesMax);

  // After somebody else renamed the file.
  void Reopen();

  void RunStarted(const Run& run) override;
  void RunEnded(const Run& run, const RunState& state) override;
  void CommandEnded(const JobExit& exit) override;
  void IncidentSeen(const Verdict& verdict, const Incident& incident, bool reach_grew) override;
  void WarningSeen(const Verdict& verdict, const Warning& warning) override;
  void LevelChanged(const Run& run, uint32_t step, const LevelFact& level) override;
  void FileUnreadable(const std::string& name, const std::string& reason) override;
  void Trouble(const std::string& sentence) override;
  void Remark(const std::string& sentence) override;

 private:
  void Write(const std::string& line);
  void Rotate();

  std::string path_;
  const Clock& clock_;
  uint64_t file_bytes_max_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
  uint64_t lost_lines_ = 0;
};

}  // namespace nanwatch
