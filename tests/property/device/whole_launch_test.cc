// SPDX-License-Identifier: Apache-2.0
// Launches of several tensors, and what they leave behind.
#include <thread>

#include "tests/property/device/checked_launch.h"
#include "tests/property/device/every_type.h"

namespace nanwatch::device {
namespace {

// A tensor of random type, size and place in memory of its own; one in `one_bad_in` holds something
// bad.
class Arena {
 public:
  JobTensor Draw(std::mt19937_64& random, uint32_t one_bad_in) {
    constexpr size_t kTypes = std::size(reference::kAllTypes);
    Values values(reference::kAllTypes[random() % kTypes], random());
    constexpr size_t kBytesMax[] = {64, 4096, 40'000};
    const size_t part = values.part_bytes(), element = values.element_bytes();
    const size_t count = random() % (kBytesMax[random() % 3] / element);
    char* const data = random() % 2 == 0 ? memory_.end() - count * element
                                         : memory_.begin() + random() % 16 / part * part;
    values.FillBad(memory_.begin(), memory_.bytes());
    values.FillFinite(data, count * element);
    if (count != 0 && random() % one_bad_in == 0) {
      values.PutBad(data + random() % (count * element) / part * part);
    }
    JobTensor tensor = DenseTensor(values.type(), data, count);
    if (count % 2 == 0 && random() % 3 == 0) {  // every second column
      const auto half = static_cast<int64_t>(count / 2);
      tensor = {values.type(), data, {2, half / 2}, {half, 2}};
    }
    return tensor;
  }

 private:
  GuardedMemory memory_{40'960};
};

class KernelLaunch : public testing::Test {
 protected:
  std::vector<JobTensor> DrawTensors(size_t first, size_t count, uint32_t one_bad_in) {
    std::vector<JobTensor> tensors;
    for (size_t i = 0; i < count; ++i) {
      tensors.push_back(arenas_[first + i].Draw(random_, one_bad_in));
    }
    return tensors;
  }

  // A tensor of `count` floats, all of them 1.
  static JobTensor Ones(std::vector<float>& floats, size_t count) {
    floats.assign(count, 1.0f);
    return DenseTensor(wire::ElementType::kFloat32, floats.data(), count);
  }

  std::mt19937_64 random_{20240609};
  Arena arenas_[kManyTensors];
};

TEST_F(KernelLaunch, SaysOfEveryTensorWhatTheReferenceSays) {
  int hits = 0;
  for (int round = 0; round < 400; ++round) {
    const auto outputs = DrawTensors(0, 1 + random_() % kOutputsMax, 12);
    const auto inputs = DrawTensors(kOutputsMax, random_() % (kInputsMax + 1), 2);
    CheckedLaunch launch(outputs, inputs);
    launch.Run(1 + random_() % 12, random_);
    launch.ExpectAsReference();
    hits += launch.result.ticket != 0;
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GT(hits, 50);
  EXPECT_LT(hits, 350);
}

TEST_F(KernelLaunch, ByBothParameterListsSaysTheSame) {
  for (int round = 0; round < 20; ++round) {
    CheckedLaunch launch(DrawTensors(0, 2, 1), DrawTensors(2, 2, 1));
    launch.Run(4, random_);
    const CheckResult few = launch.result;
    launch.ClearResult();
    RunLaunch(launch.Make<ManyLaunch>(), 4, random_);
    EXPECT_EQ(std::memcmp(&few, &launch.result, sizeof(few)), 0);
  }
}

TEST_F(KernelLaunch, ReadsTheEighthDimensionOfItsLastTensor) {
  // Parameters from the first byte to the last are used: two elements, 70 apart.
  std::vector<float> floats(71, 1.0f);
  floats[0] = floats[70] = NAN;
  const JobTensor tensor = {wire::ElementType::kFloat32,
                            floats.data(),
                            {1, 1, 1, 1, 1, 1, 1, 2},
                            {1, 1, 1, 1, 1, 1, 1, 70}};
  for (const int inputs : {kFewTensors - 1, kInputsMax}) {
    const std::vector<JobTensor> outputs(inputs == kInputsMax ? kOutputsMax : 1, tensor);
    CheckedLaunch launch(outputs, std::vector<JobTensor>(static_cast<size_t>(inputs), tensor));
    launch.Run(1, random_);
    launch.ExpectAsReference();
  }
}

TEST_F(KernelLaunch, WithoutAnOutputIsClean) {
  CheckedLaunch launch({}, DrawTensors(0, 2, 1));
  launch.Run(1, random_);
  launch.ExpectNoAnswer();
}

TEST_F(KernelLaunch, OfNoReadableTypeIsClean) {
  std::vector<float> floats;
  JobTensor tensor = Ones(floats, 100);
  floats[3] = NAN;
  for (const uint8_t type : {0, int{wire::kElementTypeCount}, 255}) {
    tensor.type = static_cast<wire::ElementType>(type);
    CheckedLaunch launch({tensor}, {});
    launch.Run(2, random_);
    launch.ExpectNoAnswer();
  }
}

TEST_F(KernelLaunch, RunAgainOverTheSameNanCountsAndKeepsItsFirstFigures) {
  std::vector<float> floats;
  const JobTensor tensor = Ones(floats, 20'000);
  floats[12'345] = NAN;
  CheckedLaunch launch({tensor}, {tensor});
  launch.Run(5, random_);
  launch.ExpectAsReference();
  CheckResult first = launch.result;

  floats[7] = NAN;
  for (uint64_t hits = 2; hits < 5; ++hits) {
    launch.words.steps += hits;  // 2, 5 and 9 steps after the first
    first.again |= uint64_t{1} << (launch.words.steps - first.step - 1);
    launch.progress = 0;
    launch.Run(5, random_);
    EXPECT_EQ(launch.result.hits, hits);
    first.hits = hits;
    EXPECT_EQ(std::memcmp(&first, &launch.result, sizeof(first)), 0) << "the first figures stay";
  }
  EXPECT_EQ(first.again, 0b1'0001'0010u);
  launch.Run(5, random_);
  EXPECT_EQ(launch.result.again, first.again) << "within one step there is nothing to mark";
  for (const uint64_t later : {64, 65, 5000}) {
    launch.words.steps = first.step + later;
    launch.Run(5, random_);
    EXPECT_EQ(launch.result.again, first.again | uint64_t{1} << 63);
  }
  floats[7] = floats[12'345] = 0;
  launch.Run(5, random_);
  EXPECT_EQ(launch.result.hits, 8u) << "a clean execution is none";
}

TEST_F(KernelLaunch, WithoutProgressAndStepWritesNeither) {
  std::vector<float> floats;
  const JobTensor tensor = Ones(floats, 100);
  for (const float value : {1.0f, INFINITY}) {
    floats[99] = value;
    CheckedLaunch launch({tensor}, {});
    auto parameters = launch.Make<FewLaunch>();
    parameters.head.progress = parameters.head.step_word = 0;
    RunLaunch(parameters, 1, random_);
    EXPECT_EQ(launch.progress, 0u);
    if (value == 1.0f) {
      launch.ExpectNoAnswer();
    } else {
      EXPECT_EQ(launch.result.ticket, CheckedLaunch::kTicket);
      EXPECT_EQ(launch.result.step, 0u);
    }
  }
}

TEST_F(KernelLaunch, OfOneBlockNeedsNoScratch) {
  std::vector<float> floats;
  const JobTensor tensor = Ones(floats, 1000);
  floats[999] = NAN;
  CheckedLaunch launch({tensor}, {});
  auto parameters = launch.Make<FewLaunch>();
  parameters.head.scratch = 0;  // an access would end the test
  RunLaunch(parameters, 1, random_);
  launch.ExpectAsReference();
}

// What is published must be complete: *progress is looked at where it is written.
struct WatchingMemory : CpuMemory {
  static inline const CheckResult* result = nullptr;
  static inline uint64_t progress = 0;
  static inline std::vector<std::string> published;
  static void PublishToHost(uint64_t address, uint64_t value) {
    if (address == progress) published.push_back(result->ticket == value ? "progress" : "early");
    if (address == reinterpret_cast<uint64_t>(&result->ticket)) {
      published.push_back(result->outputs[0].nan == 1 && result->hits == 1 ? "ticket" : "early");
    }
    CpuMemory::PublishToHost(address, value);
  }
};

TEST_F(KernelLaunch, PublishesItsTicketAfterTheFiguresAndProgressAfterTheTicket) {
  std::vector<float> floats;
  const JobTensor tensor = Ones(floats, 1000);
  floats[500] = NAN;
  CheckedLaunch launch({tensor}, {});
  WatchingMemory::result = &launch.result;
  WatchingMemory::progress = reinterpret_cast<uint64_t>(&launch.progress);
  WatchingMemory::published.clear();
  const auto parameters = launch.Make<FewLaunch>();
  BlockState block = {};
  CpuTeam team(1);
  team.Each([&](uint32_t thread, Tally&) { CopyLaunch(parameters, block, thread); });
  CheckBlock<WatchingMemory>(block, {0, 1}, team);
  EXPECT_EQ(WatchingMemory::published, (std::vector<std::string>{"ticket", "progress"}));
}

TEST_F(KernelLaunch, WithBlocksThatRunAtOnceIsAnsweredOnceByTheLast) {
  std::vector<float> floats;
  const JobTensor tensor = Ones(floats, 60'000);
  constexpr uint32_t kBlocks = 6;
  for (int round = 0; round < 60; ++round) {
    floats[random_() % 60'000] = round % 3 == 0 ? 1.0f : NAN;
    CheckedLaunch launch({tensor, tensor}, {tensor});
    const auto parameters = launch.Make<FewLaunch>();
    std::vector<std::thread> threads;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      threads.emplace_back([&, block, seed = random_()] {
        RunBlock(parameters, {block, kBlocks}, seed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    launch.ExpectAsReference();
    EXPECT_EQ(launch.scratch.blocks_done, 0u);
    EXPECT_EQ(launch.scratch.bad_outputs, 0u);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    std::fill(floats.begin(), floats.end(), 1.0f);
  }
}

}  // namespace
}  // namespace nanwatch::device
