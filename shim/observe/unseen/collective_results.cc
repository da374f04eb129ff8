// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/collective_results.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "proto/wire/hash.h"
#include "shim/check/scan.h"
#include "shim/host/done_within.h"
#include "shim/observe/finding/finding_record.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/observer.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch {

// Tensors that a collective writes.
struct CollectiveResult {
  CollectiveName collective;
  const Layer* layer = nullptr;
  uint32_t step = 0;    // in which it was begun
  uint64_t number = 0;  // tells it from another at the same address
  std::vector<InputSeen> tensors;
  bool looked_at = false;  // and found bad
  ValueRef received;

  CollectiveResult() = default;
  CollectiveResult(const CollectiveResult&) = delete;
  CollectiveResult& operator=(const CollectiveResult&) = delete;
  ~CollectiveResult() { Clear(); }

  void Begin(const CollectiveName& name, uint32_t at_step) {
    static std::atomic<uint64_t> begun{0};
    Clear();
    collective = name;
    layer = CurrentLayer();
    step = at_step;
    number = begun.fetch_add(1, std::memory_order_relaxed) + 1;
    looked_at = false;
    received = {};
  }
  void Clear() {
    for (const InputSeen& seen : tensors) TorchWeakStorageOps().drop(seen.storage.handle);
    tensors.clear();
  }
  // Null for what cannot be looked at.
  InputSeen* Add(const at::TensorBase& tensor) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (ReadTensor(tensor, &plain, &reason) != Readable::kYes ||
        plain.view.ndim > wire::kShapeDimsMax) {
      return nullptr;
    }
    InputSeen* seen = &tensors.emplace_back(InputSeen{});
    seen->Copy(plain);
    return seen;
  }
};

// One tensor of a result, held while it is looked at without the lock.
struct LookedAt {
  c10::intrusive_ptr<c10::StorageImpl> held;
  InputSeen tensor;          // its weak handle is the result's
  CollectiveResult* result;  // to be touched under the lock, if its number is still the same
  uint64_t number;
  CollectiveName collective;
  const Layer* layer;
  uint32_t step;
};

namespace {

struct Collective : at::ObserverContext {
  CollectiveResult back;  // what was given in, as it comes back
  wire::Source input{};   // the first bad tensor given in
  bool input_bad = false;

  // Its end may go by unseen: on a thread that has no state of ours, or inside a callback. In a
  // forked child the lock may be held for ever by a thread that is not there.
  ~Collective() override {
    Observer* observer = Observer::Get();
    if (observer != nullptr && observer->Active()) observer->collective_results.Forget(&back);
  }
};

std::atomic<uint64_t> collectives_begun{0};

// One rank gives and the others take: bad values that nobody saw being written (loaded weights)
// must be told from those that come. Elsewhere a second look at everything given in would cost more
// than it can tell.
bool GivesOneRanksOwn(const char* name) { return std::strstr(name, ":broadcast") != nullptr; }

void Record(Observer& observer, const at::TensorBase& tensor, Collective* collective) {
  InputSeen* seen = collective->back.Add(tensor);
  if (seen == nullptr) return;
  wire::Source source{};
  ValueRef value;
  const bool known =
      observer.input_tracking.armed() && SourceOf(observer, seen->Plain(), &source, &value);
  if (!known && !GivesOneRanksOwn(collective->back.collective.name)) return;
  seen->kinds = NonFiniteKinds(seen->View());
  if (!known || seen->kinds == 0 || collective->input_bad) return;
  source.kinds = seen->kinds;
  collective->input = source;
  collective->input_bad = true;
}

// "gloo", the family of the process group. What one rank sends to one other is not numbered alike
// on both.
uint32_t GroupOf(Emitter& emitter, const CollectiveName& collective) {
  const char* colon = std::strchr(collective.name, ':');
  // Each op has a count of its own.
  if (colon == nullptr || colon[1] == ':' || std::strstr(colon, "recv") != nullptr) {
    return emitter.Intern(collective.name);
  }
  return emitter.Intern({collective.name, static_cast<size_t>(colon - collective.name)});
}

// What the table knows was written by an op since.
bool CameBackBad(Observer& observer, const LookedAt& looked_at) {
  const InputSeen& seen = looked_at.tensor;
  wire::Source source{};
  ValueRef value;
  return seen.kinds == 0 && IsAlive(seen) && HasNonFinite(seen.View()) &&
         !SourceOf(observer, seen.Plain(), &source, &value);
}

void AddTensors(const c10::IValue& value, CollectiveResult* result) {
  if (value.isTensor()) {
    result->Add(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) AddTensors(item, result);
  }
}

// What lies on a GPU is not read here (gpu/gpu_collective_results.h).
void AddOnGpu(Observer& observer, const c10::IValue& value, GpuTensors* tensors) {
  if (!observer.gpu_events.On()) return;
  if (value.isTensor()) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (DescribeTensor(value.toTensor(), &plain, &reason) == Readable::kYes && plain.gpu >= 0) {
      tensors->Add(plain, wire::Target::kNone, nullptr);
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) AddOnGpu(observer, item, tensors);
  }
}

// Under the lock.
void TakeHold(CollectiveResult* result, std::vector<LookedAt>* all) {
  if (result->looked_at) return;
  for (const InputSeen& seen : result->tensors) {
    auto held = TakeStorage(static_cast<const c10::StorageImpl*>(seen.storage.storage));
    if (held == nullptr) continue;
    all->push_back({std::move(held), seen, result, result->number, result->collective,
                    result->layer, result->step});
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
  explicit Turn(std::mutex& mutex) noexcept
      : mutex_(mutex), held_(DoneWithin(kPatienceMs, [&mutex] { return mutex.try_lock(); })) {}
  ~Turn() {
    if (held_) mutex_.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::mutex& mutex_;
  const bool held_;
};

void CollectiveResults::Open(CollectiveResult* result) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count_ < kOpenMax) open_[count_++] = result;
}

void CollectiveResults::Forget(const CollectiveResult* result) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count_; ++i) {
    if (open_[i] != result) continue;
    open_[i] = open_[--count_];
    break;
  }
}

void CollectiveResults::Close(Observer& observer, ThreadState* thread,
                              CollectiveResult* result) noexcept try {
  std::vector<LookedAt> all;  // lets go of the storages when the lock has been given back
  if (!observer.Ignores()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    TakeHold(result, &all);
  }
  const auto is_bad = [](const LookedAt& looked_at) {
    const InputSeen& seen = looked_at.tensor;
    return seen.kinds == 0 && IsAlive(seen) && HasNonFinite(seen.View());
  };
  if (std::any_of(all.begin(), all.end(), is_bad)) {
    const Turn turn(turn_);
    Look(observer, thread, all, nullptr, 0);
  }
  Forget(result);
} catch (...) {
  Forget(result);
}

void CollectiveResults::OnHandingOut(Observer& observer, ThreadState* thread,
                                     const Frame& frame) noexcept try {
  handing_out_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t call = CountCall(frame.op);
  // A range that begins on this thread numbers it better. A process group that we do not know
  // announces none; gloo announces it on threads of its own.
  CollectiveName& name = thread->last_collective;
  name = {};
  std::strncpy(name.name, frame.op->name, sizeof name.name - 1);
  name.sequence = call;
  if (call == 0 || observer.Ignores()) return;
  BusyScope busy(thread);
  const bool keeps_results = (frame.op->families & kKeepsResults) != 0;
  if (keeps_results) {
    const std::lock_guard<std::mutex> lock(mutex_);
    unnamed_ = BringerOf(*frame.op, call);
    unnamed_step_ = observer.steps.completed();
    has_unnamed_.store(true, std::memory_order_relaxed);
  }
  wire::Source given{};
  if (!FirstBadGiven(thread, frame, &given)) return;
  EmitCollective(observer, thread, name, &given, {});
  if (!keeps_results) return;
  CollectiveName bringer;
  std::strncpy(bringer.name, wire::kSharedMemory, sizeof bringer.name - 1);
  bringer.sequence = BringerOf(*frame.op, call);
  EmitCollective(observer, thread, bringer, &given, {});
} catch (...) {
}

void CollectiveResults::OnHandedOut(Observer& observer, ThreadState* thread, const Frame& frame,
                                    const std::vector<c10::IValue>& outputs) noexcept {
  if ((frame.op->families & kKeepsResults) == 0) Keep(observer, thread, outputs);
  if (handing_out_.load(std::memory_order_relaxed) > 0) {
    handing_out_.fetch_sub(1, std::memory_order_release);
  }
}

void CollectiveResults::Keep(Observer& observer, ThreadState* thread,
                             const std::vector<c10::IValue>& outputs) noexcept try {
  const CollectiveName name = std::exchange(thread->last_collective, {});
  if (observer.Ignores()) return;
  BusyScope busy(thread);
  GpuTensors on_gpu(observer, thread, /*counts=*/false);
  for (const c10::IValue& output : outputs) AddOnGpu(observer, output, &on_gpu);
  observer.gpu_events.EnqueueCollective(observer, thread, name, on_gpu.list(), /*given_in=*/false);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (handed_out_ == nullptr) handed_out_ = new CollectiveResult[kHandedOutMax];
  CollectiveResult& result = handed_out_[next_handed_out_++ % kHandedOutMax];
  result.Begin(name, observer.steps.completed());
  for (const c10::IValue& output : outputs) AddTensors(output, &result);
} catch (...) {
}

void CollectiveResults::AwaitHandedOut() noexcept {
  const auto none = [this] { return handing_out_.load(std::memory_order_acquire) <= 0; };
  // An op whose end was never seen is not waited for again.
  if (!DoneWithin(kPatienceMs, none)) handing_out_.store(0, std::memory_order_relaxed);
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

uint64_t CollectiveResults::UnnamedBringer(Observer& observer) noexcept {
  const uint32_t step = observer.steps.completed();
  const std::lock_guard<std::mutex> lock(mutex_);
  return unnamed_step_ == step ? unnamed_ : 0;
}

// One whose data are not there yet shows nothing bad, and is looked at again.
void CollectiveResults::Look(Observer& observer, ThreadState* thread,
                             const std::vector<LookedAt>& all, const BadOutput* written,
                             int count) noexcept {
  uint64_t last_number = 0;
  for (const LookedAt& looked_at : all) {
    if (IsWrittenBy(written, count, looked_at.tensor) || !CameBackBad(observer, looked_at))
      continue;
    const ValueRef value = ReportReceived(observer, thread, looked_at.tensor.Plain(),
                                          looked_at.collective, looked_at.layer);
    wire::Source source{};
    ValueRef known;
    if (looked_at.number == last_number ||  // its first bad tensor is the answer
        !SourceOf(observer, looked_at.tensor.Plain(), &source, &known)) {
      continue;
    }
    last_number = looked_at.number;
    source.kinds = NonFiniteKinds(looked_at.tensor.View());
    RecordReceived(looked_at, source, value);
  }
}

void CollectiveResults::RecordReceived(const LookedAt& looked_at, const wire::Source& source,
                                       ValueRef value) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_ = source;
  last_value_ = value;
  last_step_ = looked_at.step;
  const bool open = std::find(open_, open_ + count_, looked_at.result) != open_ + count_;
  const bool handed_out = handed_out_ != nullptr && looked_at.result >= handed_out_ &&
                          looked_at.result < handed_out_ + kHandedOutMax;
  if ((!open && !handed_out) || looked_at.result->number != looked_at.number) return;
  looked_at.result->looked_at = true;
  looked_at.result->received = value;
}

void CollectiveResults::LookAtAll(Observer& observer, ThreadState* thread, const BadOutput* written,
                                  int count) noexcept try {
  if (observer.Ignores()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (count_ == 0 && handed_out_ == nullptr) return;
  }
  const Turn turn(turn_);
  std::vector<LookedAt> all;
  const uint32_t step = observer.steps.completed();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (count_ == 0 && handed_out_ == nullptr) return;
    if (std::exchange(looks_step_, step) != step) looks_ = 0;
    if (++looks_ > kLooksPerStepMax) return;
    for (int i = 0; i < count_; ++i) TakeHold(open_[i], &all);
    for (uint32_t i = 0; handed_out_ != nullptr && i < kHandedOutMax; ++i) {
      if (handed_out_[i].step == step) TakeHold(&handed_out_[i], &all);
    }
  }
  Look(observer, thread, all, written, count);
} catch (...) {
}

bool CollectiveResults::FindReceived(Observer& observer, ThreadState* thread,
                                     const BadOutput* written, int count, wire::Source* source,
                                     ValueRef* value) noexcept {
  LookAtAll(observer, thread, written, count);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (last_value_.ticket == 0 || last_step_ != observer.steps.completed()) return false;
  *source = last_;
  *value = last_value_;
  return true;
}

bool IsCollective(const char* name) noexcept {
  if (std::strncmp(name, "gloo:", 5) != 0 && std::strncmp(name, "nccl:", 5) != 0 &&
      std::strncmp(name, "mpi:", 4) != 0) {
    return false;
  }
  // Barriers carry nothing; what a send gives away comes back to nobody here.
  return std::strstr(name, "barrier") == nullptr && std::strstr(name, "send") == nullptr;
}

std::unique_ptr<at::ObserverContext> BeginCollective(Observer& observer, ThreadState* thread,
                                                     const at::RecordFunction& range) noexcept try {
  CollectiveName name;
  std::strncpy(name.name, range.name(), sizeof name.name - 1);
  name.sequence = collectives_begun.fetch_add(1, std::memory_order_relaxed) + 1;
  thread->last_collective = name;
  // Counted in any case: ranks know a collective by its number.
  if (observer.Ignores() || observer.level.off_to_measure()) return nullptr;
  auto collective = std::make_unique<Collective>();
  CollectiveResult& back = collective->back;
  back.Begin(name, observer.steps.completed());
  GpuTensors on_gpu(observer, thread, /*counts=*/false);
  for (const c10::IValue& value : range.inputs()) {
    if (!value.isTensor()) continue;
    Record(observer, value.toTensor(), collective.get());
    AddOnGpu(observer, value, &on_gpu);
  }
  observer.gpu_events.EnqueueCollective(observer, thread, name, on_gpu.list(), /*given_in=*/true);
  if (!back.tensors.empty()) observer.collective_results.Open(&back);
  return collective;
} catch (...) {
  return nullptr;
}

void EndCollective(Observer& observer, ThreadState* thread, at::ObserverContext* context) noexcept {
  auto& collective = *static_cast<Collective*>(context);
  CollectiveResult& back = collective.back;
  if (back.tensors.empty()) return;
  observer.collective_results.Close(observer, thread, &back);
  if (observer.Ignores() || (!collective.input_bad && back.received.ticket == 0)) return;
  EmitCollective(observer, thread, back.collective,
                 collective.input_bad ? &collective.input : nullptr, back.received);
}

ValueRef ReportReceived(Observer& observer, ThreadState* thread, const PlainTensor& tensor,
                        const CollectiveName& collective, const Layer* layer) noexcept {
  Emitter* emitter = observer.segment.Ensure();
  if (emitter == nullptr) return {};
  UnobservedWriter writer{};
  writer.op = collective.name;
  writer.layer = layer;
  writer.phase = wire::Phase::kOther;
  writer.finding_class = wire::FindingClass::kReceived;
  wire::Source source{};
  source.kind = static_cast<uint8_t>(wire::SourceKind::kCollective);
  source.value = collective.sequence;
  source.name = GroupOf(*emitter, collective);
  writer.Add(source, {});
  return OnUnobservedWrite(observer, thread, tensor, writer);
}

void EmitCollective(Observer& observer, ThreadState* thread, const CollectiveName& collective,
                    const wire::Source* input, ValueRef output) noexcept {
  Emitter* emitter = observer.segment.Ensure();
  if (emitter == nullptr) return;
  wire::CollectiveRecord record{};
  record.op = emitter->Intern(collective.name);
  record.group = GroupOf(*emitter, collective);
  record.sequence = collective.sequence;
  record.flags = (input != nullptr ? wire::CollectiveRecord::kInputBad : 0u) |
                 (output.ticket != 0 ? wire::CollectiveRecord::kOutputBad : 0u);
  if (input != nullptr) record.input = *input;
  record.output_value = output.ticket;
  record.header =
      observer.records.MakeHeader(thread, *emitter, wire::RecordKind::kCollective, sizeof record);
  emitter->Emit(record.header);
}

}  // namespace nanwatch
