// SPDX-License-Identifier: Apache-2.0
// Lists of tensors: one of each type and size around a vector, a turn of a block and a tile, at
// every alignment, with a bad value in the first or last element of any of them.
#include <algorithm>
#include <thread>

#include "tests/property/device/checked_list.h"
#include "tests/property/device/drawn_tensors.h"
#include "tests/property/device/every_type.h"

namespace nanwatch::device {
namespace {

class ListOfType : public EveryType {};

TEST_P(ListOfType, FindsABadValueInTheFirstAndTheLastElementOfEachEntry) {
  const size_t per_vector = kVectorBytes / values_.element_bytes();
  const size_t tile = kTileUnits * per_vector;
  Shelf shelf(size_t{8} << 20);
  std::vector<JobTensor> tensors;
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, per_vector, per_vector + 1,
                             3 * per_vector - 1, 511 * per_vector, 513 * per_vector + 1, tile - 1,
                             tile, tile + 1, 2 * tile + per_vector, size_t{0}, size_t{5}}) {
    for (const size_t off : {0u, 15u}) tensors.push_back(shelf.Add(values_, count, off));
  }
  CheckedList clean(tensors);
  clean.Run(7, random_);
  clean.ExpectNoAnswer();
  constexpr uint32_t kBlocks[] = {1, 2, 5, 13};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t bytes = static_cast<size_t>(tensors[i].sizes[0]) * values_.element_bytes();
    if (bytes == 0) continue;
    for (const size_t byte : {size_t{0}, bytes - values_.part_bytes()}) {
      const Planted planted(values_, At(tensors[i], byte));
      CheckedList list(tensors);
      list.Run(kBlocks[random_() % 4], random_);
      list.ExpectAsReference();
      ASSERT_FALSE(HasFailure()) << "entry " << i << " of " << tensors[i].sizes[0] << ", byte "
                                 << byte;
    }
  }
}

NANWATCH_EVERY_TYPE(ListOfType);

class KernelList : public DrawnTensors {
 protected:
  KernelList() : DrawnTensors(20240612) {}
};

TEST_F(KernelList, OfTwoHundredAndFiftySaysOfEachWhatTheReferenceSays) {
  Shelf shelf(size_t{16} << 20);
  const std::vector<JobTensor> tensors = DrawTensors(shelf, kListMax);
  int hits = 0;
  for (int round = 0; round < 45; ++round) {
    // All is the gate, or a part of it, or hardly any.
    const size_t gates[] = {tensors.size(), 1 + random_() % 250, 1 + random_() % 8};
    const Bad bad = Plant(tensors, DrawBadCount());
    CheckedList list(tensors, gates[round % 3]);
    list.Run(1 + static_cast<uint32_t>(random_() % 40), random_);
    list.ExpectAsReference();
    hits += list.result.ticket != 0;
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GT(hits, 10);
  EXPECT_LT(hits, 40);
}

TEST_F(KernelList, LooksAtWhatStandsBehindACleanGateNotAtAll) {
  std::vector<float> gate_floats, floats;
  const JobTensor gate = Ones(gate_floats, 5000);
  JobTensor rest = Ones(floats, 100);
  rest.data = reinterpret_cast<const void*>(16);  // an access would end the test
  CheckedList list({gate, rest, rest}, 1);
  list.Run(3, random_);
  list.ExpectNoAnswer();
}

TEST_F(KernelList, CountsTheFirstOfTheGateAndTheFirstOfTheRest) {
  std::vector<float> floats;
  const JobTensor bad = Ones(floats, 100);
  floats[3] = INFINITY;
  CheckedList list(std::vector<JobTensor>(40, bad), 20);
  list.Run(2, random_);
  list.ExpectAsReference();
  EXPECT_EQ(list.result.counted, static_cast<uint32_t>(kListCountedMax));
  EXPECT_EQ(list.result.entry[kGateCountedMax - 1], kGateCountedMax - 1);
  EXPECT_EQ(list.result.entry[kGateCountedMax], 20);
}

TEST_F(KernelList, OfKindsOnlySaysWhichAreBadAndCountsNone) {
  Shelf shelf(size_t{16} << 20);
  const std::vector<JobTensor> tensors = DrawTensors(shelf, kListMax);
  int hits = 0;
  for (int round = 0; round < 20; ++round) {
    const Bad bad = Plant(tensors, random_() % 60);
    CheckedList list(tensors);
    list.flags = kKindsOnly;
    list.Run(1 + static_cast<uint32_t>(random_() % 40), random_);
    list.ExpectAsReference();
    EXPECT_EQ(list.words.counted, 0u);
    hits += list.result.ticket != 0;
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GT(hits, 10);
}

// As gradients are where parameters are bad: every block reads one tile of each entry.
TEST_F(KernelList, OfKindsOnlyReadsNoFurtherThanTheFirstBadTile) {
  constexpr size_t kFloats = 1'000'000;
  constexpr uint64_t kTileBytes = kTileUnits * kVectorBytes;
  std::vector<float> first(kFloats, NAN), second(kFloats, NAN);
  const auto tensor = [](std::vector<float>& floats) {
    return DenseTensor(wire::ElementType::kFloat32, floats.data(), floats.size());
  };
  const auto read = [&](uint32_t flags, uint32_t blocks) {
    CheckedList list({tensor(first), tensor(second)});
    list.flags = flags;
    CpuMemory::bytes_read = 0;
    list.Run(blocks, random_);
    EXPECT_TRUE(list.result.IsBad(0) && list.result.IsBad(1));
    return CpuMemory::bytes_read;
  };
  for (const uint32_t blocks : {1u, 4u}) {
    EXPECT_GT(read(0, blocks), 4 * kFloats * sizeof(float)) << "scanned, and counted";
    EXPECT_LE(read(kKindsOnly, blocks), blocks * 2 * (kTileBytes + 512));
  }
  // One that is clean is read to its end.
  second.assign(kFloats, 1.0f);
  CheckedList list({tensor(first), tensor(second)});
  list.flags = kKindsOnly;
  list.Run(4, random_);
  list.ExpectAsReference();
}

TEST_F(KernelList, OfNothingOrOfNoReadableTypeIsClean) {
  std::vector<float> floats;
  JobTensor tensor = Ones(floats, 100);
  floats[3] = NAN;
  CheckedList none({});
  none.Run(1, random_);
  none.ExpectNoAnswer();
  for (const uint8_t type : {0, int{wire::kElementTypeCount}, 255}) {
    tensor.type = static_cast<wire::ElementType>(type);
    CheckedList list({tensor});
    list.Run(2, random_);
    list.ExpectNoAnswer();
  }
}

TEST_F(KernelList, RunAgainOverTheSameNanCountsAndKeepsItsFirstFigures) {
  std::vector<float> floats, others;
  const JobTensor tensor = Ones(floats, 20'000);
  floats[12'345] = NAN;
  CheckedList list({tensor, Ones(others, 70)}, 1);
  list.Run(5, random_);
  list.ExpectAsReference();
  ListResult first = list.result;
  others[3] = NAN;
  for (uint64_t hits = 2; hits < 5; ++hits) {
    list.words.steps += hits;
    first.again |= uint64_t{1} << (list.words.steps - first.step - 1);
    first.hits = hits;
    list.Run(5, random_);
    EXPECT_EQ(std::memcmp(&first, &list.result, sizeof(first)), 0) << "the first figures stay";
  }
  floats[12'345] = 0;
  list.Run(5, random_);
  EXPECT_EQ(list.result.hits, 4u) << "a clean execution is none";
}

TEST_F(KernelList, CountsBrieflyOnceItsStepHasHadItsShare) {
  std::vector<float> floats;
  const JobTensor tensor = Ones(floats, 20'000);
  floats[0] = floats[19'999] = NAN;
  CheckedList list({tensor});
  list.words.counted = kCountedInFullMax;
  list.Run(3, random_);
  EXPECT_EQ(list.result.brief, 1u);
  EXPECT_TRUE(list.result.IsBad(0));
  EXPECT_EQ(list.result.kinds[0], wire::kHasNan);
  EXPECT_EQ(list.words.counted, kCountedInFullMax);
}

TEST_F(KernelList, OfOneBlockNeedsNoScratch) {
  std::vector<float> floats;
  const JobTensor tensor = Ones(floats, 1000);
  floats[999] = NAN;
  CheckedList list({tensor, tensor}, 1);
  ListLaunch launch = list.Make();
  launch.head.scratch = launch.head.progress = 0;  // an access would end the test
  RunLaunch(launch, 1, random_);
  list.ExpectAsReference();
  EXPECT_EQ(list.progress, 0u);
}

TEST_F(KernelList, WithBlocksThatRunAtOnceIsAnsweredOnceByTheLast) {
  std::vector<float> floats, others;
  const std::vector<JobTensor> tensors = {Ones(floats, 60'000), Ones(others, 100'000)};
  constexpr uint32_t kBlocks = 6;
  for (int round = 0; round < 40; ++round) {
    floats[random_() % 60'000] = round % 3 == 0 ? 1.0f : NAN;
    others[random_() % 100'000] = round % 2 == 0 ? 1.0f : -INFINITY;
    CheckedList list({tensors[0], tensors[1], tensors[0]}, 2);
    const ListLaunch launch = list.Make();
    std::vector<std::thread> threads;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      threads.emplace_back([&, block, seed = random_()] {
        RunBlock(launch, {block, kBlocks}, seed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    list.ExpectAsReference();
    EXPECT_EQ(std::memcmp(&list.scratch, &CheckedLaunch::kZero, sizeof(list.scratch)), 0);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    std::fill(floats.begin(), floats.end(), 1.0f);
    std::fill(others.begin(), others.end(), 1.0f);
  }
}

ListEntry Floats(uint64_t address, uint64_t count) {
  return MakeEntry(address, count, static_cast<uint8_t>(wire::ElementType::kFloat32));
}

TEST(ListGrid, HasABlockForEachTileUntilTheGpuIsFull) {
  ListLaunch launch = {};
  EXPECT_EQ(ListGridFor(launch, 100), 1u);
  launch.head.output_count = 148;
  for (uint32_t i = 0; i < 148; ++i) launch.entries[i] = Floats(4096 * i + 4096, 768);
  EXPECT_EQ(ListGridFor(launch, 100), 148u);
  EXPECT_EQ(ListGridFor(launch, 10), 10 * kBlocksPerMultiprocessor);
  launch.head.output_count = 1;
  launch.head.input_count = 147;
  EXPECT_EQ(ListGridFor(launch, 100), 1u) << "what stands behind the gate is one block's";
  launch.entries[0] = Floats(4096, 3 * kTileUnits * 4 + 4);
  EXPECT_EQ(ListGridFor(launch, 100), 4u);
}

// A large tensor and a small one: who reads the tile of a bad value, and that nobody reads beyond.
struct PretendedMemory : CpuMemory {
  static inline uint64_t bad_address = 0, lowest = 0, highest = 0;
  static Vector LoadVector(uint64_t address) {
    ExpectAligned(address, sizeof(Vector));
    lowest = std::min(lowest, address);
    highest = std::max(highest, address + sizeof(Vector));
    Vector vector = {};
    if (bad_address - address < sizeof(Vector)) {
      vector.word[(bad_address - address) / 4] = 0x7fc00000;
    }
    return vector;
  }
};

TEST(KernelListOfLargeTensors, OfNineThousandMillionElementsIsReadToItsEnd) {
  constexpr uint64_t kBase = uint64_t{1} << 40;
  constexpr uint64_t kNumel = 9'000'000'000;
  const auto state = std::make_unique<ListState>();
  ListState& block = *state;
  block.head = {};
  block.head.output_count = 2;
  block.entries[0] = Floats(kBase, kNumel);
  block.entries[1] = Floats(kBase + (uint64_t{1} << 39), 8);
  CpuTeam team(1);
  PlanList(block, team);
  const uint32_t tiles = TilesOf(block.entries[0]);
  ASSERT_EQ(tiles, (kNumel / 4 + kTileUnits - 1) / kTileUnits);
  ASSERT_EQ(block.tiles_before[2], tiles + 1);
  const auto scan = [&](uint32_t tile) {
    block.bad[0] = 0;
    PretendedMemory::lowest = ~uint64_t{0};
    PretendedMemory::highest = 0;
    for (uint32_t thread = 0; thread < kThreadsPerBlock; ++thread) {
      ScanTiles<PretendedMemory>(block, 0, tile, 1, tile + 1, thread);
    }
    return block.bad[0];
  };
  PretendedMemory::bad_address = kBase + (kNumel - 1) * 4;
  EXPECT_EQ(scan(tiles - 1), 1u);
  EXPECT_EQ(PretendedMemory::highest, kBase + kNumel * 4);
  EXPECT_EQ(scan(tiles - 2), 0u);
  EXPECT_EQ(PretendedMemory::highest - PretendedMemory::lowest, kTileUnits * kVectorBytes);
  PretendedMemory::bad_address = block.entries[1].data + 28;
  EXPECT_EQ(scan(tiles), 2u);
}

}  // namespace
}  // namespace nanwatch::device
