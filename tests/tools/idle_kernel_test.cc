// SPDX-License-Identifier: Apache-2.0
#include "tools/idle_kernel.h"

#include <gtest/gtest.h>
#include <sys/poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>

#include "daemon/base/clock.h"

namespace nanwatch {
namespace {

std::string Words(std::initializer_list<const char*> words) {
  std::string text;
  for (const char* word : words) text += std::string(word) + '\0';
  return text;
}

TEST(NotebookCommand, IsToldByTheProgramThatRuns) {
  EXPECT_TRUE(
      IsNotebookCommand(Words({"/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "k"})));
  EXPECT_TRUE(IsNotebookCommand(Words({"python3", "/x/site-packages/ipykernel_launcher.py"})));
  EXPECT_TRUE(IsNotebookCommand(Words({"python3", "/usr/lib/colab_kernel_launcher.py"})));
  EXPECT_TRUE(IsNotebookCommand(Words({"/opt/bin/python", "/opt/bin/ipython"})));
  EXPECT_FALSE(IsNotebookCommand(Words({"python3", "train.py", "--notebook"})));
  EXPECT_FALSE(IsNotebookCommand(""));
}

// A process that says it is a kernel, and does what `body` does until it is killed.
class StandIn {
 public:
  template <class Body>
  explicit StandIn(Body body) {
    int ready[2];
    if (pipe(ready) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      body(ready[1]);
      _exit(0);
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~StandIn() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  [[nodiscard]] int pid() const { return pid_; }

 private:
  int pid_ = -1;
};

// Whether it is found idle within two seconds.
bool FoundIdle(int pid) {
  const SystemClock clock;
  IdleKernel kernel(pid, /*is_notebook=*/true);
  const uint64_t until = clock.monotonic_ns() + 2'000'000'000;
  while (clock.monotonic_ns() < until) {
    if (kernel.Look(clock.monotonic_ns())) return true;
    poll(nullptr, 0, 5);
  }
  return false;
}

TEST(IdleKernel, WaitsForInput) {
  const StandIn waiting([](int ready) {
    (void)!write(ready, "x", 1);
    poll(nullptr, 0, -1);
  });
  EXPECT_TRUE(FoundIdle(waiting.pid()));
}

TEST(IdleKernel, IsNoneThatComputes) {
  const StandIn computing([](int ready) {
    (void)!write(ready, "x", 1);
    std::atomic<unsigned> turns{0};
    while (true) turns.fetch_add(1, std::memory_order_relaxed);
  });
  EXPECT_FALSE(FoundIdle(computing.pid()));
}

TEST(IdleKernel, IsNoneThatIsNoNotebook) {
  const SystemClock clock;
  IdleKernel kernel(getpid());
  EXPECT_FALSE(kernel.is_notebook());
  EXPECT_FALSE(kernel.Look(clock.monotonic_ns()));
}

}  // namespace
}  // namespace nanwatch
