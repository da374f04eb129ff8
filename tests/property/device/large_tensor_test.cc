// SPDX-License-Identifier: Apache-2.0
// More than 2^31 elements: nothing is read here but what a pretended memory answers.
#include <algorithm>

#include "tests/property/device/checked_launch.h"

namespace nanwatch::device {
namespace {

// Zeros wherever one looks, but for one part. Addresses stand for nothing.
struct PretendedMemory : CpuMemory {
  static inline uint64_t bad_address = 0;  // of a float32 that is NaN
  static inline uint64_t lowest = ~uint64_t{0}, highest = 0;

  static Vector LoadVector(uint64_t address) {
    ExpectAligned(address, sizeof(Vector));
    lowest = std::min(lowest, address);
    highest = std::max(highest, address + sizeof(Vector));
    Vector vector = {};
    if (bad_address - address < sizeof(Vector))
      vector.word[(bad_address - address) / 4] = 0x7fc00000;
    return vector;
  }
  template <class Word>
  static Word LoadPart(uint64_t address) {
    ExpectAligned(address, sizeof(Word));
    lowest = std::min(lowest, address);
    highest = std::max(highest, address + sizeof(Word));
    return address == bad_address ? static_cast<Word>(0x7fc00000) : Word{0};
  }
};

constexpr uint64_t kBase = uint64_t{1} << 40;

DeviceTensor Floats(int64_t numel) {
  DeviceTensor tensor = {};
  tensor.data = kBase;
  tensor.numel = numel;
  tensor.type = static_cast<uint8_t>(wire::ElementType::kFloat32);
  return tensor;
}

// What one block of many finds in its share of one output.
uint32_t ScanOneBlock(const DeviceTensor& tensor, Place place) {
  BlockState block = {};
  block.head.output_count = 1;
  PlanScan(tensor, block.outputs[0]);
  PretendedMemory::lowest = ~uint64_t{0};
  PretendedMemory::highest = 0;
  for (uint32_t thread = 0; thread < kThreadsPerBlock; ++thread) {
    Scan<PretendedMemory>(block, place, thread);
  }
  return block.bad_outputs;
}

TEST(KernelOnLargeTensors, OfNineThousandMillionElementsIsReadToItsEnd) {
  const int64_t numel = 9'000'000'001;
  constexpr uint32_t kBlocks = 100'000;
  const uint64_t units = static_cast<uint64_t>(numel) * 4 / kVectorBytes;
  const auto last_block = static_cast<uint32_t>((units - 1) / ShareUnits(units, kBlocks));
  PretendedMemory::bad_address = kBase + (numel - 2) * 4;  // in the last whole vector
  EXPECT_EQ(ScanOneBlock(Floats(numel), {last_block, kBlocks}), 1u);
  EXPECT_EQ(PretendedMemory::highest, kBase + (numel - 1) * 4);
  EXPECT_EQ(ScanOneBlock(Floats(numel), {last_block - 1, kBlocks}), 0u);
  PretendedMemory::bad_address = PretendedMemory::lowest;
  EXPECT_EQ(ScanOneBlock(Floats(numel), {last_block - 1, kBlocks}), 1u);
  PretendedMemory::bad_address = kBase + (numel - 1) * 4;  // the tail, which the first block reads
  EXPECT_EQ(ScanOneBlock(Floats(numel), {0, kBlocks}), 1u);
}

TEST(KernelOnLargeTensors, IsCutIntoSharesThatMissNothingAndOverlapNowhere) {
  std::mt19937_64 random(20240610);
  for (int round = 0; round < 100'000; ++round) {
    const uint64_t units = random() >> (24 + random() % 40);
    const auto blocks = static_cast<uint32_t>(1 + random() % 400);
    const uint64_t share = ShareUnits(units, blocks);
    ASSERT_GE(share * blocks, units) << units << " units, " << blocks << " blocks";
    // No thread has more than one unit beyond an equal part.
    ASSERT_LT(share, units / blocks + 2 * kThreadsPerBlock) << units << " units, " << blocks;
  }
}

TEST(KernelOnLargeTensors, HasEveryUnitWhereDivisionPutsIt) {
  std::mt19937_64 random(20240611);
  for (int round = 0; round < 1'000'000; ++round) {
    WalkDim dim = {};
    dim.size = 2 + (random() >> (14 + random() % 49));
    dim.inverse = 1.0 / static_cast<double>(dim.size);
    uint64_t unit = random() >> (13 + random() % 50);
    if (round % 2 == 0) unit = unit / dim.size * dim.size + dim.size - (round % 4 == 0 ? 1 : 0);
    if (unit >= uint64_t{1} << 51) continue;
    ASSERT_EQ(Quotient(unit, dim, false), unit / dim.size) << unit << " / " << dim.size;
  }
}

TEST(KernelOnLargeTensors, WithGapsHasItsLastElementWhereTheStridesPutIt) {
  DeviceTensor tensor = Floats(0);
  tensor.ndim = 3;
  const int64_t sizes[] = {70'000, 3, 50'000}, strides[] = {400'000, 130'000, 2};
  for (int d = 0; d < 3; ++d) {
    tensor.sizes[d] = sizes[d];
    tensor.strides[d] = strides[d];
  }
  const uint64_t last = kBase + 4 * (69'999ull * 400'000 + 2ull * 130'000 + 49'999ull * 2);
  Walk walk;
  PlanScan(tensor, walk);
  ASSERT_EQ(walk.units, 70'000ull * 3 * 50'000);
  EXPECT_EQ(walk.is_narrow, 0u);
  uint64_t units[] = {walk.units - 1, 0}, addresses[2];
  FindUnits<PretendedMemory>(walk, units, addresses);
  EXPECT_EQ(addresses[0], last);
  EXPECT_EQ(addresses[1], kBase);

  PlanCount(tensor, walk);
  ASSERT_EQ(walk.units, 70'000ull * 3 * 50'000);
  EXPECT_EQ(RowOf(walk, walk.units - 1), 70'000ull * 3 * 50'000 - 1);
}

TEST(KernelOnLargeTensors, ExpandedToThousandsOfMillionsIsReadAndCountedOnce) {
  float element = NAN;
  const JobTensor tensor = {wire::ElementType::kFloat32, &element, {100'000, 90'000}, {0, 0}};
  CheckedLaunch launch({tensor}, {});
  std::mt19937_64 random(1);
  launch.Run(1, random);
  EXPECT_EQ(launch.result.outputs[0].nan, 9'000'000'000u);
  EXPECT_EQ(launch.result.outputs[0].first_bad, 0u);
}

FewLaunch LaunchOf(std::vector<DeviceTensor> outputs) {
  FewLaunch launch = {};
  launch.head.output_count = static_cast<uint32_t>(outputs.size());
  std::copy(outputs.begin(), outputs.end(), launch.tensors);
  return launch;
}

TEST(KernelGrid, IsOneBlockForLittleAndAllThatCanBeResidentForMuch) {
  EXPECT_EQ(GridFor(LaunchOf({}), 132), 1u);
  EXPECT_EQ(GridFor(LaunchOf({Floats(0)}), 132), 1u);
  EXPECT_EQ(GridFor(LaunchOf({Floats(1)}), 132), 1u);
  EXPECT_EQ(GridFor(LaunchOf({Floats(16'384)}), 132), 1u);    // 64 KiB
  EXPECT_EQ(GridFor(LaunchOf({Floats(262'144)}), 132), 32u);  // 1 MiB in shares of 32 KiB
  EXPECT_EQ(GridFor(LaunchOf({Floats(1), Floats(262'144)}), 132), 32u);
  EXPECT_EQ(GridFor(LaunchOf({Floats(int64_t{1} << 33)}), 132), 264u);
  EXPECT_EQ(GridFor(LaunchOf({Floats(int64_t{1} << 33)}), 0), 1u);
}

}  // namespace
}  // namespace nanwatch::device
