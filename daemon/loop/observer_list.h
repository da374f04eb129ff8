// SPDX-License-Identifier: Apache-2.0
// Tells several observers the same. Owns none of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/loop/observer.h"

namespace nanwatch {

class ObserverList final : public Observer {
 public:
  explicit ObserverList(std::vector<Observer*> observers) : observers_(std::move(observers)) {}

  void RunStarted(const Run& run) override {
    for (Observer* o : observers_) o->RunStarted(run);
  }
  void RunEnded(const Run& run, const RunState& state) override {
    for (Observer* o : observers_) o->RunEnded(run, state);
  }
  void CommandEnded(const JobExit& exit) override {
    for (Observer* o : observers_) o->CommandEnded(exit);
  }
  void IncidentSeen(const Verdict& verdict, const Incident& incident, bool reach_grew) override {
    for (Observer* o : observers_) o->IncidentSeen(verdict, incident, reach_grew);
  }
  void WarningSeen(const Verdict& verdict, const Warning& warning) override {
    for (Observer* o : observers_) o->WarningSeen(verdict, warning);
  }
  void LevelChanged(const Run& run, uint32_t step, const LevelFact& level) override {
    for (Observer* o : observers_) o->LevelChanged(run, step, level);
  }
  void FileUnreadable(const std::string& name, const std::string& reason) override {
    for (Observer* o : observers_) o->FileUnreadable(name, reason);
  }
  void Trouble(const std::string& sentence) override {
    for (Observer* o : observers_) o->Trouble(sentence);
  }
  void Remark(const std::string& sentence) override {
    for (Observer* o : observers_) o->Remark(sentence);
  }

 private:
  std::vector<Observer*> observers_;
};

}  // namespace nanwatch
