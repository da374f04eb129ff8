// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/scene.h"

#include <sqlite3.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <set>

#include "daemon/base/directories.h"

namespace nanwatch {

int FaultRounds(int short_form, int long_form) {
  return std::getenv("NANWATCH_FAULTS_LONG") != nullptr ? long_form : short_form;
}

uint64_t FaultSeed() {
  const char* seed = std::getenv("NANWATCH_FAULTS_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

Verdict NoVerdict(const std::vector<RunFacts>&) { return {}; }

FaultTest::FaultTest() { EXPECT_TRUE(EnsureSegmentDirectory(options_.segment_dir).ok()); }

void FaultTest::Start() {
  daemon_.reset();
  Result<Daemon> daemon = Daemon::Start(options_, NoVerdict, clock_, listener_);
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  daemon_.emplace(*std::move(daemon));
}

void FaultTest::Tick(uint64_t after_ms) {
  clock_.AdvanceMs(after_ms);
  const Status ticked = daemon_->Tick();
  ASSERT_TRUE(ticked.ok()) << ticked.message();
}

RunFacts FaultTest::FactsOf(uint64_t nonce) {
  Result<RunFacts> facts = daemon_->store().Facts(RunId(nonce));
  EXPECT_TRUE(facts.ok()) << facts.status().message();
  return facts.ok() ? *std::move(facts) : RunFacts();
}

uint64_t FaultTest::TicketsOf(uint64_t nonce) {
  const RunFacts facts = FactsOf(nonce);
  std::set<uint64_t> tickets;
  for (const Record& record : facts.records()) {
    EXPECT_TRUE(tickets.insert(record.ticket()).second) << "ticket " << record.ticket() << " twice";
  }
  return tickets.size();
}

void FaultTest::Execute(const std::string& sql) const {
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(DatabasePath(options_.state_dir).c_str(), &other), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(other, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
}

void FaultTest::RefuseRunOne() const {
  Execute(
      "CREATE TRIGGER refuse BEFORE INSERT ON run WHEN NEW.id = '0000000000000001'"
      " BEGIN SELECT RAISE(ABORT, 'refused'); END");
}

void FaultTest::ExpectSoundStore() {
  sqlite3* database = nullptr;
  const std::string path = DatabasePath(options_.state_dir);
  ASSERT_EQ(sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  std::string answer;
  const auto keep = [](void* to, int, char** values, char**) {
    *static_cast<std::string*>(to) += values[0];
    return 0;
  };
  EXPECT_EQ(sqlite3_exec(database, "PRAGMA integrity_check", keep, &answer, nullptr), SQLITE_OK);
  EXPECT_EQ(answer, "ok");
  sqlite3_close(database);
}

int InChild(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

Scribbler::Scribbler(const std::function<void()>& scribble) : pid_(fork()) {
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (true) scribble();
}

Scribbler::~Scribbler() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace nanwatch
