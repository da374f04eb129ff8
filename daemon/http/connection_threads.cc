// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/connection_threads.h"

#include <chrono>
#include <exception>
#include <new>
#include <utility>

namespace nanwatch {
namespace {

constexpr std::chrono::seconds kFreeFor{3};  // that a thread without a job stays

void Join(std::list<std::thread>& threads) {
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

}  // namespace

bool ConnectionThreads::Run(Job job) try {
  Threads ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ending_ || waiting_.size() >= waiting_max_ + free_) return false;
    waiting_.push_back(std::move(job));
    if (waiting_.size() > free_ && threads_.size() < threads_max_ && !MakeThread() &&
        threads_.empty()) {
      waiting_.pop_back();
      return false;
    }
    ended.swap(ended_);
  }
  changed_.notify_one();
  Join(ended);
  return true;
} catch (const std::bad_alloc&) {
  // Of its place among those that wait: nothing has changed.
  return false;
}

// False where the system has none, or no memory for it: the job waits for another's.
bool ConnectionThreads::MakeThread() {
  Threads made;
  try {
    const auto self = made.emplace(made.end());
    *self = std::thread([this, self] { Work(self); });
  } catch (const std::exception&) {
    return false;
  }
  // It waits for the mutex, which is held here.
  threads_.splice(threads_.end(), made);
  ++free_;
  return true;
}

void ConnectionThreads::Work(Threads::iterator self) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_work = [this] { return ending_ || !waiting_.empty(); };
  while (changed_.wait_for(lock, kFreeFor, has_work) && !waiting_.empty()) {
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    --free_;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    ++free_;
  }
  --free_;
  ended_.splice(ended_.end(), threads_, self);
  changed_.notify_all();
}

void ConnectionThreads::End() {
  Threads ended;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return threads_.empty(); });
    ended.swap(ended_);
  }
  Join(ended);
}

}  // namespace nanwatch
