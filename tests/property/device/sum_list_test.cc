// SPDX-License-Identifier: Apache-2.0
// Sums of lists: every type that is summed, over sizes around a vector, a turn of a block and a
// tile, at every alignment, by one block and by several; values whose squares no float holds.
#include <cmath>
#include <thread>

#include "tests/property/device/checked_sum_list.h"
#include "tests/property/device/every_type.h"
#include "tests/property/device/shelf.h"

namespace nanwatch::device {
namespace {

using wire::ElementType;

constexpr uint32_t kBlocks[] = {1, 2, 5, 13};

class SumsOfType : public EveryType {};

TEST_P(SumsOfType, AreThoseOfAllPartsOfTheGate) {
  Shelf shelf(size_t{4} << 20);
  const std::vector<JobTensor> tensors = ManySizes(shelf, values_);
  for (const uint32_t blocks : kBlocks) {
    for (const size_t gate : {tensors.size(), tensors.size() / 2, size_t{1}}) {
      CheckedSumList list(tensors, gate);
      list.Run(blocks, random_);
      list.ExpectAsReference();
      ASSERT_FALSE(HasFailure()) << blocks << " blocks, gate of " << gate;
    }
  }
}

TEST_P(SumsOfType, LeaveTheAnswerToABadValueAsItIs) {
  Shelf shelf(size_t{4} << 20);
  const std::vector<JobTensor> tensors = ManySizes(shelf, values_);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t bytes = static_cast<size_t>(tensors[i].sizes[0]) * values_.element_bytes();
    if (bytes == 0) continue;
    for (const size_t byte : {size_t{0}, bytes - values_.part_bytes()}) {
      const Planted planted(values_, At(tensors[i], byte));
      CheckedSumList list(tensors, 1 + random_() % tensors.size());
      list.Run(kBlocks[random_() % 4], random_);
      list.ExpectAsReference();
      ASSERT_FALSE(HasFailure()) << "entry " << i << ", byte " << byte;
    }
  }
}

// All is zero but one part, of any magnitude; the type's negative zero, where it has one, is zero.
TEST_P(SumsOfType, TellWhichEntriesAreNotAllZero) {
  const bool has_zero = GetParam() != ElementType::kFloat8E8M0Fnu;
  const bool has_negative_zero = has_zero && GetParam() != ElementType::kFloat8E5M2Fnuz &&
                                 GetParam() != ElementType::kFloat8E4M3Fnuz;
  const size_t part = values_.part_bytes(), count = 2500;
  const size_t bytes = count * values_.element_bytes();
  std::vector<char> zeros(bytes + 16), other(bytes + 16);
  if (has_negative_zero) {
    for (size_t at = part; at <= bytes; at += 3 * part) zeros[at - 1] = static_cast<char>(0x80);
  }
  for (size_t at = 0; at < bytes; at += part * (1 + random_() % 97)) {
    other = zeros;
    other[at / part * part] = 1;  // the smallest magnitude
    CheckedSumList list({DenseTensor(GetParam(), zeros.data(), count),
                         DenseTensor(GetParam(), other.data(), count),
                         DenseTensor(GetParam(), zeros.data() + part, count - 1)});
    list.Run(kBlocks[random_() % 4], random_);
    EXPECT_EQ(list.result.sums.IsZero(0), has_zero);
    EXPECT_EQ(list.result.sums.IsZero(1), false);
    EXPECT_EQ(list.result.sums.IsZero(2), has_zero);
    list.ExpectAsReference();
    ASSERT_FALSE(HasFailure()) << "byte " << at;
  }
}

TEST_P(SumsOfType, BeginWithTheFirstPartAsItIs) {
  std::vector<uint64_t> words = reference::BadWords(GetParam());
  for (const uint64_t word : reference::DelicateFiniteWords(GetParam())) words.push_back(word);
  alignas(16) char data[16] = {};
  for (const uint64_t word : words) {
    std::memcpy(data, &word, values_.part_bytes());
    CheckedSumList list({DenseTensor(GetParam(), data, 1)});
    list.Run(1, random_);
    list.ExpectAsReference();
    ASSERT_FALSE(HasFailure()) << std::hex << word;
  }
}

NANWATCH_EVERY_TYPE(SumsOfType);

// Values of one magnitude, so that none hides behind a larger one.
struct Magnitude {
  ElementType type;
  int exponent_bits, mantissa_bits;
  std::vector<uint64_t> exponents;  // as they stand in the word; 0: subnormal
};

const Magnitude kMagnitudes[] = {
    // The limits of a sum of squares in float lie at 2^-120 and 2^128: at 67 and 190 or so. At 55 a
    // float has a few bits left of a square.
    {ElementType::kFloat32,
     8,
     23,
     {0, 1, 27, 55, 63, 66, 67, 68, 127, 188, 189, 190, 191, 227, 254}},
    {ElementType::kBFloat16,
     8,
     7,
     {0, 1, 27, 55, 63, 66, 67, 68, 127, 188, 189, 190, 191, 227, 254}},
    {ElementType::kComplex64, 8, 23, {0, 27, 127, 227}},
    {ElementType::kFloat16, 5, 10, {0, 1, 15, 30}},
    {ElementType::kComplex32, 5, 10, {0, 1, 30}},
    {ElementType::kFloat64, 11, 52, {700, 1023, 1500}},
    {ElementType::kComplex128, 11, 52, {1023}},
};

class SumsOfMagnitude : public testing::Test {
 protected:
  void Fill(std::vector<char>& bytes, const Magnitude& of, uint64_t exponent, uint64_t one_in) {
    const auto part = static_cast<size_t>(reference::PartBytes(of.type));
    for (size_t at = 0; at + part <= bytes.size(); at += part) {
      const uint64_t mantissa = random_() >> (64 - of.mantissa_bits);
      const uint64_t sign = (random_() & 1) << (of.exponent_bits + of.mantissa_bits);
      uint64_t word = sign | exponent << of.mantissa_bits | mantissa;
      if (random_() % one_in != 0) word = 0;
      std::memcpy(bytes.data() + at, &word, part);
    }
  }

  std::mt19937_64 random_{20261122};
};

TEST_F(SumsOfMagnitude, NeitherOverflowNorVanish) {
  for (const Magnitude& of : kMagnitudes) {
    const auto element =
        static_cast<size_t>(reference::PartBytes(of.type) * reference::Parts(of.type));
    for (const uint64_t exponent : of.exponents) {
      for (const uint64_t one_in : {1, 40}) {
        std::vector<char> bytes(80'000);
        Fill(bytes, of, exponent, one_in);
        const size_t count = bytes.size() / element;
        CheckedSumList list({DenseTensor(of.type, bytes.data(), count),
                             DenseTensor(of.type, bytes.data() + element, 1000)});
        list.Run(kBlocks[random_() % 4], random_);
        list.ExpectAsReference();
        EXPECT_GT(list.result.sums.squares, 0);
        ASSERT_FALSE(HasFailure()) << reference::Name(of.type) << ", exponent " << exponent;
      }
    }
  }
}

TEST_F(SumsOfMagnitude, AddUpOverTensorsOfAllTypes) {
  std::vector<std::vector<char>> memory;
  std::vector<JobTensor> tensors;
  for (int i = 0; i < kListMax; ++i) {
    const Magnitude& of = kMagnitudes[random_() % std::size(kMagnitudes)];
    const uint64_t bias = (uint64_t{1} << (of.exponent_bits - 1)) - 1;
    memory.emplace_back(16 * (random_() % 600));
    Fill(memory.back(), of, bias, 1 + random_() % 3);
    const auto element =
        static_cast<size_t>(reference::PartBytes(of.type) * reference::Parts(of.type));
    tensors.push_back(DenseTensor(of.type, memory.back().data(), memory.back().size() / element));
  }
  for (const uint32_t blocks : {1u, 3u, 40u}) {
    CheckedSumList list(tensors);
    list.Run(blocks, random_);
    list.ExpectAsReference();
  }
}

class KernelSums : public testing::Test {
 protected:
  static JobTensor Ones(std::vector<float>& floats, size_t count) {
    floats.assign(count, 1.0f);
    return DenseTensor(ElementType::kFloat32, floats.data(), count);
  }
  std::mt19937_64 random_{20261123};
};

TEST_F(KernelSums, AreOfTheGateAloneAndReadNothingBehindACleanOne) {
  std::vector<float> gate_floats, floats;
  const JobTensor gate = Ones(gate_floats, 5000);
  JobTensor rest = Ones(floats, 100);
  rest.data = reinterpret_cast<const void*>(16);  // an access would end the test
  CheckedSumList list({gate, rest, rest}, 1);
  list.Run(3, random_);
  EXPECT_EQ(list.result.sums.squares, 5000);
  EXPECT_EQ(list.result.sums.first, 1);
  EXPECT_FALSE(list.result.sums.IsZero(0));
  EXPECT_TRUE(list.result.sums.IsZero(1));
  list.ExpectNoAnswer();
}

TEST_F(KernelSums, OfNothingOrOfNoReadableTypeAreZero) {
  std::vector<float> floats;
  JobTensor tensor = Ones(floats, 100);
  for (const uint8_t type : {0, int{wire::kElementTypeCount}, 255}) {
    tensor.type = static_cast<ElementType>(type);
    CheckedSumList list({tensor, tensor});
    list.Run(2, random_);
    EXPECT_EQ(list.result.sums_ticket, CheckedSumList::kTicket);
    EXPECT_EQ(list.result.sums.squares, 0);
    EXPECT_EQ(list.result.sums.first, 0);
    EXPECT_TRUE(list.result.sums.IsZero(0));
  }
}

TEST_F(KernelSums, OfAnEmptyFirstEntryBeginWithZero) {
  std::vector<float> floats;
  const JobTensor ones = Ones(floats, 10);
  // Reading any of them would end the test.
  for (const uint64_t address : {0, 16}) {
    const JobTensor empty = DenseTensor(ElementType::kFloat32, reinterpret_cast<void*>(address), 0);
    CheckedSumList list({empty, ones});
    list.Run(1, random_);
    EXPECT_EQ(list.result.sums.first, 0);
    EXPECT_EQ(list.result.sums.squares, 10);
    EXPECT_TRUE(list.result.sums.IsZero(0));
    EXPECT_FALSE(list.result.sums.IsZero(1));
  }
}

TEST_F(KernelSums, WithoutAListWriteProgressAlone) {
  CheckedSumList list({});
  SumLaunch launch{list.Make()};
  launch.head.result = launch.head.scratch = 0;  // an access would end the test
  RunLaunch(launch, 1, random_);
  EXPECT_EQ(list.progress, CheckedSumList::kTicket);
}

TEST_F(KernelSums, OfOneBlockNeedNoScratch) {
  std::vector<float> floats;
  CheckedSumList list({Ones(floats, 1000)});
  SumLaunch launch{list.Make()};
  launch.head.scratch = launch.head.progress = 0;  // an access would end the test
  RunLaunch(launch, 1, random_);
  EXPECT_EQ(list.result.sums.squares, 1000);
}

TEST_F(KernelSums, RunAgainAreThoseOfTheNewValues) {
  std::vector<float> floats;
  CheckedSumList list({Ones(floats, 20'000)});
  floats[7] = NAN;
  list.Run(5, random_);
  list.ExpectAsReference();
  floats.assign(20'000, 2.0f);
  list.Run(5, random_);
  EXPECT_EQ(list.result.sums.squares, 80'000);
  floats[7] = INFINITY;
  floats[0] = 3.0f;
  list.Run(5, random_);
  EXPECT_EQ(list.result.sums.first, 3);
  EXPECT_EQ(list.result.hits, 2u);
}

// Notes in which order the host gets to see what.
struct WatchedMemory : CpuMemory {
  static inline const ListResult* result = nullptr;
  static inline std::vector<uint64_t> published;
  static inline double squares_when_told = 0;
  static void PublishToHost(uint64_t address, uint64_t value) {
    published.push_back(address);
    if (address == reinterpret_cast<uint64_t>(&result->sums_ticket)) {
      squares_when_told = result->sums.squares;
    }
    CpuMemory::PublishToHost(address, value);
  }
};

TEST_F(KernelSums, AreToldBeforeAllElse) {
  std::vector<float> floats;
  const JobTensor ones = Ones(floats, 300);
  for (const bool is_bad : {false, true}) {
    if (is_bad) floats[299] = NAN;
    CheckedSumList list({ones});
    WatchedMemory::published.clear();
    WatchedMemory::result = &list.result;
    const auto block = std::make_unique<SumState>();
    CpuTeam team(1);
    const ListLaunch launch = list.Make();
    team.Each([&](uint32_t thread, Tally&) { CopyList(launch, block->list, thread); });
    SumListBlock<WatchedMemory>(*block, {0, 1}, team);
    std::vector<uint64_t> expected = {reinterpret_cast<uint64_t>(&list.result.sums_ticket)};
    if (is_bad) expected.push_back(reinterpret_cast<uint64_t>(&list.result.ticket));
    expected.push_back(reinterpret_cast<uint64_t>(&list.progress));
    EXPECT_EQ(WatchedMemory::published, expected);
    if (is_bad) continue;
    EXPECT_EQ(WatchedMemory::squares_when_told, 300);
  }
}

TEST_F(KernelSums, WithBlocksThatRunAtOnceAreToldOnceByTheLast) {
  std::vector<float> floats, others;
  const std::vector<JobTensor> tensors = {Ones(floats, 60'000), Ones(others, 100'000)};
  constexpr uint32_t kAtOnce = 6;
  for (int round = 0; round < 40; ++round) {
    floats[random_() % 60'000] = round % 3 == 0 ? 3.0f : NAN;
    CheckedSumList list({tensors[0], tensors[1], tensors[0]}, 2);
    const SumLaunch launch{list.Make()};
    std::vector<std::thread> threads;
    for (uint32_t block = 0; block < kAtOnce; ++block) {
      threads.emplace_back([&, block, seed = random_()] {
        RunBlock(launch, {block, kAtOnce}, seed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    list.ExpectAsReference();
    EXPECT_EQ(std::memcmp(&list.scratch, &CheckedLaunch::kZero, sizeof(list.scratch)), 0);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    std::fill(floats.begin(), floats.end(), 1.0f);
  }
}

}  // namespace
}  // namespace nanwatch::device
