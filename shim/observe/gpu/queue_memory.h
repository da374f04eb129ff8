// SPDX-License-Identifier: Apache-2.0
// The memory of the queue of GPU events (event_queue.h): one mapping, followed by a page that
// nobody may touch, so that whoever reads beyond the last event is seen to.
#pragma once

#include <cstdint>

namespace nanwatch {

struct QueueMemory {
  unsigned char* begin;
  uint64_t bytes;  // a power of two
};

// The size that wire::kEnvGpuQueueBytes asks for; 0: it asks for none. For the start of the
// observer: getenv is not for the job's threads.
[[nodiscard]] uint64_t QueueBytesForTest() noexcept;

// Never unmapped; null: there is no memory. 32 MiB, unless a test has asked for another size.
[[nodiscard]] const QueueMemory* MapQueue(uint64_t for_test) noexcept;

}  // namespace nanwatch
