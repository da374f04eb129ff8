// Collectives: what this rank gave in and what came back. The process group announces each as a range that
// begins on the caller's thread, carries the tensors, and ends (on another thread) when the data are there.
#pragma once

#include <ATen/record_function.h>

#include <memory>

#include "shim/observe/observer.h"

namespace nanwatch {

// "gloo:all_reduce", "nccl:broadcast", ...
bool IsCollective(const char* range_name) noexcept;

// What must be known when the range ends; nullptr when there is nothing to look at.
std::unique_ptr<at::ObserverContext> BeginCollective(Observer& observer, ThreadState* thread,
                                                     const at::RecordFunction& range) noexcept;
void EndCollective(Observer& observer, ThreadState* thread, at::ObserverContext* context) noexcept;

}  // namespace nanwatch
