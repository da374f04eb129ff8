// SPDX-License-Identifier: Apache-2.0
#include "tools/progress.h"

#include <unistd.h>

#include <utility>

#include "tools/terminal.h"

namespace nanwatch {
namespace {

// Erases to the end of the line; the cursor stays at its beginning, so that another line on stderr
// takes this one's place.
constexpr std::string_view kErase = "\x1b[K";

constexpr std::chrono::milliseconds kFirstOnTerminal{1000};
constexpr std::chrono::milliseconds kNextOnTerminal{200};

}  // namespace

Progress::Output Progress::ToStderr() {
  Output output;
  output.terminal = isatty(STDERR_FILENO) == 1;
  if (output.terminal) {
    output.first = kFirstOnTerminal;
    output.next = kNextOnTerminal;
  }
  output.write = [](std::string_view text) { WriteAll(STDERR_FILENO, text); };
  return output;
}

Progress::Progress(std::string what, Output output)
    : what_(std::move(what)), output_(std::move(output)), writer_([this] { Run(); }) {}

Progress::~Progress() { End(); }

void Progress::Now(std::string doing) {
  const std::lock_guard<std::mutex> lock(mutex_);
  doing_ = std::move(doing);
}

void Progress::Count(size_t done, size_t all, std::string_view of_what) {
  Now(std::to_string(done) + " of " + std::to_string(all) + " " + std::string(of_what));
}

void Progress::End() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

void Progress::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  bool written = false;
  auto wait = output_.first;
  while (!changed_.wait_for(lock, wait, [this] { return ended_; })) {
    wait = output_.next;
    std::string line = "nanwatch: " + what_ + (doing_.empty() ? "" : ": " + doing_);
    line += output_.terminal ? std::string(kErase) + "\r" : "\n";
    output_.write(line);
    written = true;
  }
  if (written && output_.terminal) output_.write(kErase);
}

}  // namespace nanwatch
