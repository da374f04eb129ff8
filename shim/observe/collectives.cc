#include "shim/observe/collectives.h"

#include <cstring>

#include "shim/check/scan.h"
#include "shim/observe/findings.h"
#include "shim/observe/inputs.h"

namespace nanwatch {
namespace {

constexpr int kTensorsMax = 8;

std::atomic<uint64_t> collectives_begun{0};

struct Collective : at::ObserverContext {
  char name[48];
  uint64_t sequence;
  InputSeen tensors[kTensorsMax];
  int count = 0;
  wire::Source input{};      // the first bad tensor given in
  bool input_bad = false;
  const Layer* layer;

  ~Collective() override {
    const WeakStorageOps ops = TorchWeakStorageOps();
    for (int i = 0; i < count; ++i) ops.drop(tensors[i].storage.handle);
  }
};

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

// The first tensor that came back bad although it was given in clean.
ValueRef FindReceived(Observer& observer, ThreadState* thread, const Collective& collective,
                      uint32_t group) {
  ValueRef first;
  for (int i = 0; i < collective.count; ++i) {
    const InputSeen& seen = collective.tensors[i];
    if (seen.kinds != 0 || !IsAlive(seen) || !HasNonFinite(seen.View())) continue;
    UnseenWriter writer{};
    writer.op = collective.name;
    writer.layer = collective.layer;
    writer.phase = wire::Phase::kOther;
    writer.finding_class = wire::FindingClass::kReceived;
    wire::Source source{};
    source.kind = static_cast<uint8_t>(wire::SourceKind::kCollective);
    source.value = collective.sequence;
    source.name = group;
    writer.Add(source, {});
    const ValueRef value = OnUnseenWrite(observer, thread, seen.Plain(), writer);
    if (first.ticket == 0) first = value;
  }
  return first;
}

}  // namespace

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
  return collective;
} catch (...) {
  return nullptr;
}

void EndCollective(Observer& observer, ThreadState* thread, at::ObserverContext* context) noexcept {
  const auto& collective = *static_cast<const Collective*>(context);
  if (observer.Poisoned() || collective.count == 0) return;
  bool any_bad = collective.input_bad;
  for (int i = 0; i < collective.count && !any_bad; ++i) {
    any_bad = IsAlive(collective.tensors[i]) && HasNonFinite(collective.tensors[i].View());
  }
  if (!any_bad) return;
  Emitter* emitter = observer.EnsureEmitter();
  if (emitter == nullptr) return;
  const char* colon = std::strchr(collective.name, ':');
  const uint32_t group =
      emitter->Intern(std::string_view(collective.name, static_cast<size_t>(colon - collective.name)));
  const ValueRef received = FindReceived(observer, thread, collective, group);
  wire::CollectiveRecord record{};
  record.op = emitter->Intern(collective.name);
  record.group = group;
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
