// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/collective_results.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "proto/wire/hash.h"
#include "shim/check/scan.h"
#include "shim/host/done_within.h"
#include "shim/host/thread_work.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/weak_storage.h"
#include "shim/observe/unseen/collective_records.h"
#include "shim/observe/unseen/collectives.h"

namespace nanwatch {

CollectiveResult::~CollectiveResult() {
  for (const InputSeen& seen : tensors) TorchWeakStorageOps().drop(seen.storage.handle);
}

InputSeen* CollectiveResult::Add(const at::TensorBase& tensor) {
  PlainTensor plain;
  wire::Unchecked reason;
  constexpr int64_t kPickledMin = 64;
  brings_bytes |= tensor.scalar_type() == c10::ScalarType::Byte && tensor.is_cpu() &&
                  tensor.numel() >= kPickledMin;
  if (ReadTensor(tensor, &plain, &reason) != Readable::kYes ||
      plain.view.ndim > wire::kShapeDimsMax) {
    return nullptr;
  }
  InputSeen* seen = &tensors.emplace_back(InputSeen{});
  seen->Copy(plain);
  return seen;
}

// One tensor of a result, held while it is read without the lock.
struct CollectiveResults::Held {
  c10::intrusive_ptr<c10::StorageImpl> storage;
  InputSeen tensor;  // its weak handle is the result's
  std::shared_ptr<CollectiveResult> result;
};

namespace {

bool IsBad(const InputSeen& seen) {
  return seen.kinds == 0 && IsAlive(seen) && HasNonFinite(seen.View());
}

void AddTensors(const c10::IValue& value, CollectiveResult* result) {
  if (value.isTensor()) {
    result->Add(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) AddTensors(item, result);
  }
}

// The first argument of c10d's collectives is what to fill, the second what to send.
bool FirstBadGiven(const ThreadState* thread, const Frame& frame, wire::Source* given) {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.argument != 1 || !input.known) continue;
    *given = SourceFrom(input.bad);
    given->kinds = input.kinds;
    return true;
  }
  return false;
}

// The same number on all ranks. No file of shared memory has the highest bit set.
uint64_t BringerOf(const OpTraits& op, uint64_t calls) {
  return wire::Fnv1a(std::span(&calls, 1), wire::Fnv1a(op.name)) | uint64_t{1} << 63;
}

bool IsWrittenBy(const BadOutput* written, int count, const InputSeen& tensor) {
  return std::any_of(written, written + count, [&tensor](const BadOutput& output) {
    return output.tensor.storage == tensor.storage.storage;
  });
}

}  // namespace

class CollectiveResults::Turn {
 public:
  explicit Turn(CollectiveResults& results) noexcept
      : results_(results), held_(DoneByThread(kPatienceMs, results.turn_of_, [&results] {
          return results.turn_.try_lock();
        })) {
    if (held_) results_.turn_of_.store(NumberOfThisThread(), std::memory_order_release);
  }
  ~Turn() {
    if (!held_) return;
    results_.turn_of_.store(0, std::memory_order_release);
    results_.turn_.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  CollectiveResults& results_;
  const bool held_;
};

void CollectiveResults::Open(std::shared_ptr<CollectiveResult> result) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = count_ - 1; i >= 0; --i) {
    if (open_[i]->abandoned.load(std::memory_order_relaxed)) RemoveOpen(i);
  }
  if (count_ < kOpenMax) open_[count_++] = std::move(result);
}

void CollectiveResults::Forget(const CollectiveResult* result) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count_; ++i) {
    if (open_[i].get() != result) continue;
    RemoveOpen(i);
    break;
  }
}

// With mutex_ held.
void CollectiveResults::RemoveOpen(int place) noexcept {
  open_[place].swap(open_[--count_]);
  open_[count_].reset();
}

ValueRef CollectiveResults::Close(ThreadState* thread,
                                  const std::shared_ptr<CollectiveResult>& result) noexcept try {
  std::vector<Held> all;  // lets go of the storages when the lock has been given back
  const uint32_t step = clock_.completed();
  if (result->step != step) has_unnamed_.store(true, std::memory_order_relaxed);
  if (!poison_.Ignores()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    TakeHold(result, step, &all);
  }
  if (std::any_of(all.begin(), all.end(), [](const Held& held) { return IsBad(held.tensor); })) {
    const Turn turn(*this);
    Check(thread, all, nullptr, 0);
  }
  Forget(result.get());
  const std::lock_guard<std::mutex> lock(mutex_);
  return result->received;
} catch (...) {
  Forget(result.get());
  return {};
}

void CollectiveResults::OnHandingOut(ThreadState* thread, const Frame& frame) noexcept try {
  hands_out_.store(NumberOfThisThread(), std::memory_order_relaxed);
  handing_out_.fetch_add(1, std::memory_order_release);
  const uint64_t call = CountCall(frame.op);
  // A range that begins on this thread numbers it better. A process group that we do not know
  // announces none; gloo announces it on threads of its own.
  CollectiveName& name = thread->last_collective;
  name = {};
  std::strncpy(name.name, frame.op->name, sizeof name.name - 1);
  name.sequence = call;
  if (call == 0 || poison_.Ignores()) return;
  BusyScope busy(thread);
  const bool keeps_results = (frame.op->families & kKeepsResults) != 0;
  if (keeps_results) {
    const uint32_t step = clock_.completed();
    const std::lock_guard<std::mutex> lock(mutex_);
    unnamed_ = BringerOf(*frame.op, call);
    unnamed_step_ = step;
    has_unnamed_.store(true, std::memory_order_relaxed);
  }
  wire::Source given{};
  if (!FirstBadGiven(thread, frame, &given)) return;
  RecordGiven(given);
  records_.Emit(thread, name, &given, {});
  if (!keeps_results) return;
  CollectiveName bringer;
  std::strncpy(bringer.name, wire::kSharedMemory, sizeof bringer.name - 1);
  bringer.sequence = BringerOf(*frame.op, call);
  records_.Emit(thread, bringer, &given, {});
} catch (...) {
}

void CollectiveResults::RecordGiven(const wire::Source& given) noexcept {
  const uint32_t step = clock_.completed();
  const std::lock_guard<std::mutex> lock(mutex_);
  given_ = given;
  given_step_ = step;
}

bool CollectiveResults::FindGiven(wire::Source* source) noexcept {
  const uint32_t step = clock_.completed();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (given_step_ != step) return false;
  *source = given_;
  return true;
}

void CollectiveResults::OnHandedOut(ThreadState* thread, const Frame& frame,
                                    const std::vector<c10::IValue>& outputs) noexcept {
  if ((frame.op->families & kKeepsResults) == 0) Keep(thread, outputs);
  if (handing_out_.load(std::memory_order_relaxed) > 0) {
    handing_out_.fetch_sub(1, std::memory_order_release);
  }
}

void CollectiveResults::Keep(ThreadState* thread, const std::vector<c10::IValue>& outputs) noexcept
    try {
  const CollectiveName name = std::exchange(thread->last_collective, {});
  if (poison_.Ignores()) return;
  BusyScope busy(thread);
  GpuTensors on_gpu(late_, thread, /*counts=*/false);
  for (const c10::IValue& output : outputs) AddOnGpu(late_, output, &on_gpu);
  late_.Enqueue(thread, CollectiveTensors{name, on_gpu.list(), /*given_in=*/false});
  auto result = std::make_shared<CollectiveResult>(name, clock_.completed());
  for (const c10::IValue& output : outputs) AddTensors(output, result.get());
  const std::lock_guard<std::mutex> lock(mutex_);
  // What stood there goes when the lock has been given back.
  handed_out_[next_handed_out_++ % kHandedOutMax].swap(result);
} catch (...) {
}

void CollectiveResults::AwaitHandedOut() noexcept {
  const auto none = [this] { return handing_out_.load(std::memory_order_acquire) <= 0; };
  // An op whose end was never seen is not waited for again.
  if (!DoneByThread(kPatienceMs, hands_out_, none))
    handing_out_.store(0, std::memory_order_relaxed);
}

// 0: there is no room to count it.
uint64_t CollectiveResults::CountCall(const OpTraits* op) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (CountedOp& counted : counted_) {
    if (counted.op != nullptr && counted.op != op) continue;
    counted.op = op;
    return ++counted.calls;
  }
  return 0;
}

uint64_t CollectiveResults::UnnamedBringer() noexcept {
  const uint32_t step = clock_.completed();
  const std::lock_guard<std::mutex> lock(mutex_);
  return unnamed_step_ == step ? unnamed_ : 0;
}

// With mutex_ held. Not in a later step than it was begun in: those who waited for it may have gone
// on, and written in its memory what is theirs.
void CollectiveResults::TakeHold(const std::shared_ptr<CollectiveResult>& result, uint32_t step,
                                 std::vector<Held>* all) {
  if (result->found_bad || result->abandoned.load(std::memory_order_relaxed)) return;
  if (result->step != step) return;
  for (const InputSeen& seen : result->tensors) {
    auto storage = TakeStorage(static_cast<const c10::StorageImpl*>(seen.storage.storage));
    if (storage != nullptr) all->push_back({std::move(storage), seen, result});
  }
}

// False: enough was checked in this step.
bool CollectiveResults::TakeHoldOfAll(std::vector<Held>* all) {
  const uint32_t step = clock_.completed();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(checks_step_, step) != step) checks_ = 0;
  if (++checks_ > kChecksPerStepMax) return false;
  for (int i = 0; i < count_; ++i) TakeHold(open_[i], step, all);
  for (const std::shared_ptr<CollectiveResult>& result : handed_out_) {
    if (result != nullptr) TakeHold(result, step, all);
  }
  return true;
}

// What is known already was written by an op since.
bool CollectiveResults::CameBackBad(const Held& held) noexcept {
  BadEntry known;
  return IsBad(held.tensor) && !known_bad_.Find(held.tensor.Plain(), &known);
}

// One whose data are not there yet shows nothing bad, and is checked again.
void CollectiveResults::Check(ThreadState* thread, const std::vector<Held>& all,
                              const BadOutput* written, int count) noexcept {
  const CollectiveResult* last = nullptr;
  for (const Held& held : all) {
    if (IsWrittenBy(written, count, held.tensor) || !CameBackBad(held)) continue;
    const ValueRef value = records_.ReportReceived(thread, held.tensor.Plain(),
                                                   held.result->collective, held.result->layer);
    wire::Source source{};
    ValueRef known;
    if (held.result.get() == last ||  // its first bad tensor is the answer
        !known_bad_.SourceOf(held.tensor.Plain(), &source, &known)) {
      continue;
    }
    last = held.result.get();
    source.kinds = NonFiniteKinds(held.tensor.View());
    RecordReceived(held, source, value);
  }
}

void CollectiveResults::RecordReceived(const Held& held, const wire::Source& source,
                                       ValueRef value) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_ = source;
  last_value_ = value;
  last_step_ = held.result->step;
  held.result->found_bad = true;
  held.result->received = value;
}

void CollectiveResults::CheckAll(ThreadState* thread, const BadOutput* written, int count) noexcept
    try {
  if (poison_.Ignores()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (count_ == 0 && next_handed_out_ == 0) return;
  }
  const Turn turn(*this);
  std::vector<Held> all;
  if (TakeHoldOfAll(&all)) Check(thread, all, written, count);
} catch (...) {
}

bool CollectiveResults::FindReceived(ThreadState* thread, const BadOutput* written, int count,
                                     wire::Source* source, ValueRef* value) noexcept {
  if (written == nullptr) AwaitHandedOut();
  CheckAll(thread, written, count);
  const uint32_t step = clock_.completed();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (last_value_.ticket == 0 || last_step_ != step) return false;
  *source = last_;
  *value = last_value_;
  return true;
}

}  // namespace nanwatch
