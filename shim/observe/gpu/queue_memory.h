// The memory of the queue of GPU events (event_queue.h): one mapping, followed by a page that
// nobody may touch, so that whoever reads beyond the last event is seen to.
#pragma once

#include <cstdint>

namespace nanwatch {

struct QueueMemory {
  unsigned char* begin;
  uint64_t bytes;  // a power of two
};

// Never unmapped; null: there is no memory. Its size is wire::kEnvGpuQueueBytes, or 32 MiB.
[[nodiscard]] const QueueMemory* MapQueue() noexcept;

}  // namespace nanwatch
