// SPDX-License-Identifier: Apache-2.0
// What happens in the daemon that somebody may want to be told: people by the human log, programs
// by the JSON lines, tests by a list. Called from the loop's thread; must not call back.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"
#include "daemon/ingest/exit_file.h"
#include "verdict.pb.h"

namespace nanwatch {

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void RunStarted(const Run& run) = 0;
  virtual void RunEnded(const Run& run, const RunState& state) = 0;
  virtual void CommandEnded(const JobExit& exit) = 0;
  // `reach_grew`: it was told before, and got further since.
  virtual void IncidentSeen(const Verdict& verdict, const Incident& incident, bool reach_grew) = 0;
  // Once for each, as long as it lasts.
  virtual void WarningSeen(const Verdict& verdict, const Warning& warning) = 0;
  // What a run checks has changed, at this step.
  virtual void LevelChanged(const Run& run, uint32_t step, const LevelFact& level) = 0;
  // A file among the segments that is none.
  virtual void FileUnreadable(const std::string& name, const std::string& reason) = 0;
  // Something is wrong that a person may have to see to; a sentence.
  virtual void Trouble(const std::string& sentence) = 0;
  // Something worth a line and no worry.
  virtual void Remark(const std::string& sentence) = 0;
};

// One that writes a file.
class Log : public Observer {
 public:
  // After somebody else renamed the file.
  virtual void Reopen() = 0;
};

}  // namespace nanwatch
