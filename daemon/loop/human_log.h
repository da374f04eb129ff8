// nanwatch.log: what happened, in words, for the person who tails it; and on stderr while the
// daemon is in the foreground. The door to spdlog.
#pragma once

#include <memory>
#include <string>

#include "daemon/loop/observer.h"

namespace nanwatch {

class HumanLog final : public Observer {
 public:
  // A log that cannot be written leaves stderr alone, or nothing; it never stops the daemon.
  HumanLog(std::string path, bool to_stderr);
  ~HumanLog() override;

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
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "ANOMALY train.py, run 7f3a21c0, rank 0: step 117, forward, encoder.layers.1.self_attn,
// aten::_softmax, Inf became NaN; reached loss, gradient, parameter".
[[nodiscard]] std::string IncidentSentence(const Verdict& verdict, const Incident& incident);

// "warning train.py, run 7f3a21c0, rank 0: gradient norm 3.2e+06 at step 412, median 1.8 over the
// 100 steps before, 14 times more than its usual spread; the updates overshoot".
[[nodiscard]] std::string LevelSentence(const LevelFact& level);
[[nodiscard]] std::string WarningSentence(const Verdict& verdict, const Warning& warning);

}  // namespace nanwatch
