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
struct Delivery;

// What collectives have brought or may be bringing. Any thread.
class Deliveries {
 public:
  // The tensor that came back bad by a collective in this step, if there is one; looks at those that are open.
  // For an op that came upon something bad which nobody is known to have written.
  bool FindReceived(Observer& observer, ThreadState* thread, wire::Source* source,
                    ValueRef* value) noexcept;
  // Looks at what has come since, so that the table of bad values knows it.
  void LookAtAll(Observer& observer, ThreadState* thread) noexcept;

  // What lies where it was given in: between the begin and the end of its range.
  void Open(Delivery* delivery) noexcept;
  void Forget(const Delivery* delivery) noexcept;
  // Forgets it, and looks at what came back, if nobody has yet.
  void Close(Observer& observer, ThreadState* thread, Delivery* delivery) noexcept;

  // The tensors that the collective begun last on this thread writes elsewhere (all_gather): nobody tells when
  // they are there, so the newest are kept and looked at when something bad wants explaining.
  void OnHandedOut(ThreadState* thread, const std::vector<c10::IValue>& outputs) noexcept;

 private:
  static constexpr int kOpenMax = 64;  // more are looked at when they end
  static constexpr int kHandedOutMax = 32;

  void Look(Observer& observer, ThreadState* thread, Delivery* delivery) noexcept;

  std::mutex mutex_;
  Delivery* open_[kOpenMax] = {};
  int count_ = 0;
  Delivery* handed_out_[kHandedOutMax] = {};  // owned; never freed with the object, which is leaked
  unsigned next_handed_out_ = 0;
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
