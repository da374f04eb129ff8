// SPDX-License-Identifier: Apache-2.0
// Fault 16, and a fuzzer of the live daemon: a process that stores anything anywhere in its own
// segment, between any two loads of ours. Decisions rest on private copies: nobody ends, nothing is
// invented of other jobs, and those are read.
#include <chrono>
#include <cstring>
#include <random>

#include "daemon/explain/explain.h"
#include "daemon/ingest/whole_segment.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

class DoubleFetchTest : public FaultTest {};

TEST_F(DoubleFetchTest, OfASegmentThatChangesAllTheTimeHarmsNobody) {
  SegmentBuilder hostile(options_.segment_dir, {.nonce = 1});
  for (int i = 0; i < 40; ++i) hostile.WriteValue("aten::log", "layer." + std::to_string(i));
  for (int i = 0; i < 60; ++i) hostile.WriteStep(i);
  hostile.WriteTrail(1, {{"aten::exp", 1.0}});
  hostile.WriteReach(wire::Reach::kLoss, 3, "loss");
  hostile.Publish();
  SegmentBuilder job(options_.segment_dir, {.nonce = 2});
  const std::vector<unsigned char> before(hostile.bytes(), hostile.bytes() + hostile.size());
  std::mt19937_64 random(FaultSeed());
  // Beyond the header, which is read once: words of all sections, half of them put right again.
  const Scribbler scribbler([&] {
    const size_t from = sizeof(wire::SegmentHeader);
    const size_t at = (from + random() % (hostile.size() - from - 8)) & ~size_t{7};
    uint64_t word = random() % 4 == 0 ? random() : random() % 1'000;
    if (random() % 2 == 0) std::memcpy(&word, before.data() + at, sizeof word);
    std::memcpy(hostile.bytes() + at, &word, sizeof word);
  });
  Start();
  const auto ends =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(FaultRounds(1'500, 600'000));
  uint64_t written = 0;
  for (int i = 0; std::chrono::steady_clock::now() < ends && !HasFailure(); ++i) {
    if (i % 8 == 0) written = job.WriteValue("aten::exp", "a");
    Tick(60);
    const Result<SegmentFacts> seen = ReadWhole(hostile.path(), clock_);
    if (seen.ok() && i % 16 == 0) (void)Diagnose({seen->facts});
  }
  Tick(1'100);
  EXPECT_EQ(TicketsOf(2) + FactsOf(2).state().records_thinned() + job.dropped(), written);
  ExpectSoundStore();
}

}  // namespace
}  // namespace nanwatch
