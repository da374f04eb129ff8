#include "shim/observe/collectives.h"

#include <cstring>

#include "shim/check/scan.h"
#include "shim/observe/findings.h"
#include "shim/observe/inputs.h"
#include "shim/observe/observer.h"

namespace nanwatch {

constexpr int kTensorsMax = 8;

struct Collective : at::ObserverContext {
  char name[48];
  uint64_t sequence;
  InputSeen tensors[kTensorsMax];
  int count = 0;
  wire::Source input{};      // the first bad tensor given in
  bool input_bad = false;
  const Layer* layer;
  bool looked_at = false;  // for what came back
  ValueRef received;

  ~Collective() override {
    const WeakStorageOps ops = TorchWeakStorageOps();
    for (int i = 0; i < count; ++i) ops.drop(tensors[i].storage.handle);
  }
};

namespace {

std::atomic<uint64_t> collectives_begun{0};

void Note(Observer& observer, const at::TensorBase& tensor, Collective* collective) {
  PlainTensor plain;
  wire::Unchecked reason;
  if (collective->count == kTensorsMax ||
      ReadTensor(tensor, &plain, &reason) != Readable::kYes ||
      plain.view.ndim > wire::kShapeDimsMax) {
    return;
  }
  InputSeen& seen = collective->tensors[collective->count++];
  seen = InputSeen{};
  seen.Copy(plain);
  // Something bad given in is known to the table, unless nobody saw it being written.
  wire::Source source{};
  ValueRef value;
  if (!observer.arming.armed() || !SourceOf(observer, plain, &source, &value)) return;
  seen.kinds = NonFiniteKinds(plain.view);
  if (seen.kinds == 0 || collective->input_bad) return;
  source.kinds = seen.kinds;
  collective->input = source;
  collective->input_bad = true;
}

// "gloo", the family of the process group.
uint32_t GroupOf(Emitter& emitter, const Collective& collective) {
  const char* colon = std::strchr(collective.name, ':');
  return emitter.Intern({collective.name, static_cast<size_t>(colon - collective.name)});
}

bool CameBackBad(const InputSeen& seen) {
  return seen.kinds == 0 && IsAlive(seen) && HasNonFinite(seen.View());
}

// Reports what came back bad although it was given in clean; the first such tensor is the answer, null for none.
const InputSeen* ReportReceived(Observer& observer, ThreadState* thread, Collective& collective) {
  const InputSeen* first = nullptr;
  for (int i = 0; i < collective.count; ++i) {
    const InputSeen& seen = collective.tensors[i];
    if (!CameBackBad(seen)) continue;
    Emitter* emitter = observer.EnsureEmitter();
    if (emitter == nullptr) return nullptr;
    UnseenWriter writer{};
    writer.op = collective.name;
    writer.layer = collective.layer;
    writer.phase = wire::Phase::kOther;
    writer.finding_class = wire::FindingClass::kReceived;
    wire::Source source{};
    source.kind = static_cast<uint8_t>(wire::SourceKind::kCollective);
    source.value = collective.sequence;
    source.name = GroupOf(*emitter, collective);
    writer.Add(source, {});
    const ValueRef value = OnUnseenWrite(observer, thread, seen.Plain(), writer);
    if (first != nullptr) continue;
    first = &seen;
    collective.received = value;
  }
  return first;
}

}  // namespace

void OpenCollectives::Add(Collective* collective) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count_ < kOpenMax) open_[count_++] = collective;
}

void OpenCollectives::Close(Observer& observer, ThreadState* thread,
                            Collective* collective) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count_; ++i) {
    if (open_[i] != collective) continue;
    open_[i] = open_[--count_];
    break;
  }
  Look(observer, thread, collective);
}

// An open one whose data are not there yet shows nothing bad, and is looked at again.
void OpenCollectives::Look(Observer& observer, ThreadState* thread,
                           Collective* collective) noexcept {
  if (collective->looked_at || observer.Poisoned()) return;
  const InputSeen* bad = ReportReceived(observer, thread, *collective);
  if (bad == nullptr) return;
  collective->looked_at = true;
  if (!SourceOf(observer, bad->Plain(), &last_, &last_value_)) return;
  last_step_ = observer.steps.completed();
  last_.kinds = NonFiniteKinds(bad->View());
}

bool OpenCollectives::FindReceived(Observer& observer, ThreadState* thread, wire::Source* source,
                                   ValueRef* value) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count_; ++i) Look(observer, thread, open_[i]);
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
  (void)thread;
  auto collective = std::make_unique<Collective>();
  collective->sequence = collectives_begun.fetch_add(1, std::memory_order_relaxed) + 1;
  if (observer.Poisoned()) return nullptr;
  std::strncpy(collective->name, range.name(), sizeof collective->name - 1);
  collective->name[sizeof collective->name - 1] = '\0';
  collective->layer = CurrentLayer();
  for (const c10::IValue& value : range.inputs()) {
    if (value.isTensor()) Note(observer, value.toTensor(), collective.get());
  }
  if (collective->count != 0) observer.collectives.Add(collective.get());
  return collective;
} catch (...) {
  return nullptr;
}

void EndCollective(Observer& observer, ThreadState* thread, at::ObserverContext* context) noexcept {
  auto& collective = *static_cast<Collective*>(context);
  if (collective.count == 0) return;
  observer.collectives.Close(observer, thread, &collective);
  if (observer.Poisoned() || (!collective.input_bad && collective.received.ticket == 0)) return;
  Emitter* emitter = observer.EnsureEmitter();
  if (emitter == nullptr) return;
  const ValueRef received = collective.received;
  wire::CollectiveRecord record{};
  record.op = emitter->Intern(collective.name);
  record.group = GroupOf(*emitter, collective);
  record.sequence = collective.sequence;
  record.flags = (collective.input_bad ? wire::CollectiveRecord::kInputBad : 0u) |
                 (received.ticket != 0 ? wire::CollectiveRecord::kOutputBad : 0u);
  record.input = collective.input;
  record.output_value = received.ticket;
  record.header = MakeHeader(observer, thread, *emitter, wire::RecordKind::kCollective,
                             sizeof record);
  emitter->Emit(record.header);
}

}  // namespace nanwatch
