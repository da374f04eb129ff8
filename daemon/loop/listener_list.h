// SPDX-License-Identifier: Apache-2.0
// Passes everything on to several listeners. Owns none of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/loop/listener.h"

namespace nanwatch {

class ListenerList final : public Listener {
 public:
  explicit ListenerList(std::vector<Listener*> listeners) : listeners_(std::move(listeners)) {}

  void RunStarted(const Run& run) override {
    for (Listener* listener : listeners_) listener->RunStarted(run);
  }
  void RunEnded(const Run& run, const RunState& state) override {
    for (Listener* listener : listeners_) listener->RunEnded(run, state);
  }
  void CommandEnded(const JobExit& exit) override {
    for (Listener* listener : listeners_) listener->CommandEnded(exit);
  }
  void IncidentSeen(const Verdict& verdict, const Incident& incident, bool reach_grew) override {
    for (Listener* listener : listeners_) listener->IncidentSeen(verdict, incident, reach_grew);
  }
  void WarningSeen(const Verdict& verdict, const Warning& warning) override {
    for (Listener* listener : listeners_) listener->WarningSeen(verdict, warning);
  }
  void LevelChanged(const Run& run, uint32_t step, const LevelFact& level) override {
    for (Listener* listener : listeners_) listener->LevelChanged(run, step, level);
  }
  void FileUnreadable(const std::string& name, const std::string& reason) override {
    for (Listener* listener : listeners_) listener->FileUnreadable(name, reason);
  }
  void Trouble(const std::string& sentence) override {
    for (Listener* listener : listeners_) listener->Trouble(sentence);
  }
  void Remark(const std::string& sentence) override {
    for (Listener* listener : listeners_) listener->Remark(sentence);
  }

 private:
  std::vector<Listener*> listeners_;
};

}  // namespace nanwatch
