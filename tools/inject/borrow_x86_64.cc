// SPDX-License-Identifier: Apache-2.0
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <elf.h>
#include <cstddef>
#include <optional>

#include "tools/inject/borrow.h"
#include "tools/inject/target_memory.h"

namespace nanwatch {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{10};  // with a thread that waits for a disk

// Since Linux 5.13; older headers do not have it.
constexpr auto kGetRseqConfiguration = static_cast<__ptrace_request>(0x420f);
struct RseqConfiguration {
  uint64_t area;
  uint32_t size, signature, flags, padding;
};
struct RseqSection {
  uint32_t version, flags;
  uint64_t begin, bytes, abort;
};

// A section that is to be restarted when the thread was interrupted would not know that it was.
bool IsInRestartableSequence(int thread, uint64_t pc) {
  RseqConfiguration configuration = {};
  if (ptrace(kGetRseqConfiguration, thread, sizeof configuration, &configuration) < 0 ||
      configuration.area == 0)
    return false;
  const std::optional<ProcessMemory> memory = ProcessMemory::Open(thread);
  if (!memory) return true;
  const auto section = memory->Get<uint64_t>(configuration.area + 8);
  if (!section || *section == 0) return !section;
  const auto bounds = memory->Get<RseqSection>(*section);
  return !bounds || pc - bounds->begin < bounds->bytes;
}

// As long as this lives, SIGCHLD waits to be taken, which says that a thread has come to stand.
class ChildSignalHeldBack {
 public:
  ChildSignalHeldBack() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~ChildSignalHeldBack() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  ChildSignalHeldBack(const ChildSignalHeldBack&) = delete;
  ChildSignalHeldBack& operator=(const ChildSignalHeldBack&) = delete;

  // Sleeps until one comes: who spins is the one whom the scheduler passes over when it counts.
  void Await() const {
    const timespec moment = {.tv_sec = 0, .tv_nsec = 50'000'000};
    sigtimedwait(&set_, nullptr, &moment);
  }

 private:
  sigset_t set_;
  sigset_t before_;
};

// As long as this lives we run as soon as we can, where we may (CAP_SYS_NICE): on a busy host a
// thread would otherwise stand until it is our turn.
class Haste {
 public:
  Haste() {
    const sched_param first = {.sched_priority = 1};
    policy_ = sched_getscheduler(0);
    made_ = sched_getparam(0, &before_) == 0 &&
            sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) == 0;
  }
  ~Haste() {
    if (made_) sched_setscheduler(0, policy_, &before_);
  }
  Haste(const Haste&) = delete;
  Haste& operator=(const Haste&) = delete;

 private:
  sched_param before_ = {};
  int policy_ = SCHED_OTHER;
  bool made_ = false;
};

// Waits until it stands. Its wait status; nothing when it has ended or does not come to stand.
std::optional<int> AwaitStop(int thread, const ChildSignalHeldBack& signal) {
  const SteadyClock::time_point patience = SteadyClock::now() + kPatience;
  for (;;) {
    int status = 0;
    const pid_t waited = waitpid(thread, &status, __WALL | WNOHANG);
    if (waited == thread) return WIFSTOPPED(status) ? std::optional(status) : std::nullopt;
    if (waited < 0 || SteadyClock::now() >= patience) return std::nullopt;
    signal.Await();
  }
}

// Sends it to `entry` when it stands in user mode at a place that allows it.
bool Redirect(int thread, uint64_t entry,
              const std::function<bool(uint64_t pc, uint64_t sp)>& prepare) {
  user_regs_struct registers = {};
  iovec into = {.iov_base = &registers, .iov_len = sizeof registers};
  if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &into) != 0) return false;
  if (static_cast<int64_t>(registers.orig_rax) >= 0) return false;  // in a system call
  if (IsInRestartableSequence(thread, registers.rip)) return false;
  if (!prepare(registers.rip, registers.rsp)) return false;
  return ptrace(PTRACE_POKEUSER, thread, offsetof(user_regs_struct, rip), entry) == 0;
}

}  // namespace

BorrowNeeds ReadBorrowNeeds() {
  BorrowNeeds needs = {.possible = true};
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kOsXsave = 1U << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kOsXsave) != 0 &&
      __get_cpuid_count(0xD, 0, &a, &b, &c, &d) != 0) {
    needs.xsave_bytes = b;  // for what the system has enabled
  }
  return needs;
}

BorrowResult BorrowThread(int thread, uint64_t entry,
                          const std::function<bool(uint64_t pc, uint64_t sp)>& prepare) {
  BorrowResult result;
  if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
    result.refusal = errno;
    result.borrowed = errno == ESRCH ? Borrowed::kNotNow : Borrowed::kNever;
    return result;
  }
  const ChildSignalHeldBack stops;
  const Haste haste;
  const SteadyClock::time_point began = SteadyClock::now();
  ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
  const std::optional<int> status = AwaitStop(thread, stops);
  if (!status) return result;
  // A signal on its way comes first, and goes on its way.
  const bool of_ours = *status >> 16 == PTRACE_EVENT_STOP;
  const long due = *status >> 16 == 0 ? WSTOPSIG(*status) : 0;
  if (of_ours && WSTOPSIG(*status) == SIGTRAP && Redirect(thread, entry, prepare))
    result.borrowed = Borrowed::kYes;
  ptrace(PTRACE_DETACH, thread, nullptr, due);
  result.stopped = SteadyClock::now() - began;
  return result;
}

}  // namespace nanwatch
