// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/device/checker_fixture.h"

#include <utility>

#include "proto/wire/record.h"

namespace nanwatch::device {
namespace {

CuStream AsStream(void* stream) { return static_cast<CuStream>(stream); }

void Remember(void* context, const Finished& finished) {
  Told told = {finished.device,   finished.outcome,
               finished.captured, finished.ticket,
               finished.hits,     {},
               std::nullopt,      {}};
  EXPECT_EQ(finished.result != nullptr, finished.outcome == Finished::Outcome::kBad);
  if (finished.result != nullptr) told.result = *finished.result;
  if (finished.sums != nullptr) told.sums = *finished.sums;
  if (finished.measures != nullptr) {
    told.measures.assign(finished.measures, finished.measures + kMeasuredMax);
  }
  static_cast<std::vector<Told>*>(context)->push_back(told);
}

}  // namespace

std::vector<uint64_t> TicketsOf(const std::vector<Told>& told) {
  std::vector<uint64_t> tickets;
  tickets.reserve(told.size());
  for (const Told& one : told) tickets.push_back(one.ticket);
  return tickets;
}

CheckerTest::CheckerTest() {
  fake_cuda_reset(2);
  RegisterReferenceKernels();
  fake_cuda_set_device(0);
  driver_ = DriverOfProcess().value();
  options_.image = ".version 7.0";
  options_.image_bytes = 13;
  options_.grid_for = [](const LaunchHead& head, const DeviceTensor*, int multiprocessors) {
    return head.output_count * 1000 + static_cast<uint32_t>(multiprocessors);
  };
  options_.list_grid_for = [](const ListLaunch& launch, int multiprocessors) {
    return launch.head.output_count * 10'000 + static_cast<uint32_t>(multiprocessors);
  };
  options_.memory_for = [](void* context, int device) {
    auto* test = static_cast<CheckerTest*>(context);
    std::vector<std::byte>& memory = test->given_memory_[device];
    memory.assign(test->given_bytes_ != 0 ? test->given_bytes_ : HostBytesFor(test->options_),
                  std::byte{0x5a});
    return std::span<std::byte>(memory);
  };
  options_.memory_context = this;
  options_.slots = 64;
  options_.captured_slots = 16;
  options_.progress_every = 8;
  options_.warm_up_wait_ns = 0;  // nothing runs before the test says so
}

void CheckerTest::TearDown() {
  EXPECT_STREQ(fake_cuda_misdeed(), nullptr);
  EXPECT_STREQ(BrokenContract(), nullptr);
  for (size_t i = 0; i < fake_cuda_log_size(); ++i) {
    const std::string entry = fake_cuda_log_entry(i);
    for (const char* waiting : {"Synchronize", "Query", "Memcpy", "Free", "SetCurrent"}) {
      EXPECT_EQ(entry.find(waiting), std::string::npos) << entry;
    }
  }
}

void CheckerTest::Make() {
  checker_ = DeviceChecker::Create(driver_, options_);
  ASSERT_NE(checker_, nullptr);
}

void CheckerTest::MakeReady(int device) {
  if (checker_ == nullptr) Make();
  EXPECT_EQ(Check(fake_cuda_new_stream(device), {Clean()}, {}, device).skip, Skip::kStarting);
  fake_cuda_run_all();
  ASSERT_TRUE(checker_->Ready(device));
}

DeviceTensor CheckerTest::Tensor(std::vector<float> values) {
  values_.push_back(std::move(values));
  DeviceTensor tensor = {};
  tensor.data = reinterpret_cast<uint64_t>(values_.back().data());
  tensor.numel = static_cast<int64_t>(values_.back().size());
  tensor.type = static_cast<uint8_t>(wire::ElementType::kFloat32);
  return tensor;
}

Enqueued CheckerTest::Check(void* stream, const std::vector<DeviceTensor>& outputs,
                            const std::vector<DeviceTensor>& inputs, int device) {
  return checker_->Enqueue({AsStream(stream), device, outputs, inputs});
}

Enqueued CheckerTest::CheckList(void* stream, const std::vector<ListEntry>& gate,
                                const std::vector<ListEntry>& others) {
  return checker_->EnqueueList({AsStream(stream), 0, gate, others});
}

Enqueued CheckerTest::CheckBatch(void* stream, const std::vector<BatchEntry>& entries,
                                 const std::vector<BatchEntry>& others) {
  return checker_->EnqueueBatch({AsStream(stream), 0, entries, others});
}

uint64_t CheckerTest::CheckOne(void* stream, const DeviceTensor& output, int device) {
  const Enqueued enqueued = Check(stream, {output}, {}, device);
  EXPECT_EQ(enqueued.skip, Skip::kNone);
  EXPECT_EQ(enqueued.launches, 1u);
  return enqueued.first_ticket;
}

std::vector<Told> CheckerTest::Poll() {
  std::vector<Told> told;
  const size_t count = checker_->Poll(&Remember, &told);
  EXPECT_EQ(count, told.size());
  return told;
}

std::vector<Told> CheckerTest::RunAndPoll(const std::vector<void*>& streams, int device) {
  for (void* stream : streams) EXPECT_EQ(checker_->Flush(device, AsStream(stream)), Skip::kNone);
  fake_cuda_run_all();
  return Poll();
}

uint64_t CheckerTest::Skips(Skip skip) const {
  return checker_->Counters().skips[static_cast<size_t>(skip)];
}

uint64_t CheckerTest::Failures(Failure failure) const {
  return checker_->Counters().failures[static_cast<size_t>(failure)];
}

std::vector<std::string> CheckerTest::LogSince(size_t since) {
  std::vector<std::string> entries;
  for (size_t i = since; i < fake_cuda_log_size(); ++i)
    entries.emplace_back(fake_cuda_log_entry(i));
  return entries;
}

}  // namespace nanwatch::device
