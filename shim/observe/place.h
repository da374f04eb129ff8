// Where an op ran: everything that a site's key and a record's head need beside the op itself.
#pragma once

#include <cstdint>

#include "shim/observe/thread_state.h"

namespace nanwatch {

struct Place {
  wire::Phase phase;
  const Layer* layer;
  const char* node;
  uint32_t flags;  // kRecompute, kInOptimizerRange
  uint64_t pass;
};

// Of the op that ends on the calling thread. CONTRACT, vocabulary `phase`: the innermost wins.
Place PlaceOf(const ThreadState* thread) noexcept;

}  // namespace nanwatch
