// SPDX-License-Identifier: Apache-2.0
// Entries of a batch that are too large to be read in full each time: what is read of them, and
// when, and what there is room for once something is found.
#include <algorithm>

#include "tests/property/device/checked_batch.h"
#include "tests/property/device/every_type.h"
#include "tests/property/device/shelf.h"

namespace nanwatch::device {
namespace {

constexpr uint64_t kMegabyte = uint64_t{1} << 20;

BatchEntry Floats(uint64_t address, uint64_t bytes) {
  return MakeEntry(address, bytes / sizeof(float),
                   static_cast<uint8_t>(wire::ElementType::kFloat32));
}

class SampleOfType : public EveryType {};

// Each byte is of one phase of sixteen, but for the few before and behind the vectors.
TEST_P(SampleOfType, MeetsABadValueInOnePhaseAndAtTheEdgesInAll) {
  const size_t element = values_.element_bytes(), part = values_.part_bytes();
  Shelf shelf(size_t{4} << 20);
  // A second tile of some stripes, and a last stripe of some runs.
  const JobTensor tensor =
      shelf.Add(values_, (kMegabyte + 45'000 + random_() % 8192) / element, 15);
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
  const size_t bytes = static_cast<size_t>(tensor.sizes[0]) * element;
  const size_t head = (begin + 15) / 16 * 16 - begin;
  std::vector<size_t> places = {0, head, bytes - part, kMegabyte};
  for (int i = 0; i < 4; ++i) places.push_back(random_() % bytes);
  for (size_t& byte : places) byte = byte / part * part;
  bool was_compared = false;
  for (const size_t byte : places) {
    const bool is_edge = byte < head || byte >= head + (bytes - head) / 16 * 16;
    const Planted planted(values_, At(tensor, byte));
    const JobTensor one = DenseTensor(GetParam(), At(tensor, byte / element * element), 1);
    if (reference::Look(ViewOf(one)).kinds == wire::kHasNegInf) continue;
    uint32_t met = 0;
    for (uint32_t phase = 0; phase < kSamplePhases; ++phase) {
      CheckedBatch batch({tensor});
      batch.phase = phase;
      batch.Run(phase % 4 + 1, random_);
      if (!batch.Answered()) {
        batch.ExpectNoAnswer();
        continue;
      }
      ++met;
      if (!was_compared) batch.ExpectAnswer();
      was_compared = true;
    }
    EXPECT_EQ(met, is_edge ? kSamplePhases : 1) << "byte " << byte << " of " << bytes;
    ASSERT_FALSE(HasFailure());
  }
}

NANWATCH_EVERY_TYPE(SampleOfType);

class KernelSample : public testing::Test {
 protected:
  static JobTensor Ones(std::vector<float>& floats, size_t bytes) {
    floats.assign(bytes / sizeof(float), 1.0f);
    return DenseTensor(wire::ElementType::kFloat32, floats.data(), floats.size());
  }
  std::mt19937_64 random_{20240614};
};

TEST_F(KernelSample, ReadsASixteenthOfALargeEntry) {
  std::vector<float> floats, others;
  const JobTensor tensor = Ones(floats, 16 * kMegabyte);
  CpuMemory::bytes_read = 0;
  CheckedBatch batch({tensor}, {Ones(others, 16 * kMegabyte)});
  batch.Run(5, random_);
  batch.ExpectNoAnswer();
  EXPECT_LE(CpuMemory::bytes_read, kMegabyte + 4096);
  EXPECT_GE(CpuMemory::bytes_read, kMegabyte - 4096);
}

TEST_F(KernelSample, MeetsABadColumnInNearlyEveryPhase) {
  constexpr size_t kRow = 16 * 1024, kRows = 64;  // of 64 KiB
  std::vector<float> floats;
  const JobTensor tensor = Ones(floats, kRow * kRows * sizeof(float));
  for (size_t row = 0; row < kRows; ++row) floats[row * kRow + 5000] = NAN;
  int met = 0;
  for (uint32_t phase = 0; phase < kSamplePhases; ++phase) {
    CheckedBatch batch({tensor});
    batch.phase = phase;
    batch.Run(3, random_);
    met += batch.Answered() ? 1 : 0;
  }
  EXPECT_GE(met, 12);
}

// A hit in one: the others are known in full, wherever they are bad.
TEST_F(KernelSample, IsFollowedByAllOfItOnAHitElsewhere) {
  std::vector<float> large, few, others;
  const JobTensor sampled = Ones(large, 3 * kMegabyte), small = Ones(few, 400);
  const JobTensor other = Ones(others, 2 * kMegabyte);
  few[0] = INFINITY;
  others[3333] = NAN;
  for (uint32_t phase = 0; phase < 3; ++phase) {
    const size_t at = random_() % large.size();
    large[at] = -INFINITY;
    CheckedBatch batch({sampled, small}, {other});
    batch.phase = phase;
    batch.Run(4, random_);
    batch.ExpectAnswer();
    EXPECT_EQ(batch.result.KindsOf(0), wire::kHasNegInf);
    large[at] = 1.0f;
  }
}

// What is read after the hit: the same in every block, in the order of the tensors.
std::vector<uint64_t> RestOf(const std::vector<uint64_t>& entries,
                             const std::vector<uint64_t>& others, uint32_t flags,
                             uint64_t* left_out) {
  const auto state = std::make_unique<BatchState>();
  state->head = {};
  state->head.output_count = static_cast<uint32_t>(entries.size());
  state->head.input_count = static_cast<uint32_t>(others.size());
  state->head.flags = flags;
  uint32_t count = 0;
  for (const uint64_t bytes : entries) state->entries[count++] = Floats(4096, bytes);
  for (const uint64_t bytes : others) state->entries[count++] = Floats(4096, bytes);
  PlanRest(*state);
  *left_out = state->left_out[0] | uint64_t{state->left_out[1]} << 32;
  std::vector<uint64_t> read;
  for (uint32_t i = 0; i < count; ++i) {
    read.push_back((state->rest_ends[i] - (i == 0 ? 0 : state->rest_ends[i - 1])) * 65'536ull);
  }
  return read;
}

TEST(BatchRest, IsTheSampledEntriesAndTheOthersAsFarAsThereIsRoom) {
  uint64_t left_out = 0;
  EXPECT_EQ(RestOf({4096, kMegabyte, 2 * kMegabyte}, {4096, kMegabyte}, 0, &left_out),
            (std::vector<uint64_t>{0, 0, 2 * kMegabyte, 65'536, kMegabyte}));
  EXPECT_EQ(left_out, 0u);
  EXPECT_EQ(RestOf({2 * kMegabyte}, {0}, kReadAll, &left_out), (std::vector<uint64_t>{0, 0}));
  EXPECT_EQ(left_out, 0u);
  constexpr uint64_t kGigabyte = uint64_t{1} << 30;
  EXPECT_EQ(RestOf({3 * kGigabyte, 2 * kGigabyte}, {kGigabyte, 4}, 0, &left_out),
            (std::vector<uint64_t>{3 * kGigabyte, 0, kGigabyte, 0}))
      << "what comes later and is small has room, while there is any";
  EXPECT_EQ(left_out, 0b1010u);
  std::vector<uint64_t> many(kBatchOthersMax, kGigabyte);
  EXPECT_EQ(RestOf(std::vector<uint64_t>(kBatchEntriesMax, 4), many, 0, &left_out).back(), 0u);
  EXPECT_EQ(left_out, ((uint64_t{1} << 20) - 1) << 28);
}

// Sizes that no machine has: zeros wherever one reads, but for one bad vector.
struct PretendedMemory : CpuMemory {
  static inline uint64_t bad_address = 0, lowest = 0, highest = 0, loads = 0;
  static Vector LoadVector(uint64_t address) {
    ExpectAligned(address, sizeof(Vector));
    lowest = std::min(lowest, address);
    highest = std::max(highest, address + sizeof(Vector));
    ++loads;
    Vector vector = {};
    if (bad_address - address < sizeof(Vector)) {
      vector.word[(bad_address - address) / 4] = 0x7fc00000;
    }
    return vector;
  }
  template <class Word>
  static Word LoadPart(uint64_t address) {
    if (address < uint64_t{1} << 47 && address >= uint64_t{1} << 46) {
      return static_cast<Word>(address == bad_address ? 0x7fc00000 : 0);
    }
    return CpuMemory::LoadPart<Word>(address);
  }
};

// Five gigabytes that there is no room to read: it is known to be bad, of which kind, and no more.
TEST(BatchRest, OfAnEntryWithoutRoomIsNotRead) {
  constexpr uint64_t kBase = uint64_t{1} << 46, kBytes = uint64_t{5} << 30;
  CheckedBatch made({});
  BatchLaunch launch = made.Make();
  launch.head.output_count = 1;
  launch.entries[0] = Floats(kBase, kBytes);
  ASSERT_EQ(PlanBatch(launch), kBytes >> 20);
  launch.phase = 0;
  // In the last stripe, in the run that this phase reads.
  constexpr uint32_t kStripes = kBytes / kSampleStripeBytes;
  PretendedMemory::bad_address = kBase + uint64_t{kStripes - 1} * kSampleStripeBytes +
                                 SampledRun(kStripes - 1, kBase, 0) * kSampleRunBytes + 4;
  PretendedMemory::lowest = ~uint64_t{0};
  const auto block = std::make_unique<BatchState>();
  CpuTeam team(1);
  team.Each([&](uint32_t thread, Tally&) { CopyBatch(launch, *block, thread); });
  CheckBatchBlock<PretendedMemory>(*block, {0, 1}, team);
  EXPECT_EQ(PretendedMemory::loads, kBytes / 16 / kVectorBytes);
  EXPECT_GE(PretendedMemory::lowest, kBase);
  EXPECT_LE(PretendedMemory::highest, kBase + kBytes);
  ASSERT_TRUE(made.Answered());
  EXPECT_EQ(made.result.KindsOf(0), wire::kHasNan);
  EXPECT_FALSE(made.result.WasReadInFull(0));
  EXPECT_EQ(made.result.brief, 1u);
  ASSERT_NE(made.result.CountsOf(0), nullptr);
  EXPECT_EQ(made.result.CountsOf(0)->nan, 1u);
  EXPECT_EQ(made.result.CountsOf(0)->first_bad, ~uint64_t{0});
}

TEST(BatchGrid, HasABlockForEachTileUntilTheGpuIsFull) {
  BatchLaunch launch = {};
  EXPECT_EQ(PlanBatch(launch), 0u);
  EXPECT_EQ(BlocksFor(0, 100), 1u);
  launch.head.output_count = 5;
  const uint64_t bytes[] = {4, 65'536, 65'540, kMegabyte, kMegabyte + 4};
  for (int i = 0; i < 5; ++i) launch.entries[i] = Floats(4096, bytes[i]);
  EXPECT_EQ(PlanBatch(launch), 1u + 1 + 2 + 16 + 2);
  EXPECT_EQ(launch.ends[2], 4u);
  launch.head.flags = kReadAll;
  EXPECT_EQ(PlanBatch(launch), 1u + 1 + 2 + 16 + 17);
  launch.entries[0].data = 0;
  EXPECT_EQ(PlanBatch(launch), 1u + 2 + 16 + 17);
  EXPECT_EQ(BlocksFor(22, 100), 22u);
  EXPECT_EQ(BlocksFor(1000, 100), 200u);
}

}  // namespace
}  // namespace nanwatch::device
