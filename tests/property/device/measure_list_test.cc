// SPDX-License-Identifier: Apache-2.0
// What nanwatch_measure_list says of each tensor is what the CPU says of it: every type, over sizes
// around a vector, a turn of a block and a tile, at every alignment, by one block and by several.
#include <cmath>
#include <thread>

#include "tests/property/device/checked_measure_list.h"
#include "tests/property/device/every_type.h"
#include "tests/property/device/shelf.h"

namespace nanwatch::device {
namespace {

using wire::ElementType;

constexpr uint32_t kBlocks[] = {1, 2, 5, 13};

class MeasuresOfType : public EveryType {};

TEST_P(MeasuresOfType, AreThoseOfTheCpu) {
  Shelf shelf(size_t{4} << 20);
  const std::vector<JobTensor> tensors = ManySizes(shelf, values_);
  for (const uint32_t blocks : kBlocks) {
    CheckedMeasureList list(tensors);
    list.Run(blocks, random_);
    list.ExpectAsMoments();
    ASSERT_FALSE(HasFailure()) << blocks << " blocks";
  }
}

TEST_P(MeasuresOfType, SayWhichEntryIsNotFinite) {
  if (!IsMeasured(static_cast<uint8_t>(GetParam()))) return;
  Shelf shelf(size_t{4} << 20);
  const std::vector<JobTensor> tensors = ManySizes(shelf, values_);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t bytes = static_cast<size_t>(tensors[i].sizes[0]) * values_.element_bytes();
    if (bytes == 0) continue;
    for (const size_t byte : {size_t{0}, bytes - values_.part_bytes()}) {
      const Planted planted(values_, At(tensors[i], byte));
      CheckedMeasureList list(tensors);
      list.Run(kBlocks[random_() % 4], random_);
      list.ExpectAsMoments();
      for (size_t other = 0; other < tensors.size(); ++other) {
        EXPECT_EQ(list.result.measures[other].IsFinite(), other != i);
      }
      ASSERT_FALSE(HasFailure()) << "entry " << i << ", byte " << byte;
    }
  }
}

NANWATCH_EVERY_TYPE(MeasuresOfType);

class KernelMeasures : public testing::Test {
 protected:
  static JobTensor Floats(const std::vector<float>& floats) {
    return DenseTensor(ElementType::kFloat32, floats.data(), floats.size());
  }
  std::mt19937_64 random_{20261122};
};

TEST_F(KernelMeasures, LeaveADeviationOfWhatIsNearlyAllTheSame) {
  std::vector<float> floats(100'001, 0.1f);
  floats[77'777] = std::nextafter(0.1f, 1.0f);
  CheckedMeasureList list({Floats(floats)});
  list.Run(3, random_);
  const Measure& told = list.result.measures[0];
  const Moments moments = {told.sum, told.squares, told.largest, told.zeros};
  const double step = double{floats[77'777]} - double{0.1f};
  EXPECT_LT(moments.StandardDeviation(floats.size()), 1e-6);
  EXPECT_NEAR(moments.Mean(floats.size()), double{0.1f} + step / 100'001, 1e-14);
}

TEST_F(KernelMeasures, CountZerosOfEitherSignAndNothingElse) {
  for (const uint32_t blocks : kBlocks) {
    std::vector<float> floats(70'000, 0.0f);
    for (size_t i = 0; i < floats.size(); i += 3) floats[i] = i % 2 == 0 ? -0.0f : 1e-45f;
    CheckedMeasureList list({Floats(floats), Floats({}), Floats(floats)});
    list.Run(blocks, random_);
    list.ExpectAsMoments();
    EXPECT_EQ(list.result.measures[2].zeros, 70'000u - 11'667u);
  }
}

TEST_F(KernelMeasures, FillAsManyEntriesAsThereAre) {
  std::vector<std::vector<float>> memory;
  std::vector<JobTensor> tensors;
  for (int i = 0; i < kMeasuredMax; ++i) {
    std::vector<float>& floats = memory.emplace_back(random_() % 40'000);
    for (float& value : floats) value = static_cast<float>(i) - static_cast<float>(random_() % 9);
    tensors.push_back(Floats(floats));
  }
  for (const uint32_t blocks : {1u, 3u, 40u, 264u}) {
    CheckedMeasureList list(tensors);
    list.Run(blocks, random_);
    list.ExpectAsMoments();
  }
}

TEST_F(KernelMeasures, WithoutAListWriteProgressAlone) {
  CheckedMeasureList list({});
  MeasureLaunch launch = list.Make();
  launch.head.result = launch.head.scratch = 0;  // an access would end the test
  RunLaunch(launch, 1, random_);
  EXPECT_EQ(list.progress, CheckedMeasureList::kTicket);
}

// Notes in which order the host gets to see what.
struct WatchedMemory : CpuMemory {
  static inline const MeasureResult* result = nullptr;
  static inline std::vector<uint64_t> published;
  static inline double squares_when_told = 0;
  static void PublishToHost(uint64_t address, uint64_t value) {
    published.push_back(address);
    if (published.size() == 1) squares_when_told = result->measures[0].squares;
    CpuMemory::PublishToHost(address, value);
  }
};

TEST_F(KernelMeasures, AreThereBeforeTheTicketAndTheTicketBeforeTheProgress) {
  const std::vector<float> floats(300, 2.0f);
  CheckedMeasureList list({Floats(floats)});
  WatchedMemory::published.clear();
  WatchedMemory::result = &list.result;
  const auto block = std::make_unique<MeasureState>();
  CpuTeam team(1);
  const ListLaunch launch = list.Make();
  team.Each([&](uint32_t thread, Tally&) { CopyList(launch, block->list, thread); });
  MeasureListBlock<WatchedMemory>(*block, {0, 1}, team);
  EXPECT_EQ(WatchedMemory::published,
            (std::vector<uint64_t>{reinterpret_cast<uint64_t>(&list.result.measures_ticket),
                                   reinterpret_cast<uint64_t>(&list.progress)}));
  EXPECT_EQ(WatchedMemory::squares_when_told, 1200);
}

TEST_F(KernelMeasures, WithBlocksThatRunAtOnceAreToldOnceByTheLast) {
  std::vector<float> floats(60'000, 1.0f), others(100'000, -1.0f);
  constexpr uint32_t kAtOnce = 6;
  for (int round = 0; round < 40; ++round) {
    floats[random_() % 60'000] = static_cast<float>(round);
    CheckedMeasureList list({Floats(floats), Floats(others), Floats(floats)});
    const MeasureLaunch launch = list.Make();
    std::vector<std::thread> threads;
    for (uint32_t block = 0; block < kAtOnce; ++block) {
      threads.emplace_back([&, block, seed = random_()] {
        RunBlock(launch, {block, kAtOnce}, seed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    list.ExpectDone();
    list.ExpectAsMoments();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace nanwatch::device
