// SPDX-License-Identifier: Apache-2.0
#include "shim/host/bus_guard.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

namespace nanwatch::bus_guard {
namespace {

struct Mapping {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};  // 0: not yet known
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> broken{false};
};

// One for each disposition that was found when the handler went in front. Each has a handler of its
// own: a program's handler that puts back what it found before itself finds the same one again, and
// so a chain never becomes a circle.
constexpr size_t kLevels = 8;
struct Found {
  struct sigaction action;
  std::atomic<bool> spent{false};  // SA_RESETHAND: its one call was made
};

std::array<Mapping, kMappingsMax> mappings;
std::array<Found, kLevels> found;
std::atomic<size_t> levels{0};
std::mutex install_mutex;
uintptr_t page_bytes = 4096;

const Mapping* MappingAt(uintptr_t address) noexcept {
  for (const Mapping& mapping : mappings) {
    const uintptr_t begin = mapping.begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address < mapping.end.load(std::memory_order_relaxed)) {
      return &mapping;
    }
  }
  return nullptr;
}

bool PutPageUnder(const siginfo_t* info) noexcept {
  if (info->si_code <= 0) return false;  // sent by a process, not by a touch
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  auto* mapping = const_cast<Mapping*>(MappingAt(address));
  if (mapping == nullptr) return false;
  mapping->broken.store(true, std::memory_order_release);
  const uintptr_t page = address & ~(page_bytes - 1);
  return syscall(SYS_mmap, page, page_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != -1;
}

// The end that the process would have had: a touch is repeated and ends it, a signal that was sent
// is sent again as it came, and is delivered when the handler returns.
void EndByDefault(siginfo_t* info) noexcept {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGBUS, &standard, nullptr);
  const bool repeats = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
  if (!repeats) syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGBUS, info);
}

// As the kernel would have called it.
void Pass(Found& to, siginfo_t* info, void* context) noexcept {
  const struct sigaction& action = to.action;
  const bool once = (action.sa_flags & SA_RESETHAND) != 0;
  if (once && to.spent.exchange(true)) return EndByDefault(info);
  const bool takes_info = (action.sa_flags & SA_SIGINFO) != 0;
  if (!takes_info && action.sa_handler == SIG_DFL) return EndByDefault(info);
  if (!takes_info && action.sa_handler == SIG_IGN) return;
  sigset_t before;
  sigprocmask(SIG_BLOCK, &action.sa_mask, &before);
  if ((action.sa_flags & SA_NODEFER) != 0) {
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    sigprocmask(SIG_UNBLOCK, &bus, nullptr);
  }
  if (takes_info) {
    action.sa_sigaction(SIGBUS, info, context);
  } else {
    action.sa_handler(SIGBUS);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

template <size_t kLevel>
void OnBus(int /*signal*/, siginfo_t* info, void* context) {
  const int error = errno;
  if (!PutPageUnder(info)) Pass(found[kLevel], info, context);
  errno = error;
}

using Handler = void (*)(int, siginfo_t*, void*);
template <size_t... kAll>
constexpr std::array<Handler, kLevels> AllHandlers(std::index_sequence<kAll...>) {
  return {&OnBus<kAll>...};
}
constexpr std::array<Handler, kLevels> kHandlers = AllHandlers(std::make_index_sequence<kLevels>());

bool IsOurs(const struct sigaction& action) noexcept {
  if ((action.sa_flags & SA_SIGINFO) == 0) return false;
  for (const Handler handler : kHandlers) {
    if (action.sa_sigaction == handler) return true;
  }
  return false;
}

bool IsSame(const struct sigaction& a, const struct sigaction& b) noexcept {
  return a.sa_handler == b.sa_handler && a.sa_flags == b.sa_flags;
}

// The level whose handler passes on to `action`; a new one where there is none. kLevels: all taken.
// A level below the newest is used again only for the default, behind which nobody stands: any
// other handler may by now pass on to a level above it.
size_t LevelFor(const struct sigaction& action) noexcept {
  const size_t known = levels.load(std::memory_order_relaxed);
  const bool ends_here = (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
  for (size_t level = 0; level < known; ++level) {
    if (!IsSame(found[level].action, action) || !(ends_here || level + 1 == known)) continue;
    found[level].spent.store(false);
    return level;
  }
  if (known == kLevels) return kLevels;
  found[known].action = action;
  levels.store(known + 1, std::memory_order_release);
  return known;
}

}  // namespace

void StayInFront() noexcept {
  struct sigaction current {};
  if (sigaction(SIGBUS, nullptr, &current) != 0 || IsOurs(current)) return;
  // Never waited for: a child may be forked while another thread holds it.
  const std::unique_lock lock(install_mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (sigaction(SIGBUS, nullptr, &current) != 0 || IsOurs(current)) return;
  const bool takes_info = (current.sa_flags & SA_SIGINFO) != 0;
  if (!takes_info && current.sa_handler == SIG_IGN) return;
  const size_t level = LevelFor(current);
  if (level == kLevels) return;  // a program that changes it all the time goes without
  struct sigaction ours {};
  ours.sa_sigaction = kHandlers[level];
  // On the stack that the program chose for its own handler; the default has none to mind.
  const bool is_default = !takes_info && current.sa_handler == SIG_DFL;
  ours.sa_flags = SA_SIGINFO | (is_default ? SA_ONSTACK | SA_RESTART
                                           : current.sa_flags & (SA_ONSTACK | SA_RESTART));
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

int Guard(const void* begin, uint64_t bytes) noexcept {
  page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(begin);
  for (int i = 0; i < kMappingsMax; ++i) {
    bool is_free = false;
    if (!mappings[i].taken.compare_exchange_strong(is_free, true)) continue;
    mappings[i].end.store(at + bytes, std::memory_order_relaxed);
    mappings[i].begin.store(at, std::memory_order_release);
    StayInFront();
    return i;
  }
  return -1;
}

bool IsBroken(int mapping) noexcept {
  return mapping >= 0 && mappings[mapping].broken.load(std::memory_order_acquire);
}

void Mend(int mapping) noexcept {
  if (mapping >= 0) mappings[mapping].broken.store(false, std::memory_order_release);
}

bool Covers(const void* address) noexcept {
  return MappingAt(reinterpret_cast<uintptr_t>(address)) != nullptr;
}

}  // namespace nanwatch::bus_guard
