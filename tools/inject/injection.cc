// SPDX-License-Identifier: Apache-2.0
#include "tools/inject/injection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>

#include "daemon/base/unique_fd.h"
#include "tools/inject/borrow.h"
#include "tools/inject/hook.h"
#include "tools/inject/job_images.h"
#include "tools/inject/target_memory.h"

namespace nanwatch {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr int kLookEveryMs = 1;
constexpr Milliseconds kLongWait{1000};
// A training comes to the hook every few milliseconds: who does not is asked to, now and then.
constexpr Milliseconds kBorrowAfter{200};
// Only a thread that was computing at so many polls in a row: another may be about to wait.
constexpr int kLooksRunning = 20;
// A call that was asked for stays so; that it got lost is what the next is for.
constexpr Milliseconds kBorrowAgain{5000};
constexpr uint64_t kStackNeeded = 64 << 10;
// Once the library is being loaded nothing can stop it, and little is gained by going away.
constexpr std::chrono::seconds kLoadPatience{60};

// Signals that would end us wait as long as this lives, and are seen by a descriptor.
class EndHeldBack {
 public:
  EndHeldBack() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&ends, signal);
    sigprocmask(SIG_BLOCK, &ends, &before_);
    readable_ = UniqueFd(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~EndHeldBack() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  EndHeldBack(const EndHeldBack&) = delete;
  EndHeldBack& operator=(const EndHeldBack&) = delete;

  // Waits so long for one.
  [[nodiscard]] bool Comes(int wait_ms) const {
    pollfd fd = {.fd = readable_.get(), .events = POLLIN, .revents = 0};
    return poll(&fd, 1, wait_ms) > 0;
  }

 private:
  sigset_t before_;
  UniqueFd readable_;
};

// Its folder in /proc: a lock on it keeps a second tool out, and goes with whoever holds it.
UniqueFd OpenFolder(int pid) {
  return UniqueFd(
      open(("/proc/" + std::to_string(pid)).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// Whether the main thread computes: it is not in a system call.
bool MainThreadRuns(int pid) {
  const std::string id = std::to_string(pid);
  std::string state;
  std::ifstream("/proc/" + id + "/task/" + id + "/syscall") >> state;
  return state == "running";
}

// Its own stack, which grows, or one with enough space.
bool HasRoomOnStack(const Mappings& mappings, uint64_t stack_pointer) {
  const Mapping* mapping = MappingAt(mappings, stack_pointer);
  return mapping != nullptr && mapping->writable &&
         (mapping->path == "[stack]" || stack_pointer - mapping->begin >= kStackNeeded);
}

InjectionResult Failed(std::string problem) {
  InjectionResult result;
  result.problem = std::move(problem);
  return result;
}

class Waiting {
 public:
  Waiting(const Injection& injection, Hook& hook) : injection_(injection), hook_(hook) {}

  // Until a thread has come, `limit` is over, or this process is to end.
  InjectionResult Run() {
    const EndHeldBack end;
    if (!hook_.Set()) return Failed("it ended in the meantime");
    const SteadyClock::time_point deadline = began_ + injection_.limit;
    bool said = false;
    while (IsOpen() && !end.Comes(kLookEveryMs) && SteadyClock::now() < deadline) {
      const auto waited = SteadyClock::now() - began_;
      if (waited >= kLongWait && !said && injection_.on_wait) injection_.on_wait();
      said = said || waited >= kLongWait;
      if (waited >= kBorrowAfter) ConsiderLoan();
    }
    hook_.Remove();
    AwaitEnd();
    return Conclude();
  }

 private:
  // No thread has begun yet.
  bool IsOpen() {
    block_ = hook_.Read();
    if (block_ && block_->state == NANWATCH_STATE_ABANDONED) hook_.Rearm();
    return block_ &&
           (block_->state == NANWATCH_STATE_ARMED || block_->state == NANWATCH_STATE_ABANDONED);
  }

  // The main thread computes, and is not on loan: it is asked to run a pending call.
  void ConsiderLoan() {
    const SteadyClock::time_point now = SteadyClock::now();
    if (hook_.borrowed_entry() == 0 || refused_ || now < next_loan_ || block_->lent == 1) return;
    looks_running_ = MainThreadRuns(injection_.pid) ? looks_running_ + 1 : 0;
    if (looks_running_ < kLooksRunning) return;
    looks_running_ = 0;
    const Mappings mappings = ReadMappings(injection_.pid);
    const BorrowResult loan =
        BorrowThread(injection_.pid, hook_.borrowed_entry(), [&](uint64_t pc, uint64_t stack) {
          return HasRoomOnStack(mappings, stack) && hook_.PrepareLoan(pc);
        });
    refused_ = loan.borrowed == Borrowed::kNever;
    if (loan.borrowed == Borrowed::kYes) next_loan_ = SteadyClock::now() + kBorrowAgain;
    if (loan.stopped.count() == 0) return;
    ++result_.stops;
    result_.stopped_max = std::max(result_.stopped_max, loan.stopped);
  }

  // A thread that has claimed the load finishes it.
  void AwaitEnd() {
    const SteadyClock::time_point patience = SteadyClock::now() + kLoadPatience;
    for (block_ = hook_.Read(); block_ && SteadyClock::now() < patience; block_ = hook_.Read()) {
      if (block_->state != NANWATCH_STATE_CLAIMED && block_->state != NANWATCH_STATE_RUNNING)
        return;
      poll(nullptr, 0, kLookEveryMs);
    }
  }

  InjectionResult Conclude() {
    result_.took = SteadyClock::now() - began_;
    if (!block_) {
      result_.problem = "it ended in the meantime";
    } else if (block_->state == NANWATCH_STATE_DONE) {
      result_.called = true;
      result_.answer = block_->answer;
    } else if (block_->state == NANWATCH_STATE_FAILED) {
      block_->error.back() = '\0';
      result_.problem = "its loader refused the library: " + std::string(block_->error.data());
    } else if (block_->state == NANWATCH_STATE_RUNNING) {
      result_.problem = "its loader has been loading it for a minute and has not finished";
    } else {
      result_.in_time = false;
      result_.problem = "none of its threads reached the hook";
    }
    return result_;
  }

  const Injection& injection_;
  Hook& hook_;
  const SteadyClock::time_point began_ = SteadyClock::now();
  SteadyClock::time_point next_loan_ = began_;
  std::optional<PayloadBlock> block_;
  bool refused_ = false;
  int looks_running_ = 0;
  InjectionResult result_;
};

}  // namespace

InjectionResult Inject(const Injection& injection) {
  const UniqueFd folder = OpenFolder(injection.pid);
  if (!folder.valid()) return Failed("it ended in the meantime");
  if (flock(folder.get(), LOCK_EX | LOCK_NB) != 0)
    return Failed("somebody else is attaching to it right now; try again");
  std::optional<ProcessMemory> memory = ProcessMemory::Open(injection.pid);
  if (!memory) return Failed("its memory cannot be opened: " + std::string(strerror(errno)));
  const Mappings mappings = ReadMappings(injection.pid);
  Room room(*memory);
  const JobFunctions functions = FindJobFunctions(*memory, mappings, injection.free_threaded, room);
  if (!functions.problem.empty()) return Failed(functions.problem);
  std::optional<Hook> hook = Hook::Place(*memory, room, injection.pid, functions, injection.call,
                                         ReadBorrowNeeds().xsave_bytes);
  if (!hook)
    return Failed("there is no room in it for a hook, or it is loading the library already");
  return Waiting(injection, *hook).Run();
}

}  // namespace nanwatch
