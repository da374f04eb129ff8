// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/judge.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "daemon/store/store.h"

namespace nanwatch {
namespace {

// Longer than anybody waits; a duration without end would overflow on its way to the clock.
constexpr uint64_t kPatienceMaxNs = uint64_t{3'600} * 1'000'000'000;
constexpr size_t kWordsMax = 200;  // of an exception
// Memory of a judgment of more records is given back at once, which takes some milliseconds.
constexpr int kRecordsKeptCheap = 5'000;

Status Failure(const std::exception& error) noexcept try {
  return Status(ErrorKind::kInvalid, std::string(error.what()).substr(0, kWordsMax));
} catch (const std::bad_alloc&) {
  return Status(ErrorKind::kInvalid, "an exception");
}

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

void Judge::Begin(const std::string& database, const std::string& job, uint64_t generation) {
  Request request{database, job, generation};  // before anything is changed: this may throw
  Judgment refused{job, generation, Status(ErrorKind::kResources, "no memory")};
  busy_ = true;
  if (!thread_.joinable()) {
    try {
      thread_ = start_thread_([this] { Work(); });
    } catch (const std::system_error& error) {
      refused.verdict =
          Status(ErrorKind::kResources, std::string("no thread to judge it: ") + error.what());
    } catch (const std::bad_alloc&) {
    }
  }
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) {
    request_ = std::move(request);
  } else {
    judgment_ = std::move(refused);
  }
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
    Request request = *std::exchange(request_, std::nullopt);
    lock.unlock();
    Result<Verdict> verdict = JudgeOne(request);
    lock.lock();
    judgment_ = Judgment{std::move(request.job), request.generation, std::move(verdict)};
    changed_.notify_all();
  }
}

// The texts are short enough to need no memory.
Result<Verdict> Judge::JudgeOne(const Request& request) const noexcept {
  try {
    return DoJudge(request);
  } catch (const std::bad_alloc&) {
    return Status(ErrorKind::kResources, "no memory");
  } catch (const std::exception& error) {
    return Failure(error);
  } catch (...) {
    return Status(ErrorKind::kInvalid, "an exception");
  }
}

Result<Verdict> Judge::DoJudge(const Request& request) const {
  const Result<Store> store = Store::OpenForReading(request.database);
  if (!store.ok()) return store.status();
  Result<std::vector<RunFacts>> facts = store->FactsOfJob(request.job);
  if (!facts.ok()) return facts.status();
  Verdict verdict = diagnosis_(*facts);
  int records = 0;
  for (const RunFacts& run : *facts) records += run.records_size();
  facts->clear();
  if (records > kRecordsKeptCheap) malloc_trim(0);
  auto& incidents = *verdict.mutable_incidents();
  if (incidents.size() > kIncidentsPerJobMax) {
    incidents.DeleteSubrange(kIncidentsPerJobMax, incidents.size() - kIncidentsPerJobMax);
  }
  return verdict;
}

}  // namespace nanwatch
