#include "shim/observe/collectives.h"

#include <cstring>

#include "shim/check/scan.h"
#include "shim/observe/findings.h"
#include "shim/observe/inputs.h"
#include "shim/observe/observer.h"

namespace nanwatch {

constexpr int kTensorsMax = 8;

// Tensors that a collective writes.
struct Delivery {
  CollectiveName collective;
  const Layer* layer = nullptr;
  InputSeen tensors[kTensorsMax];
  int count = 0;
  bool looked_at = false;  // and found bad
  ValueRef received;

  Delivery() = default;
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;
  ~Delivery() {
    const WeakStorageOps ops = TorchWeakStorageOps();
    for (int i = 0; i < count; ++i) ops.drop(tensors[i].storage.handle);
  }

  // Null if there is no room, or nothing in it that can be looked at.
  InputSeen* Add(const at::TensorBase& tensor) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (count == kTensorsMax || ReadTensor(tensor, &plain, &reason) != Readable::kYes ||
        plain.view.ndim > wire::kShapeDimsMax) {
      return nullptr;
    }
    InputSeen* seen = &tensors[count++];
    *seen = InputSeen{};
    seen->Copy(plain);
    return seen;
  }
};

namespace {

struct Collective : at::ObserverContext {
  Delivery back;  // what was given in, as it comes back
  wire::Source input{};  // the first bad tensor given in
  bool input_bad = false;

  // Its end may go by unseen: on a thread that has no state of ours, or inside a callback.
  ~Collective() override { Observer::Get()->deliveries.Forget(&back); }
};

std::atomic<uint64_t> collectives_begun{0};

// One rank gives and the others take: bad values that nobody saw being written (loaded weights) must be told
// from those that come. Elsewhere a second look at everything given in would cost more than it can tell.
bool GivesOneRanksOwn(const char* name) { return std::strstr(name, ":broadcast") != nullptr; }

void Note(Observer& observer, const at::TensorBase& tensor, Collective* collective) {
  InputSeen* seen = collective->back.Add(tensor);
  if (seen == nullptr) return;
  wire::Source source{};
  ValueRef value;
  const bool known = observer.arming.armed() && SourceOf(observer, seen->Plain(), &source, &value);
  if (!known && !GivesOneRanksOwn(collective->back.collective.name)) return;
  seen->kinds = NonFiniteKinds(seen->View());
  if (!known || seen->kinds == 0 || collective->input_bad) return;
  source.kinds = seen->kinds;
  collective->input = source;
  collective->input_bad = true;
}

// "gloo", the family of the process group. What one rank sends to one other is not numbered alike on both.
uint32_t GroupOf(Emitter& emitter, const CollectiveName& collective) {
  const char* colon = std::strchr(collective.name, ':');
  if (colon == nullptr || std::strstr(colon, "recv") != nullptr) {
    return emitter.Intern(collective.name);
  }
  return emitter.Intern({collective.name, static_cast<size_t>(colon - collective.name)});
}

bool CameBackBad(const InputSeen& seen) {
  return seen.kinds == 0 && IsAlive(seen) && HasNonFinite(seen.View());
}

// Reports what came back bad although it was given in clean; the first such tensor is the answer, null for none.
const InputSeen* ReportReceived(Observer& observer, ThreadState* thread, Delivery& delivery) {
  const InputSeen* first = nullptr;
  for (int i = 0; i < delivery.count; ++i) {
    const InputSeen& seen = delivery.tensors[i];
    if (!CameBackBad(seen)) continue;
    Emitter* emitter = observer.EnsureEmitter();
    if (emitter == nullptr) return nullptr;
    UnseenWriter writer{};
    writer.op = delivery.collective.name;
    writer.layer = delivery.layer;
    writer.phase = wire::Phase::kOther;
    writer.finding_class = wire::FindingClass::kReceived;
    wire::Source source{};
    source.kind = static_cast<uint8_t>(wire::SourceKind::kCollective);
    source.value = delivery.collective.sequence;
    source.name = GroupOf(*emitter, delivery.collective);
    writer.Add(source, {});
    const ValueRef value = OnUnseenWrite(observer, thread, seen.Plain(), writer);
    if (first != nullptr) continue;
    first = &seen;
    delivery.received = value;
  }
  return first;
}

void AddTensors(const c10::IValue& value, Delivery* delivery) {
  if (value.isTensor()) {
    delivery->Add(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) AddTensors(item, delivery);
  }
}

}  // namespace

void Deliveries::Open(Delivery* delivery) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count_ < kOpenMax) open_[count_++] = delivery;
}

void Deliveries::Forget(const Delivery* delivery) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count_; ++i) {
    if (open_[i] != delivery) continue;
    open_[i] = open_[--count_];
    break;
  }
}

void Deliveries::Close(Observer& observer, ThreadState* thread, Delivery* delivery) noexcept {
  Forget(delivery);
  const std::lock_guard<std::mutex> lock(mutex_);
  Look(observer, thread, delivery);
}

void Deliveries::OnHandedOut(ThreadState* thread,
                             const std::vector<c10::IValue>& outputs) noexcept try {
  auto delivery = std::make_unique<Delivery>();
  delivery->collective = thread->last_collective;
  delivery->layer = CurrentLayer();
  for (const c10::IValue& output : outputs) AddTensors(output, delivery.get());
  if (delivery->count == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Delivery*& place = handed_out_[next_handed_out_++ % kHandedOutMax];
  delete place;
  place = delivery.release();
} catch (...) {
}

// One whose data are not there yet shows nothing bad, and is looked at again.
void Deliveries::Look(Observer& observer, ThreadState* thread, Delivery* delivery) noexcept {
  if (delivery->looked_at || observer.Poisoned()) return;
  const InputSeen* bad = ReportReceived(observer, thread, *delivery);
  if (bad == nullptr) return;
  delivery->looked_at = true;
  if (!SourceOf(observer, bad->Plain(), &last_, &last_value_)) return;
  last_step_ = observer.steps.completed();
  last_.kinds = NonFiniteKinds(bad->View());
}

void Deliveries::LookAtAll(Observer& observer, ThreadState* thread) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count_; ++i) Look(observer, thread, open_[i]);
  for (Delivery* delivery : handed_out_) {
    if (delivery != nullptr) Look(observer, thread, delivery);
  }
}

bool Deliveries::FindReceived(Observer& observer, ThreadState* thread, wire::Source* source,
                              ValueRef* value) noexcept {
  LookAtAll(observer, thread);
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
  auto collective = std::make_unique<Collective>();
  Delivery& back = collective->back;
  std::strncpy(back.collective.name, range.name(), sizeof back.collective.name - 1);
  back.collective.sequence = collectives_begun.fetch_add(1, std::memory_order_relaxed) + 1;
  back.layer = CurrentLayer();
  thread->last_collective = back.collective;
  if (observer.Poisoned()) return nullptr;
  for (const c10::IValue& value : range.inputs()) {
    if (value.isTensor()) Note(observer, value.toTensor(), collective.get());
  }
  if (back.count != 0) observer.deliveries.Open(&back);
  return collective;
} catch (...) {
  return nullptr;
}

void EndCollective(Observer& observer, ThreadState* thread, at::ObserverContext* context) noexcept {
  auto& collective = *static_cast<Collective*>(context);
  Delivery& back = collective.back;
  if (back.count == 0) return;
  observer.deliveries.Close(observer, thread, &back);
  if (observer.Poisoned() || (!collective.input_bad && back.received.ticket == 0)) return;
  Emitter* emitter = observer.EnsureEmitter();
  if (emitter == nullptr) return;
  wire::CollectiveRecord record{};
  record.op = emitter->Intern(back.collective.name);
  record.group = GroupOf(*emitter, back.collective);
  record.sequence = back.collective.sequence;
  record.flags =
      (collective.input_bad ? wire::CollectiveRecord::kInputBad : 0u) |
      (back.received.ticket != 0 ? wire::CollectiveRecord::kOutputBad : 0u);
  record.input = collective.input;
  record.output_value = back.received.ticket;
  record.header = MakeHeader(observer, thread, *emitter, wire::RecordKind::kCollective,
                             sizeof record);
  emitter->Emit(record.header);
}

}  // namespace nanwatch
