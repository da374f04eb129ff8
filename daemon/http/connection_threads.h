// SPDX-License-Identifier: Apache-2.0
// A thread for each open connection of a server. One that is free takes the next connection; where
// more connections wait than threads are free, another thread is made at once. So nobody waits for
// the end of somebody else's request, as long as there are fewer than `threads_max`.
//
// cpp-httplib's own pool counts a thread as free until it has woken up. Of two connections that
// come while it wakes up, the second would have no thread before another connection is closed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace nanwatch {

class ConnectionThreads {
 public:
  using Job = std::function<void()>;

  ConnectionThreads(size_t threads_max, size_t waiting_max)
      : threads_max_(threads_max), waiting_max_(waiting_max) {}
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;
  ~ConnectionThreads() { End(); }

  // False where too many wait, or it has ended: the job is not run.
  [[nodiscard]] bool Run(Job job);
  // Returns once all jobs are done, also those that wait.
  void End();

 private:
  using Threads = std::list<std::thread>;

  [[nodiscard]] bool MakeThread();
  void Work(Threads::iterator self);

  const size_t threads_max_;
  const size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  size_t free_ = 0;  // threads that have no job, or have not taken theirs from `waiting_` yet
  bool ending_ = false;
  Threads threads_;
  Threads ended_;  // to be joined
};

}  // namespace nanwatch
