// SPDX-License-Identifier: Apache-2.0
// Records what the daemon reported.
#pragma once

#include <string>
#include <vector>

#include "daemon/ingest/run_batch.h"
#include "daemon/loop/listener.h"

namespace nanwatch {

class RecordingListener : public Listener {
 public:
  void RunStarted(const Run& run) override { started.push_back(RunId(run)); }
  void RunEnded(const Run& run, const RunState&) override { ended.push_back(RunId(run)); }
  void CommandEnded(const JobExit& exit) override { exits.push_back(exit); }
  void IncidentSeen(const Verdict&, const Incident& incident, bool reach_grew) override {
    incidents.push_back((reach_grew ? "further " : "new ") + incident.origin().op());
  }
  void LevelChanged(const Run&, uint32_t, const LevelFact& level) override {
    levels.push_back(level.to());
  }
  void WarningSeen(const Verdict&, const Warning& warning) override {
    warnings.push_back(warning.id());
  }
  void FileUnreadable(const std::string& name, const std::string& reason) override {
    unreadable.push_back(name + ": " + reason);
  }
  void Trouble(const std::string& sentence) override { troubles.push_back(sentence); }
  void Remark(const std::string& sentence) override { remarks.push_back(sentence); }

  std::vector<std::string> started;
  std::vector<std::string> ended;
  std::vector<JobExit> exits;
  std::vector<std::string> incidents;
  std::vector<std::string> warnings;
  std::vector<uint32_t> levels;
  std::vector<std::string> unreadable;
  std::vector<std::string> troubles;
  std::vector<std::string> remarks;
};

}  // namespace nanwatch
