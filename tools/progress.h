// SPDX-License-Identifier: Apache-2.0
// What a command that takes long is doing, on stderr. On a terminal, after a second: one line that is
// written anew. Elsewhere a line every ten seconds. A thread of its own writes it, so that it is there
// while the command waits for a database or a receiver.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace nanwatch {

class Progress {
 public:
  struct Output {
    bool terminal = false;
    std::chrono::milliseconds first{10'000};  // nothing before this
    std::chrono::milliseconds next{10'000};
    std::function<void(std::string_view)> write;  // on the thread of this object
  };

  // stderr as it is.
  [[nodiscard]] static Output ToStderr();

  // `what`: "exporting".
  Progress(std::string what, Output output);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // "reading the runs".
  void Now(std::string doing);
  // "3 of 8 runs read"; `of_what` is "runs read".
  void Count(size_t done, size_t all, std::string_view of_what);
  // Nothing is written after this; on a terminal the line is gone. Before anything else is said.
  void End();

 private:
  void Run();

  const std::string what_;
  const Output output_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string doing_;
  bool ended_ = false;
  std::thread writer_;
};

}  // namespace nanwatch
