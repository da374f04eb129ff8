// SPDX-License-Identifier: Apache-2.0
// Fault 10: bits of the database are flipped, or its end is missing. It is read or moved aside, no
// reader ends, and what the segments hold is read into the new one.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "daemon/base/directories.h"
#include "daemon/explain/explain.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

class SpoiltStoreTest : public FaultTest {
 protected:
  [[nodiscard]] bool WasMovedAside() const {
    for (const auto& entry : std::filesystem::directory_iterator(options_.state_dir)) {
      if (entry.path().string().find(".corrupt-") != std::string::npos) return true;
    }
    return false;
  }
};

TEST_F(SpoiltStoreTest, AnywhereIsReadOrMovedAside) {
  Start();
  SegmentBuilder ended(options_.segment_dir, {.nonce = 1, .dead = true});
  for (int i = 0; i < 60; ++i) ended.WriteValue("aten::log", "layer." + std::to_string(i % 9));
  Tick();
  daemon_->Finish();
  daemon_.reset();
  const std::string path = DatabasePath(options_.state_dir);
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> whole((std::istreambuf_iterator<char>(file)),
                                std::istreambuf_iterator<char>());
  ASSERT_GT(whole.size(), 4096u);
  SegmentBuilder job(options_.segment_dir, {.nonce = 2});
  job.WriteValue("aten::exp", "b");
  std::mt19937_64 random(FaultSeed());
  const int rounds = FaultRounds(120, 5'000);
  for (int i = 0; i < rounds && !HasFailure(); ++i) {
    std::vector<char> bytes = whole;
    if (i % 4 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      for (uint64_t flips = 1 + random() % 16; flips > 0; --flips)
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    std::filesystem::remove(path + "-wal");
    std::filesystem::remove(path + "-shm");
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (const Result<Store> tool = Store::OpenForReading(path); tool.ok()) {
      if (const Result<std::vector<RunFacts>> facts = tool->FactsOfJob(RunId(1)); facts.ok())
        (void)Diagnose(*facts);
      (void)tool->Runs({});
      (void)tool->Incidents(RunId(1));
      (void)tool->Steps(RunId(1));
    }
    Result<Daemon> daemon = Daemon::Start(options_, NoVerdict, clock_, listener_);
    if (!daemon.ok()) {  // its version may have been spoilt: that is refused by name
      EXPECT_EQ(daemon.status().kind(), ErrorKind::kUnsupported) << daemon.status().message();
      continue;
    }
    daemon_.emplace(*std::move(daemon));
    // Errors that are not called damage are waited for, for ten seconds.
    for (int ticks = 0; ticks < 8; ++ticks) Tick(2'100);
    EXPECT_EQ(TicketsOf(2), 1u) << "round " << i;
    ExpectSoundStore();
    daemon_.reset();
  }
}

// The file is sound: the job is named once, and all others go on.
TEST_F(SpoiltStoreTest, ARecordThatMakesNoSenseCostsItsOwnJobItsVerdict) {
  Start();
  SegmentBuilder spoilt(options_.segment_dir, {.nonce = 1, .job = "j"});
  SegmentBuilder job(options_.segment_dir, {.nonce = 2});
  spoilt.WriteValue("aten::log", "a");
  Tick();
  Execute("UPDATE record SET body = x'ff'");
  spoilt.WriteValue("aten::exp", "b");
  uint64_t written = 0;
  for (int i = 0; i < 50; ++i) {
    written = job.WriteValue("aten::exp", "b");
    Tick(1'100);
  }
  EXPECT_FALSE(WasMovedAside());
  EXPECT_EQ(TicketsOf(2), written);
  ASSERT_EQ(listener_.troubles.size(), 1u) << listener_.troubles.at(1);
  EXPECT_NE(listener_.troubles[0].find("job j "), std::string::npos) << listener_.troubles[0];
  ExpectSoundStore();
}

TEST_F(SpoiltStoreTest, ARunWhoseRowMakesNoSenseIsWrittenAnew) {
  Start();
  SegmentBuilder spoilt(options_.segment_dir, {.nonce = 1});
  spoilt.WriteValue("aten::log", "a");
  Tick();
  Execute("UPDATE run SET state = x'ff'");
  Start();
  SegmentBuilder job(options_.segment_dir, {.nonce = 2});
  job.WriteValue("aten::exp", "b");
  spoilt.WriteValue("aten::exp", "b");
  for (int i = 0; i < 3; ++i) Tick(2'100);
  EXPECT_FALSE(WasMovedAside());
  EXPECT_EQ(TicketsOf(1), 2u);
  EXPECT_EQ(TicketsOf(2), 1u);
  ASSERT_EQ(listener_.unreadable.size(), 1u);
  EXPECT_NE(listener_.unreadable[0].find("written anew"), std::string::npos);
}

}  // namespace
}  // namespace nanwatch
