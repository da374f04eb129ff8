// SPDX-License-Identifier: Apache-2.0
// Batches of ops' outputs: every type, sizes around a vector, a tile and what is read in full, and
// a bad value in the first or last element of any of them. What is sampled is in sampling_test.cc.
#include <algorithm>
#include <thread>

#include "tests/property/device/checked_batch.h"
#include "tests/property/device/drawn_tensors.h"
#include "tests/property/device/every_type.h"

namespace nanwatch::device {
namespace {

class BatchOfType : public EveryType {
 protected:
  // Each of the tensors in turn, bad in its first element, then in its last.
  void ExpectEachFound(const std::vector<JobTensor>& tensors, uint32_t flags) {
    constexpr uint32_t kBlocks[] = {1, 2, 5, 13};
    for (size_t i = 0; i < tensors.size(); ++i) {
      const size_t bytes = static_cast<size_t>(tensors[i].sizes[0]) * values_.element_bytes();
      if (bytes == 0) continue;
      for (const size_t byte : {size_t{0}, bytes - values_.part_bytes()}) {
        const Planted planted(values_, At(tensors[i], byte));
        CheckedBatch batch(tensors);
        batch.flags = flags;
        batch.phase = static_cast<uint32_t>(random_());
        batch.Run(kBlocks[random_() % 4], random_);
        batch.ExpectAsReference();
        ASSERT_FALSE(HasFailure())
            << "entry " << i << " of " << tensors[i].sizes[0] << ", byte " << byte;
      }
    }
  }
};

TEST_P(BatchOfType, FindsABadValueInTheFirstAndTheLastElementOfEachEntry) {
  const size_t per_vector = kVectorBytes / values_.element_bytes();
  const size_t tile = kTileUnits * per_vector;
  Shelf shelf(size_t{8} << 20);
  std::vector<JobTensor> tensors;
  for (const size_t count :
       {size_t{0}, size_t{1}, size_t{2}, per_vector, per_vector + 1, 3 * per_vector - 1,
        511 * per_vector, 513 * per_vector + 1, tile - 1, tile, tile + 1, size_t{5}}) {
    for (const size_t off : {0u, 15u}) tensors.push_back(shelf.Add(values_, count, off));
  }
  CheckedBatch clean(tensors);
  clean.Run(7, random_);
  clean.ExpectNoAnswer();
  ExpectEachFound(tensors, 0);
}

TEST_P(BatchOfType, ReadsInFullUpToAMegabyteAndAllWhereAsked) {
  const size_t limit = kReadInFullBytes / values_.element_bytes();
  Shelf shelf(size_t{8} << 20);
  ExpectEachFound({shelf.Add(values_, limit, 0), shelf.Add(values_, 3, 0)}, 0);
  ExpectEachFound({shelf.Add(values_, limit + 1, 15)}, kReadAll);
}

NANWATCH_EVERY_TYPE(BatchOfType);

class KernelBatch : public DrawnTensors {
 protected:
  KernelBatch() : DrawnTensors(20240613) {}
};

TEST_F(KernelBatch, OfTwentyFourAndAsManyOthersSaysOfEachWhatTheReferenceSays) {
  Shelf shelf(size_t{8} << 20);
  const std::vector<JobTensor> tensors = DrawTensors(shelf, kBatchTensorsMax);
  int hits = 0;
  for (int round = 0; round < 60; ++round) {
    const Bad bad = Plant(tensors, DrawBadCount());
    // As many entries as there may be, or fewer, and the others behind them.
    const size_t entries = round % 2 == 0 ? kBatchEntriesMax : 1 + random_() % kBatchEntriesMax;
    const auto middle = tensors.begin() + static_cast<ptrdiff_t>(entries);
    const size_t others = std::min<size_t>(kBatchOthersMax, random_() % 30);
    CheckedBatch batch({tensors.begin(), middle},
                       {middle, middle + static_cast<ptrdiff_t>(others)});
    batch.Run(1 + static_cast<uint32_t>(random_() % 40), random_);
    batch.ExpectAsReference();
    hits += batch.Answered() ? 1 : 0;
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GT(hits, 15);
  EXPECT_LT(hits, 55);
}

TEST_F(KernelBatch, ReadsTheOthersOnAHitAlone) {
  std::vector<float> floats, others;
  const JobTensor entry = Ones(floats, 5000);
  JobTensor absent = Ones(others, 100);
  absent.data = reinterpret_cast<const void*>(16);  // an access would end the test
  CheckedBatch clean({entry, entry}, {absent, absent});
  clean.Run(3, random_);
  clean.ExpectNoAnswer();
  floats[4999] = NAN;
  const JobTensor other = Ones(others, 100);
  others[70] = -INFINITY;
  CheckedBatch batch({entry}, {other, other});
  batch.Run(3, random_);
  batch.ExpectAnswer();
  EXPECT_EQ(batch.result.KindsOf(2), wire::kHasNegInf);
}

TEST_F(KernelBatch, TakesMasksForNoHitAndReportsThemBesideOne) {
  std::vector<float> masks, floats;
  const JobTensor mask = Ones(masks, 200'000), entry = Ones(floats, 3000);
  std::fill(masks.begin() + 10, masks.end(), -INFINITY);
  for (const uint32_t blocks : {1u, 6u}) {
    floats[7] = 1.0f;
    CheckedBatch clean({mask, entry, mask}, {entry});
    clean.Run(blocks, random_);
    clean.ExpectNoAnswer();
    for (const float bad : {NAN, INFINITY}) {
      floats[7] = bad;
      CheckedBatch batch({mask, entry, mask}, {entry});
      batch.Run(blocks, random_);
      batch.ExpectAnswer();
      EXPECT_EQ(batch.result.tensor[0], 1) << "what is no mask comes first";
      EXPECT_EQ(batch.result.KindsOf(0), wire::kHasNegInf);
    }
  }
}

TEST_F(KernelBatch, ReportsMasksAloneWhereThatIsAskedFor) {
  std::vector<float> masks, floats;
  const JobTensor mask = Ones(masks, 200'000), entry = Ones(floats, 3000);
  masks[100'000] = -INFINITY;
  for (const uint32_t blocks : {1u, 6u}) {
    CheckedBatch batch({entry, mask}, {mask});
    batch.flags = kReportMasks;
    batch.Run(blocks, random_);
    ASSERT_TRUE(batch.Answered());
    EXPECT_EQ(batch.result.KindsOf(0), 0);
    EXPECT_TRUE(batch.result.WasReadInFull(0));
    EXPECT_EQ(batch.result.KindsOf(1), wire::kHasNegInf);
    EXPECT_EQ(batch.result.KindsOf(2), 0) << "it was read though there was no hit";
    EXPECT_FALSE(batch.result.WasReadInFull(2));
    EXPECT_EQ(batch.result.counted, 0u);
    EXPECT_EQ(batch.result.brief, 1u);
  }
  CheckedBatch clean({entry}, {mask});
  clean.flags = kReportMasks;
  clean.Run(3, random_);
  clean.ExpectNoAnswer();
}

TEST_F(KernelBatch, OfNothingOrOfNoReadableTypeIsClean) {
  std::vector<float> floats;
  JobTensor tensor = Ones(floats, 100);
  floats[3] = NAN;
  CheckedBatch none({});
  none.Run(1, random_);
  none.ExpectNoAnswer();
  for (const uint8_t type : {0, int{wire::kElementTypeCount}, 255}) {
    tensor.type = static_cast<wire::ElementType>(type);
    CheckedBatch batch({tensor});
    batch.Run(2, random_);
    batch.ExpectNoAnswer();
  }
}

// As in a graph.
TEST_F(KernelBatch, RunAgainOverTheSameNanCountsItReadsNoRestAndKeepsItsFirstFigures) {
  std::vector<float> floats, others;
  const JobTensor tensor = Ones(floats, 20'000);
  floats[12'345] = NAN;
  CheckedBatch batch({tensor, tensor}, {Ones(others, 70'000)});
  batch.Run(5, random_);
  batch.ExpectAnswer();
  BatchResult first = batch.result;
  others[3] = NAN;
  for (uint64_t hits = 2; hits < 5; ++hits) {
    batch.words.steps += hits;
    first.again |= uint64_t{1} << (batch.words.steps - first.step - 1);
    first.hits = hits;
    CpuMemory::bytes_read = 0;
    batch.Run(5, random_);
    EXPECT_LT(CpuMemory::bytes_read, 70'000 * sizeof(float)) << "the others were read";
    EXPECT_EQ(std::memcmp(&first, &batch.result, sizeof(first)), 0) << "the first figures stay";
  }
  floats[12'345] = 0;
  batch.Run(5, random_);
  EXPECT_EQ(batch.result.hits, 4u) << "a clean execution is none";
}

TEST_F(KernelBatch, CountsNothingMoreOnceItsStepHasHadItsShareAndKnowsTheKindsAllTheSame) {
  std::vector<float> floats, few;
  const JobTensor tensor = Ones(floats, 20'000), small = Ones(few, 1000);
  floats[0] = NAN;
  floats[19'999] = -INFINITY;
  few[1] = INFINITY;
  CheckedBatch batch({tensor, small});
  batch.words.counted = kCountedInFullMax;
  batch.Run(3, random_);
  EXPECT_EQ(batch.result.brief, 1u);
  EXPECT_EQ(batch.result.KindsOf(0), wire::kHasNan | wire::kHasNegInf);
  ASSERT_EQ(batch.result.counted, 2u);
  EXPECT_EQ(batch.result.counts[0].nan, 1u);
  EXPECT_EQ(batch.result.counts[0].pos_inf, 0u);
  EXPECT_EQ(batch.result.counts[0].neg_inf, 1u);
  EXPECT_EQ(batch.result.counts[0].first_bad, ~uint64_t{0});
  EXPECT_EQ(batch.result.counts[1].first_bad, 1u) << "small tensors are counted all the same";
  EXPECT_EQ(batch.words.counted, kCountedInFullMax);
}

TEST_F(KernelBatch, OfOneBlockNeedsNoScratch) {
  std::vector<float> floats;
  const JobTensor tensor = Ones(floats, 1000);
  floats[999] = NAN;
  CheckedBatch batch({tensor, tensor}, {tensor});
  BatchLaunch launch = batch.Make();
  launch.head.scratch = launch.head.progress = 0;  // an access would end the test
  RunLaunch(launch, 1, random_);
  batch.ExpectAnswer();
  EXPECT_EQ(batch.progress, 0u);
}

TEST_F(KernelBatch, IsHelpedByBlocksThatEndAfterTheHit) {
  std::vector<float> floats, others;
  const JobTensor tensor = Ones(floats, 5 * kTileUnits * 4);
  const JobTensor other = Ones(others, 300'000);
  floats[0] = NAN;
  CheckedBatch batch({tensor}, {other});
  const BatchLaunch launch = batch.Make();
  const auto read_by = [&](uint32_t block) {
    CpuMemory::bytes_read = 0;
    RunBlock(launch, {block, 5}, random_());
    return CpuMemory::bytes_read;
  };
  const uint64_t alone = read_by(1);
  EXPECT_GT(read_by(0), other.sizes[0] * sizeof(float))
      << "the first to know has nobody to wait for";
  EXPECT_LE(read_by(2), alone + 64);
  EXPECT_LE(read_by(3), alone + 64);
  EXPECT_FALSE(batch.Answered());
  read_by(4);
  batch.ExpectAnswer();
  batch.ExpectZeroScratch();
}

TEST_F(KernelBatch, ReadsTheRestByItsLastBlockWhereThatFindsTheHit) {
  std::vector<float> floats, others;
  const JobTensor tensor = Ones(floats, 5 * kTileUnits * 4), other = Ones(others, 300'000);
  floats.back() = others.back() = NAN;
  CheckedBatch batch({tensor}, {other});
  const BatchLaunch launch = batch.Make();
  for (uint32_t block = 0; block < 5; ++block) RunBlock(launch, {block, 5}, random_());
  batch.ExpectAnswer();
  batch.ExpectZeroScratch();
}

TEST_F(KernelBatch, WithBlocksThatRunAtOnceIsAnsweredOnceByTheLast) {
  std::vector<float> floats, masks, others;
  const std::vector<JobTensor> entries = {Ones(floats, 60'000), Ones(masks, 100'000)};
  const std::vector<JobTensor> rest = {Ones(others, 150'000), entries[0]};
  constexpr uint32_t kBlocks = 6;
  for (int round = 0; round < 40; ++round) {
    floats[random_() % 60'000] = round % 3 == 0 ? 1.0f : NAN;
    masks[random_() % 100'000] = round % 2 == 0 ? 1.0f : -INFINITY;
    others[random_() % 150'000] = INFINITY;
    CheckedBatch batch(entries, rest);
    const BatchLaunch launch = batch.Make();
    std::vector<std::thread> threads;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      threads.emplace_back([&, block, seed = random_()] {
        RunBlock(launch, {block, kBlocks}, seed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    batch.ExpectAsReference();
    batch.ExpectZeroScratch();
    ASSERT_FALSE(HasFailure()) << "round " << round;
    for (std::vector<float>* some : {&floats, &masks, &others}) {
      std::fill(some->begin(), some->end(), 1.0f);
    }
  }
}

}  // namespace
}  // namespace nanwatch::device
