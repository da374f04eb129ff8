// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/judge.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "daemon/store/store.h"

namespace nanwatch {
namespace {

// Longer than anybody waits; a duration without end would overflow on its way to the clock.
constexpr uint64_t kPatienceMaxNs = uint64_t{3'600} * 1'000'000'000;

}  // namespace

Judge::~Judge() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Judge::Begin(const std::string& database, const std::string& job) {
  busy_ = true;
  {
    const std::lock_guard lock(mutex_);
    request_ = Request{database, job};
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  changed_.notify_all();
}

std::optional<Judge::Judgment> Judge::Take(uint64_t patience_ns) {
  if (!busy_) return {};
  std::unique_lock lock(mutex_);
  const std::chrono::nanoseconds patience(std::min(patience_ns, kPatienceMaxNs));
  if (!changed_.wait_for(lock, patience, [this] { return judgment_.has_value(); })) return {};
  busy_ = false;
  return std::exchange(judgment_, std::nullopt);
}

void Judge::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || request_.has_value(); });
    if (stop_) return;
    const Request request = *std::exchange(request_, std::nullopt);
    lock.unlock();
    Judgment judgment{request.job, JudgeOne(request)};
    lock.lock();
    judgment_ = std::move(judgment);
    changed_.notify_all();
  }
}

Result<Verdict> Judge::JudgeOne(const Request& request) const try {
  const Result<Store> store = Store::OpenForReading(request.database);
  if (!store.ok()) return store.status();
  const Result<std::vector<RunFacts>> facts = store->FactsOfJob(request.job);
  if (!facts.ok()) return facts.status();
  Verdict verdict = diagnosis_(*facts);
  auto& incidents = *verdict.mutable_incidents();
  if (incidents.size() > kIncidentsPerJobMax) {
    incidents.DeleteSubrange(kIncidentsPerJobMax, incidents.size() - kIncidentsPerJobMax);
  }
  return verdict;
} catch (const std::bad_alloc&) {
  return Status(ErrorKind::kIo, "no memory to judge job " + request.job);
}

}  // namespace nanwatch
