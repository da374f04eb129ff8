// SPDX-License-Identifier: Apache-2.0
// Fault 12: the wall clock jumps by days, forth and back, while jobs come and go.
#include <random>

#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

// Its wall clock can be set; the monotonic one goes on.
class SetClock final : public Clock {
 public:
  [[nodiscard]] uint64_t monotonic_ns() const override { return now_ns_; }
  [[nodiscard]] uint64_t real_ns() const override {
    return static_cast<uint64_t>(static_cast<int64_t>(kEpochNs + now_ns_) + offset_ns_);
  }
  void AdvanceMs(uint64_t ms) { now_ns_ += ms * 1'000'000; }
  void Jump(int64_t by_ns) { offset_ns_ += by_ns; }

 private:
  static constexpr uint64_t kEpochNs = 1'790'000'000'000'000'000;
  uint64_t now_ns_ = 1'000'000'000;
  int64_t offset_ns_ = 0;
};

class ClockJumpsTest : public FaultTest {};

TEST_F(ClockJumpsTest, ByDaysEndNoRunAndLoseNothing) {
  constexpr int64_t kDayNs = int64_t{86'400} * 1'000'000'000;
  SetClock clock;
  Result<Daemon> daemon = Daemon::Start(options_, NoVerdict, clock, listener_);
  ASSERT_TRUE(daemon.ok());
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  std::mt19937_64 random(FaultSeed());
  const int rounds = FaultRounds(100, 5'000);
  uint64_t written = 0;
  uint64_t ended = 1;
  for (int i = 0; i < rounds; ++i) {
    written = job.WriteValue("aten::log", "a" + std::to_string(i % 40));
    if (i % 10 == 0) {
      SegmentBuilder other(options_.segment_dir, {.nonce = ++ended, .dead = true});
      other.WriteValue("aten::exp", "b");
      clock.AdvanceMs(2'100);
    }
    clock.Jump(static_cast<int64_t>(random() % 3) * kDayNs - kDayNs);
    clock.AdvanceMs(1'100);
    ASSERT_TRUE(daemon->Tick().ok());
  }
  daemon_.emplace(*std::move(daemon));
  EXPECT_EQ(TicketsOf(1) + FactsOf(1).state().records_thinned(), written);
  EXPECT_FALSE(FactsOf(1).state().ended());
  for (uint64_t nonce = 2; nonce <= ended; ++nonce) EXPECT_EQ(TicketsOf(nonce), 1u);
  ExpectSoundStore();
}

}  // namespace
}  // namespace nanwatch
