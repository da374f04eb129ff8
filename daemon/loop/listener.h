// SPDX-License-Identifier: Apache-2.0
// Receives what happens in the daemon: the human log for people, the JSON lines for programs, a list
// for tests. Called on the loop's thread; must not call back.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"
#include "daemon/ingest/exit_file.h"
#include "verdict.pb.h"

namespace nanwatch {

class Listener {
 public:
  virtual ~Listener() = default;
  virtual void RunStarted(const Run& run) = 0;
  virtual void RunEnded(const Run& run, const RunState& state) = 0;
  virtual void CommandEnded(const JobExit& exit) = 0;
  // `reach_grew`: it was reported before, and has reached more since.
  virtual void IncidentSeen(const Verdict& verdict, const Incident& incident, bool reach_grew) = 0;
  // Once for each warning while it lasts.
  virtual void WarningSeen(const Verdict& verdict, const Warning& warning) = 0;
  // The level of a run changed at this step.
  virtual void LevelChanged(const Run& run, uint32_t step, const LevelFact& level) = 0;
  // A file in the segment directory that is not a segment.
  virtual void FileUnreadable(const std::string& name, const std::string& reason) = 0;
  // A problem that a person may have to fix; a sentence.
  virtual void Trouble(const std::string& sentence) = 0;
  // A sentence for the log; not a problem.
  virtual void Remark(const std::string& sentence) = 0;
};

// A listener that writes a file.
class Log : public Listener {
 public:
  // Opens the file again after somebody renamed it.
  virtual void Reopen() = 0;
};

}  // namespace nanwatch
