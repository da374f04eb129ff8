// SPDX-License-Identifier: Apache-2.0
// The daemon without its process: owns the segment directory's lock, the store and the stages
// between, and drives them in one thread.
//
//   wait (inotify, 25 ms while a job lives, else idle) -> rescan -> drain -> judge -> wait
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/loop/job_verdicts.h"
#include "daemon/loop/listener.h"

namespace nanwatch {

class SegmentIntake;
class Store;

// Half of the 50 ms within which a finding is promised to be in the database.
inline constexpr uint64_t kDrainEveryNs = 25'000'000;
// DaemonOptions::judge_patience_ns of nanwatchd: small jobs are judged at once.
inline constexpr uint64_t kJudgePatienceNs = 5'000'000;

struct DaemonOptions {
  std::string segment_dir = {};
  std::string state_dir = {};
  uint64_t database_bytes_max = 0;  // 0: as the store has it
  // The host's default segment directory of this user. Directories of containers that may have
  // ended are next to it (dead_places.h); "": these are not touched.
  std::string places_prefix = {};
  // How long one round waits for verdicts; what takes longer is taken by a later round.
  uint64_t judge_patience_ns = JobVerdicts::kWait;
  bool outbox = false;        // keep what the fleet is to know (daemon/store/outbox.h)
  uint64_t idle_exit_ns = 0;  // exit after so long without a live job; 0: never
};

class Daemon {
 public:
  // Takes the locks, opens the store. kBusy when another daemon of this place runs for the segment
  // directory, or any other writes the database. What is passed by reference outlives the daemon.
  static Result<Daemon> Start(DaemonOptions options, Diagnosis diagnosis, const Clock& clock,
                              Listener& listener);

  Daemon(Daemon&&) noexcept;
  ~Daemon();

  // One round without waiting. An error means that the daemon cannot go on: another one has taken
  // its place.
  Status Tick();

  // Rounds until there is nothing to do for idle_exit_ns, or until `stop_fd` (-1: none) is
  // readable.
  enum class Left { kIdle, kStopAsked };
  Result<Left> Run(int stop_fd);

  // Reads and judges everything that is there now; before the daemon exits.
  void Finish();

  // How long Run waits now for something to happen; 0: not at all.
  [[nodiscard]] int TimeoutMs() const;

  [[nodiscard]] Store& store();
  [[nodiscard]] SegmentIntake& intake();

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nanwatch
