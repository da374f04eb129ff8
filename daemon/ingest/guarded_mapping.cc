// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/guarded_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

namespace nanwatch {
namespace {

namespace ipc = boost::interprocess;

struct Guard {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<uintptr_t> end{0};
  std::atomic<uint32_t> mended{0};  // pages
};

// Each mended page is a mapping of its own, of which the kernel allows some 65,000. A segment that
// misses more pages than this is read as zeros from one end to the other.
constexpr uint32_t kPagesMendedMax = 64;

// Static, because a signal handler can be given nothing.
std::array<Guard, kMappingsMax> guards;
struct sigaction found_disposition;
uintptr_t page_bytes;

// nullptr when none guards the address.
Guard* GuardOf(uintptr_t address) {
  for (Guard& guard : guards) {
    const uintptr_t begin = guard.begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address < guard.end.load(std::memory_order_relaxed))
      return &guard;
  }
  return nullptr;
}

bool PutZeros(uintptr_t begin, uintptr_t end) {
  return mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

// mmap() is a bare system call: safe in a handler. The touch is repeated on return and meets zeros.
void PutZerosUnderFault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const int saved_errno = errno;
  const uintptr_t page = address & ~(page_bytes - 1);
  Guard* guard = GuardOf(address);
  bool mended = false;
  if (guard != nullptr && guard->mended.fetch_add(1) < kPagesMendedMax) {
    mended = PutZeros(page, page + page_bytes);
  } else if (guard != nullptr) {
    const uintptr_t end = guard->end.load(std::memory_order_relaxed);
    mended = PutZeros(guard->begin.load(std::memory_order_relaxed),
                      (end + page_bytes - 1) & ~(page_bytes - 1));
  }
  if (!mended) sigaction(SIGBUS, &found_disposition, nullptr);  // the repeated touch is theirs
  errno = saved_errno;
}

void InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = PutZerosUnderFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &found_disposition);
  });
}

size_t TakeGuard(const void* address, size_t bytes) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (size_t i = 0; i < guards.size(); ++i) {
    if (guards[i].begin.load(std::memory_order_relaxed) != 0) continue;
    guards[i].end.store(begin + bytes, std::memory_order_relaxed);
    guards[i].mended.store(0, std::memory_order_relaxed);
    guards[i].begin.store(begin, std::memory_order_release);
    return i;
  }
  return kMappingsMax;
}

// What mapped_region asks of a file: it would open a name itself, but the name may mean another
// file by now.
struct OpenFile {
  int fd;
  ipc::mode_t mode;
  [[nodiscard]] ipc::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
  [[nodiscard]] ipc::mode_t get_mode() const { return mode; }
};

}  // namespace

Result<GuardedMapping> GuardedMapping::Map(int fd, size_t bytes, bool writable) {
  InstallHandler();
  const ipc::mode_t mode = writable ? ipc::read_write : ipc::read_only;
  GuardedMapping mapping;
  try {
    mapping.region_ = ipc::mapped_region(OpenFile{fd, mode}, mode, 0, bytes);
  } catch (const ipc::interprocess_exception& error) {
    return Status(ErrorKind::kIo, std::string("cannot map it: ") + error.what());
  }
  mapping.guard_ = TakeGuard(mapping.data(), bytes);
  if (mapping.guard_ == kMappingsMax) {
    return Status(ErrorKind::kBusy, std::to_string(kMappingsMax) + " segments are open already");
  }
  return mapping;
}

GuardedMapping::GuardedMapping(GuardedMapping&& other) noexcept
    : region_(std::move(other.region_)), guard_(std::exchange(other.guard_, kMappingsMax)) {}

GuardedMapping& GuardedMapping::operator=(GuardedMapping&& other) noexcept {
  if (this != &other) {
    Forget();
    region_ = std::move(other.region_);
    guard_ = std::exchange(other.guard_, kMappingsMax);
  }
  return *this;
}

GuardedMapping::~GuardedMapping() { Forget(); }

// The guard goes with the mapping: the address may soon be somebody else's.
void GuardedMapping::Forget() noexcept {
  ipc::mapped_region gone;
  region_.swap(gone);
  if (guard_ < kMappingsMax) guards[guard_].begin.store(0, std::memory_order_release);
  guard_ = kMappingsMax;
}

}  // namespace nanwatch
