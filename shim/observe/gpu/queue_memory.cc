// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/queue_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include "proto/wire/test_naming.h"

namespace nanwatch {
namespace {

// An op's event takes about 2 KB; the GPU is a thousand launches behind at most. Touched where
// used.
constexpr uint64_t kQueueBytes = uint64_t{32} << 20;
constexpr uint64_t kQueueBytesLeast = 4096;

}  // namespace

uint64_t QueueBytesForTest() noexcept {
  const char* asked = std::getenv(wire::kEnvGpuQueueBytes);
  const uint64_t bytes = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 0;
  const bool usable =
      bytes >= kQueueBytesLeast && bytes <= kQueueBytes && std::has_single_bit(bytes);
  return usable ? bytes : 0;
}

const QueueMemory* MapQueue(uint64_t for_test) noexcept {
  const uint64_t bytes = for_test != 0 ? for_test : kQueueBytes;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  // The queue ends where its last page does, also on systems whose pages are larger than it is.
  const uint64_t mapped = (bytes + page - 1) / page * page;
  void* memory =
      mmap(nullptr, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, mapped, PROT_READ | PROT_WRITE) != 0) return nullptr;
  unsigned char* begin = static_cast<unsigned char*>(memory) + (mapped - bytes);
  // A small queue is full of old events soon, as a large one is after minutes: from the start here.
  if (for_test != 0) std::memset(begin, 0xff, bytes);
  return new (std::nothrow) QueueMemory{begin, bytes};
}

}  // namespace nanwatch
