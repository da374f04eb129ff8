// Collectives: what this rank gave in and what came back. The process group announces each as a range that
// begins on the caller's thread, carries the tensors, and ends on another thread when the data are there, but
// possibly after those who waited for them have gone on: what an op finds may have come by a collective that is
// still open in these books.
#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <mutex>

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"

namespace nanwatch {

class Observer;
struct ThreadState;
struct Collective;

// The collectives between begin and end. Any thread.
class OpenCollectives {
 public:
  // The tensor that came back bad by a collective in this step, if there is one; looks at those that are open.
  // For an op that came upon something bad which nobody is known to have written.
  bool FindReceived(Observer& observer, ThreadState* thread, wire::Source* source,
                    ValueRef* value) noexcept;

  void Add(Collective* collective) noexcept;
  // Looks at what came back, if nobody has yet, and forgets it.
  void Close(Observer& observer, ThreadState* thread, Collective* collective) noexcept;

 private:
  static constexpr int kOpenMax = 64;  // more are looked at when they end

  void Look(Observer& observer, ThreadState* thread, Collective* collective) noexcept;

  std::mutex mutex_;
  Collective* open_[kOpenMax] = {};
  int count_ = 0;
  wire::Source last_{};  // the tensor that came back bad last, and when
  ValueRef last_value_;
  uint32_t last_step_ = 0;
};

// "gloo:all_reduce", "nccl:broadcast", ...
bool IsCollective(const char* range_name) noexcept;

// What must be known when the range ends; nullptr when there is nothing to look at.
std::unique_ptr<at::ObserverContext> BeginCollective(Observer& observer, ThreadState* thread,
                                                     const at::RecordFunction& range) noexcept;
void EndCollective(Observer& observer, ThreadState* thread, at::ObserverContext* context) noexcept;

}  // namespace nanwatch
