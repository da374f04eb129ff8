// SPDX-License-Identifier: Apache-2.0
// What the fault tests share: how often, from which seed, a daemon with a clock that stands still,
// and what has to hold after every fault.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "daemon/loop/daemon.h"
#include "daemon/loop/segment_intake.h"
#include "daemon/store/store.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/recording_listener.h"
#include "tests/fakes/segment_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {

// `short_form` in CI, `long_form` where NANWATCH_FAULTS_LONG is set (scripts/faults.sh --long).
int FaultRounds(int short_form, int long_form);
// Of NANWATCH_FAULTS_SEED, else 1. scripts/faults.sh gives a new one each time and prints it.
uint64_t FaultSeed();

Verdict NoVerdict(const std::vector<RunFacts>& runs);

class FaultTest : public testing::Test {
 protected:
  FaultTest();

  void Start();
  void Tick(uint64_t after_ms = 50);
  RunFacts FactsOf(uint64_t nonce);
  // Distinct tickets of the run's records in the database; a ticket that is there twice fails.
  uint64_t TicketsOf(uint64_t nonce);
  // Runs statements in the database, as another program may while the daemon has it open.
  void Execute(const std::string& sql) const;
  // Has the database refuse the run of nonce 1, until AcceptRunOne.
  void RefuseRunOne() const;
  void AcceptRunOne() const { Execute("DROP TRIGGER refuse"); }
  // The database opens, and every page of it is sound.
  void ExpectSoundStore();

  TemporaryDirectory directory_;
  DaemonOptions options_{.segment_dir = directory_ / "segments", .state_dir = directory_ / "state"};
  FakeClock clock_;
  RecordingListener listener_;
  std::optional<Daemon> daemon_;
};

// Runs `work` in a child process; how it ended, as waitpid says.
int InChild(const std::function<void()>& work);

// What a hostile process does to a mapping while we read it: another process, which ends with the
// object. `scribble` is called again and again.
class Scribbler {
 public:
  explicit Scribbler(const std::function<void()>& scribble);
  Scribbler(const Scribbler&) = delete;
  Scribbler& operator=(const Scribbler&) = delete;
  ~Scribbler();

 private:
  int pid_;
};

}  // namespace nanwatch
