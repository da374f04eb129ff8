// SPDX-License-Identifier: Apache-2.0
// What a step's share of counting is spent on, and what is found without any.
#include "tests/property/device/checked_launch.h"
#include "tests/property/device/every_type.h"

namespace nanwatch::device {
namespace {

// Counts what is read.
struct CountingMemory : CpuMemory {
  static inline uint64_t vectors = 0, parts = 0;

  static Vector LoadVector(uint64_t address) {
    ++vectors;
    return CpuMemory::LoadVector(address);
  }
  template <class Word>
  static Word LoadPart(uint64_t address) {
    ++parts;
    return CpuMemory::LoadPart<Word>(address);
  }
};

// A NaN wherever one looks. Addresses stand for nothing.
struct NanMemory : CpuMemory {
  static inline uint64_t loads = 0;

  static Vector LoadVector(uint64_t) {
    ++loads;
    return {{0x7fc00000, 0x7fc00000, 0x7fc00000, 0x7fc00000}};
  }
  template <class Word>
  static Word LoadPart(uint64_t) {
    ++loads;
    return static_cast<Word>(0x7fc00000);
  }
};

class KernelInBrief : public testing::Test {
 protected:
  static constexpr size_t kCount = 1'000'000;

  static JobTensor Fill(std::vector<float>& floats, size_t count, float value) {
    floats.assign(count, value);
    return DenseTensor(wire::ElementType::kFloat32, floats.data(), count);
  }
  // In a step that has had its share.
  void Run(CheckedLaunch& launch) {
    launch.ClearResult();
    launch.words.counted = kCountedInFullMax;
    launch.Run(3, random_);
    EXPECT_EQ(launch.words.counted, kCountedInFullMax);
  }
  // The same by one block, with what it reads counted.
  static void RunCounting(CheckedLaunch& launch) {
    launch.ClearResult();
    launch.words.counted = kCountedInFullMax;
    const auto parameters = launch.Make<FewLaunch>();
    BlockState block = {};
    CpuTeam team(1);
    team.Each([&](uint32_t thread, Tally&) { CopyLaunch(parameters, block, thread); });
    CountingMemory::vectors = CountingMemory::parts = 0;
    CheckBlock<CountingMemory>(block, {0, 1}, team);
  }

  std::mt19937_64 random_{20261122};
};

TEST_F(KernelInBrief, EndsWithTheFirstInfinity) {
  std::vector<float> floats;
  const JobTensor tensor = Fill(floats, kCount, INFINITY);
  CheckedLaunch launch({tensor}, {});
  RunCounting(launch);
  EXPECT_EQ(launch.result.brief, 1u);
  EXPECT_EQ(launch.result.output_kinds[0], wire::kHasPosInf);
  EXPECT_LT(CountingMemory::parts, 1000u);
  EXPECT_LT(CountingMemory::vectors, kCount / 4 + 2 * kTileUnits) << "the scan, and one turn more";
}

TEST_F(KernelInBrief, ReadsCleanInputsSixteenBytesAtATime) {
  std::vector<float> floats, clean;
  const JobTensor bad = Fill(floats, 20'000, NAN), input = Fill(clean, kCount, 1.0f);
  CheckedLaunch launch({bad}, {input});
  RunCounting(launch);
  EXPECT_EQ(launch.result.output_kinds[0], wire::kHasNan);
  EXPECT_EQ(launch.result.input_kinds[0], 0);
  launch.ExpectBrieflyAsReference();
  EXPECT_LT(CountingMemory::parts, 1000u);
  EXPECT_LT(CountingMemory::vectors, kCount / 4 + 4 * kTileUnits);
}

TEST_F(KernelInBrief, KnowsABadInputWhereverItIsBad) {
  std::vector<float> floats, inputs;
  const JobTensor bad = Fill(floats, 20'000, NAN);
  JobTensor input = Fill(inputs, kCount, 1.0f);
  input.data = inputs.data() + 1;  // off 16 bytes: with head and tail
  input.sizes = {static_cast<int64_t>(kCount) - 2};
  for (const size_t at : {size_t{1}, kCount - 2, kCount - 6, kCount / 2, size_t{4}, size_t{3}}) {
    inputs[at] = at % 2 == 0 ? NAN : -INFINITY;
    CheckedLaunch launch({bad}, {input});
    Run(launch);
    EXPECT_EQ(launch.result.input_kinds[0], at % 2 == 0 ? wire::kHasNan : wire::kHasNegInf) << at;
    launch.ExpectBrieflyAsReference();
    inputs[at] = 1.0f;
  }
}

TEST_F(KernelInBrief, LooksForANanBehindMasks) {
  std::vector<float> floats;
  const JobTensor tensor = Fill(floats, kCount, -INFINITY);
  floats[kCount - 1] = NAN;
  CheckedLaunch launch({tensor}, {});
  Run(launch);
  EXPECT_EQ(launch.result.output_kinds[0], wire::kHasNan | wire::kHasNegInf);
}

TEST_F(KernelInBrief, DoesNotLookBehindMasksForEver) {
  std::vector<float> floats;
  const JobTensor tensor = Fill(floats, 2 * kMaskTurnsMax * kTileUnits * 4, -INFINITY);
  floats.back() = NAN;
  CheckedLaunch launch({tensor}, {});
  Run(launch);
  EXPECT_EQ(launch.result.output_kinds[0], wire::kHasNegInf);
}

TEST_F(KernelInBrief, CountsWhatIsSmallInFull) {
  std::vector<float> floats, few, fewest;
  const JobTensor bad = Fill(floats, 20'000, NAN);
  const JobTensor input = Fill(few, 1023, 2.0f), other = Fill(fewest, 1000, NAN);
  few[5] = -3.0f;
  CheckedLaunch launch({bad, other}, {input});
  Run(launch);
  EXPECT_EQ(launch.result.brief, 1u);
  EXPECT_EQ(launch.result.inputs[0].finite_min, -3.0);
  EXPECT_EQ(launch.result.outputs[1].nan, 1000u);
  CheckedLaunch small({other}, {input});
  Run(small);
  small.ExpectAsReference();
  EXPECT_EQ(small.result.brief, 0u);
}

TEST_F(KernelInBrief, IsWhatWouldGoBeyondTheStepsShareAndNoMore) {
  std::vector<float> floats;
  const JobTensor tensor = Fill(floats, 20'000, 1.0f);
  floats[0] = floats[19'999] = NAN;
  constexpr uint32_t kUnits = 20'000u >> kCountUnitShift;
  CheckedLaunch launch({tensor}, {});
  launch.words.counted = kCountedInFullMax - kUnits + 1;
  launch.Run(3, random_);
  EXPECT_EQ(launch.result.brief, 1u);
  EXPECT_EQ(launch.words.counted, kCountedInFullMax - kUnits + 1) << "others may still be counted";
  launch.ClearResult();
  launch.words.counted = kCountedInFullMax - kUnits;
  launch.Run(3, random_);
  launch.ExpectAsReference();
  EXPECT_EQ(launch.result.brief, 0u);
  EXPECT_EQ(launch.words.counted, kCountedInFullMax);
}

TEST(CountedAfter, IsLessByASixtyFourthOfTheShareForEachStepAndNeverLessThanNothing) {
  EXPECT_EQ(CountedAfter(kCountedInFullMax, 0), kCountedInFullMax);
  EXPECT_EQ(CountedAfter(kCountedInFullMax, 1), kCountedInFullMax / 64 * 63);
  EXPECT_EQ(CountedAfter(kCountedInFullMax, 63), kCountedInFullMax / 64);
  EXPECT_EQ(CountedAfter(kCountedInFullMax, 64), 0u);
  EXPECT_EQ(CountedAfter(kCountedInFullMax, ~uint64_t{0}), 0u);
  EXPECT_EQ(CountedAfter(7, 1), 0u);
}

// Ten seconds of one block, in a step that has counted nothing.
TEST_F(KernelInBrief, IsATensorThatIsMoreThanAStepMayCount) {
  StepWords words = {};
  LaunchHead head = {};
  head.step_word = reinterpret_cast<uint64_t>(&words);
  DeviceTensor tensor = {};
  tensor.data = uint64_t{1} << 40;
  tensor.numel = 10'000'000'000;
  tensor.type = static_cast<uint8_t>(wire::ElementType::kFloat32);
  CountState state = {};
  CpuTeam team(1);
  TensorCounts counts = {};
  NanMemory::loads = 0;
  CountTensor<NanMemory>(head, tensor, /*is_clean=*/false, state, team,
                         [&counts](const TensorCounts& found) { counts = found; });
  EXPECT_EQ(KindsOf(counts), wire::kHasNan);
  EXPECT_EQ(state.any_brief, 1u);
  EXPECT_EQ(words.counted, 0u);
  EXPECT_LT(NanMemory::loads, 1000u);
}

class KernelInBriefOnTypes : public EveryType {};

TEST_P(KernelInBriefOnTypes, KnowsWhatIsBadInDenseTensors) {
  GuardedMemory memory(200'000);
  const size_t element = values_.element_bytes(), part = values_.part_bytes();
  for (int round = 0; round < 40; ++round) {
    const size_t count = 1024 + random_() % (memory.bytes() / element - 1024);
    char* const data = round % 2 == 0 ? memory.end() - count * element
                                      : memory.begin() + random_() % 16 / part * part;
    if (data + count * element > memory.end()) continue;
    values_.FillBad(memory.begin(), memory.bytes());
    values_.FillFinite(data, count * element);
    const JobTensor tensor = DenseTensor(values_.type(), data, count);
    for (uint64_t bad = random_() % 3; bad > 0; --bad) {
      values_.PutBad(data + random_() % (count * element) / part * part);
    }
    float nans[2] = {NAN, NAN};
    CheckedLaunch launch({DenseTensor(wire::ElementType::kFloat32, nans, 2), tensor}, {tensor});
    launch.words.counted = kCountedInFullMax;
    launch.Run(1 + random_() % 5, random_);
    launch.ExpectBrieflyAsReference();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

NANWATCH_EVERY_TYPE(KernelInBriefOnTypes);

}  // namespace
}  // namespace nanwatch::device
