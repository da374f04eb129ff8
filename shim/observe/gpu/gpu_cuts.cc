// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/gpu_cuts.h"

#include <c10/core/GradMode.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "proto/wire/hash.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/launch_counts.h"
#include "shim/observe/gpu/queued_events.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/step/leaf_gradients.h"
#include "shim/observe/thread/seen_inputs.h"

namespace nanwatch {
namespace {

template <class T>
T* Map(size_t count) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory != MAP_FAILED ? static_cast<T*>(memory) : nullptr;  // zero is as it begins
}

uint64_t BytesOf(const InputSeen& seen) {
  return static_cast<uint64_t>(seen.numel) * ElementBytes(seen.type);
}

}  // namespace

void CutTensor::Add(const CutLook& look) noexcept {
  const uint32_t at = looks_count < kLooksMax ? looks_count : 1 + (looks_count - 1) % 2;
  looks[at] = look;
  ++looks_count;
}

bool MayRecordForCut(const LevelState& level, const StepMarks& steps, const ThreadState* thread,
                     const OpTraits& op) noexcept {
  if (level.watched() != wire::Level::kLayer) return false;
  const bool may_be_step = op.in_place && thread->nodes_open == 0 &&
                           steps.plain_update_due.load(std::memory_order_relaxed);
  return !may_be_step && thread->optimizer_depth == 0 && thread->regions_open == 0 &&
         !thread->proof;
}

bool GpuCuts::Prepare() noexcept {
  entries_ = Map<Entry>(kKept);
  buckets_ = Map<uint64_t>(kBuckets);
  made_ = Map<Made>(kMade);
  told_ = Map<Told>(kTold);
  return entries_ != nullptr && buckets_ != nullptr && made_ != nullptr && told_ != nullptr;
}

class GpuCuts::Locked {
 public:
  explicit Locked(GpuCuts& cuts) noexcept : cuts_(cuts) { cuts_.mutex_.lock(); }
  ~Locked() {
    c10::StorageImpl* dropped[kDroppedMax];
    const uint32_t count = std::exchange(cuts_.dropped_count_, 0);
    std::copy(cuts_.dropped_, cuts_.dropped_ + count, dropped);
    cuts_.mutex_.unlock();
    for (uint32_t i = 0; i < count; ++i) {
      (void)c10::intrusive_ptr<c10::StorageImpl>::reclaim(dropped[i]);
    }
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  GpuCuts& cuts_;
};

// One hold of it, once the mutex is given up.
void GpuCuts::LetDie(c10::StorageImpl* storage) noexcept {
  if (dropped_count_ < kDroppedMax) {
    dropped_[dropped_count_++] = storage;
  } else {
    (void)c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage);
  }
}

// ---- the table of what was written

uint64_t GpuCuts::oldest() const noexcept {
  return std::max(forgotten_, count_ > kKept ? count_ - kKept : 0);
}

uint64_t GpuCuts::Bucket(const void* storage) noexcept {
  return ((reinterpret_cast<uintptr_t>(storage) >> 4) * wire::kGoldenRatio) >> 52;
}

GpuCuts::Entry* GpuCuts::Add(const InputSeen& seen, uint64_t event, uint8_t tensor,
                             List* list) noexcept {
  Entry& entry = At(count_);
  if (count_ >= kKept) {
    if (entry.state == State::kOpen) {
      Leave(&entry, State::kGone);
      Compact(entry.list);
    }
    TorchWeakStorageOps().drop(entry.storage.handle);
  }
  entry = Entry{};
  entry.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(seen.storage.storage));
  entry.byte_begin = seen.byte_begin;
  entry.byte_end = seen.byte_end;
  entry.numel = seen.numel;
  entry.dense = seen.byte_end - seen.byte_begin == BytesOf(seen);
  entry.event = event;
  entry.tensor = tensor;
  entry.list = list;
  entry.state = State::kKnown;
  uint64_t& newest = buckets_[Bucket(seen.storage.storage)];
  entry.older = newest;
  newest = ++count_;
  return &entry;
}

// Newest first, while `fn` answers true.
template <class Fn>
void GpuCuts::ForEachOf(const void* storage, uint64_t begin, uint64_t end, Fn&& fn) noexcept {
  for (uint64_t at = buckets_[Bucket(storage)]; at > oldest();) {
    Entry& entry = At(at - 1);
    // What follows in the bucket was written over long ago.
    if (entry.older >= at) return;
    at = entry.older;
    const bool overlaps = entry.byte_begin < end && begin < entry.byte_end;
    if (entry.storage.storage == storage && overlaps && !fn(entry)) return;
  }
}

GpuCuts::Entry* GpuCuts::FindNewest(const void* storage, uint64_t begin, uint64_t end) noexcept {
  Entry* found = nullptr;
  ForEachOf(storage, begin, end, [&found](Entry& entry) {
    found = &entry;
    return false;
  });
  return found;
}

void GpuCuts::FindWriters(const InputSeen& input, CutTensor* tensor) noexcept {
  tensor->in_part = true;
  ForEachOf(input.storage.storage, input.byte_begin, input.byte_end,
            [&input, tensor](const Entry& entry) {
              if (tensor->writers_count == CutTensor::kWritersMax) return false;
              tensor->writers[tensor->writers_count++] = {entry.event, entry.tensor};
              const bool same = entry.byte_begin == input.byte_begin &&
                                entry.byte_end == input.byte_end && entry.numel == input.numel;
              const bool covers = entry.dense && entry.byte_begin <= input.byte_begin &&
                                  entry.byte_end >= input.byte_end;
              tensor->in_part = !same && !covers;
              return tensor->in_part;
            });
}

// What was there before cannot be looked at any more.
void GpuCuts::MarkOverwritten(const InputSeen& by) noexcept {
  ForEachOf(by.storage.storage, by.byte_begin, by.byte_end, [this](Entry& entry) {
    if (entry.state == State::kOpen || entry.state == State::kGated) Leave(&entry, State::kGone);
    return true;
  });
}

// A cut may ask the event, which is not told yet, about it.
bool GpuCuts::IsReachable(const Entry& entry) const noexcept {
  return entry.op != nullptr &&
         (entry.state == State::kOpen ||
          (entry.needed && entry.event > final_.load(std::memory_order_relaxed)));
}

// So that its memory is there when its cut comes.
void GpuCuts::Hold(Entry* entry) noexcept {
  const auto* storage = static_cast<const c10::StorageImpl*>(entry->storage.storage);
  if (storage->nbytes() > kHeldBytesMax || PythonObjectIn(storage->pyobj_slot()) != nullptr) return;
  entry->held = TakeStorage(storage).release();
}

// The last hold of a storage that Python knows takes the GIL with it.
void GpuCuts::Release(Entry* entry) noexcept {
  c10::StorageImpl* held = std::exchange(entry->held, nullptr);
  if (held == nullptr) return;
  if (PythonObjectIn(held->pyobj_slot()) == nullptr) return LetDie(held);
  const uint32_t count = with_python_count_.load(std::memory_order_relaxed);
  if (count == kWithPythonMax) return;  // kept for good
  with_python_[count] = held;
  with_python_count_.store(count + 1, std::memory_order_relaxed);
}

void GpuCuts::ReleaseWithGil() noexcept {
  if (with_python_count_.load(std::memory_order_relaxed) == 0) return;
  c10::StorageImpl* held[kWithPythonMax];
  uint32_t count = 0;
  {
    const Locked lock(*this);
    count = with_python_count_.exchange(0, std::memory_order_relaxed);
    std::copy(with_python_, with_python_ + count, held);
  }
  for (uint32_t i = 0; i < count; ++i) {
    (void)c10::intrusive_ptr<c10::StorageImpl>::reclaim(held[i]);
  }
}

void GpuCuts::Leave(Entry* entry, State state) noexcept {
  const bool was_open = entry->state == State::kOpen;
  Release(entry);
  entry->state = state;
  CutOp* op = entry->op;
  if (state != State::kGated || !entry->needed) entry->op = nullptr;
  // From here on the event may be told, and gone.
  if (was_open) op->open.fetch_sub(1, std::memory_order_release);
}

// ---- noting

GpuCuts::List* GpuCuts::ListOf(int gpu, void* stream) noexcept {
  for (List& list : lists_) {
    if (!list.used) {
      list = List{};
      list.stream = stream;
      list.gpu = static_cast<int8_t>(gpu);
      list.used = true;
    }
    if (list.stream == stream && list.gpu == gpu) return &list;
  }
  return nullptr;
}

bool GpuCuts::IsCurrent(const List& list) const noexcept {
  return list.used && gpu_.CurrentStream(list.gpu) == list.stream;
}

bool GpuCuts::MayWait(ThreadState* thread, int gpu) noexcept {
  const Locked lock(*this);
  List* list = ListOf(gpu, gpu_.CurrentStream(gpu));
  thread->cut_run = list == thread->cut_list ? thread->cut_run + 1 : 0;
  thread->cut_list = list;
  return list != nullptr && thread->cut_run >= kAtHomeAfter;
}

void GpuCuts::Record(ThreadState* thread, const Frame& frame, const Moment& moment, CutOp* op,
                     bool at_once, uint64_t ticket) noexcept {
  const Locked lock(*this);
  any_.store(true, std::memory_order_relaxed);
  newest_event_ = std::max(newest_event_, op->number);
  op->at_layer = true;
  op->at_once = at_once;
  op->backward = moment.place.phase == wire::Phase::kBackward;
  op->needed = !at_once && !op->backward && c10::GradMode::is_enabled();
  List* list = const_cast<List*>(static_cast<const List*>(thread->cut_list));
  RecordForward(moment, op);
  // First, for a value may find no room, and be cut where it stands.
  for (uint32_t i = 0; i < op->outputs; ++i) MarkOverwritten(op->tensors[i].seen);
  for (uint32_t i = op->outputs; i < op->outputs + op->inputs; ++i) {
    const InputSeen& input = op->tensors[i].seen;
    CutTensor& tensor = op->tensors[i].cut;
    tensor = CutTensor{};
    if (input.gpu < 0 || input.overwritten) continue;
    FindWriters(input, &tensor);
    // Nobody is known to have written it: looked at where it is met first.
    if (tensor.writers_count != 0 || at_once || input.updated || input.rewritten ||
        input.numel == 0 || i >= 62) {
      continue;
    }
    Entry* entry = Add(input, op->number, static_cast<uint8_t>(i), list);
    entry->op = op;
    entry->result = true;
    tensor.writers[tensor.writers_count++] = {op->number, static_cast<uint8_t>(i)};
    tensor.in_part = false;
    Open(thread, entry);
  }
  for (uint32_t i = 0; i < op->outputs; ++i) {
    const InputSeen& output = op->tensors[i].seen;
    CutTensor& tensor = op->tensors[i].cut;
    tensor = CutTensor{};
    Entry* entry = Add(output, op->number, static_cast<uint8_t>(i), list);
    // One element stands for all.
    entry->dense |= (frame.op->families & kFills) != 0;
    if (at_once || output.numel == 0) {
      tensor.Add({ticket, static_cast<uint8_t>(i), false, false});
      continue;
    }
    entry->op = op;
    entry->needed = op->needed;
    Hold(entry);
    Open(thread, entry);
  }
  const SequenceEntry* made = SequenceOf(thread, frame);
  if (made == nullptr) return;
  made_[static_cast<uint64_t>(frame.sequence + 1) % kMade] = {made, frame.sequence + 1, op,
                                                              op->number, op->needed};
}

void GpuCuts::RecordForward(const Moment& moment, CutOp* op) noexcept {
  const SequenceEntry* made = op->backward ? moment.node_made_by.Get() : nullptr;
  if (made == nullptr) return;
  const Made* forward = FindMade(made, moment.node_made_by.sequence_plus_one);
  if (forward != nullptr) {
    op->forward = forward->event;
  } else {
    op->forward_unknown = made->op == nullptr || !made->op->skip;
  }
}

const GpuCuts::Made* GpuCuts::FindMade(const SequenceEntry* entry,
                                       int64_t plus_one) const noexcept {
  const Made& made = made_[static_cast<uint64_t>(plus_one) % kMade];
  return made.entry == entry && made.sequence_plus_one == plus_one ? &made : nullptr;
}

void GpuCuts::RecordLost(const InputSeen& tensor, uint64_t event) noexcept {
  const Locked lock(*this);
  MarkOverwritten(tensor);
  Add(tensor, event, 0, nullptr);
}

void GpuCuts::RecordClean(const InputSeen& tensor, uint64_t event) noexcept {
  RecordLost(tensor, event);  // the event says more when it is told
}

void GpuCuts::Forget(const InputSeen& tensor) noexcept {
  const Locked lock(*this);
  MarkOverwritten(tensor);
  ForEachOf(tensor.storage.storage, tensor.byte_begin, tensor.byte_end, [](Entry& entry) {
    entry.byte_end = entry.byte_begin;
    return true;
  });
}

void GpuCuts::RecordTensors(std::span<const InputSeen* const> tensors, uint64_t event,
                            uint64_t ticket, bool as_list) noexcept {
  // All that the event holds is known when it is told: those beyond the bits share the last.
  constexpr size_t kLastBit = 61;
  const Locked lock(*this);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const InputSeen& seen = *tensors[i];
    Entry* entry = FindNewest(seen.storage.storage, seen.byte_begin, seen.byte_end);
    const bool same = entry != nullptr && entry->byte_begin == seen.byte_begin &&
                      entry->byte_end == seen.byte_end && entry->numel == seen.numel;
    if (same && entry->state != State::kKnown && IsReachable(*entry)) {
      entry->op->tensors[entry->tensor].cut.Add({ticket, static_cast<uint8_t>(i), false, as_list});
      Leave(entry, State::kKnown);
    }
    // Whoever reads it from now on finds it known.
    Add(seen, event, static_cast<uint8_t>(std::min(i, kLastBit)), nullptr);
  }
}

// A value waits for the next cut.
void GpuCuts::Open(ThreadState* thread, Entry* entry) noexcept {
  List* list = entry->list;
  // An event that is needed is not told before the step ends, so that it can be opened again.
  entry->op->open.fetch_add(1, std::memory_order_relaxed);
  entry->state = State::kOpen;
  if (list->open_count == kOpenMax) MakeRoom(thread, list);
  const auto number = static_cast<uint64_t>(entry - entries_);
  list->open[list->open_count++] = number;
}

void GpuCuts::MakeRoom(ThreadState* thread, List* list) noexcept {
  for (uint32_t i = 0; i < list->open_count; ++i) {
    Entry& entry = entries_[list->open[i]];
    if (entry.state == State::kOpen && entry.list == list && !IsThere(entry)) {
      Leave(&entry, State::kGone);
    }
  }
  Compact(list);
  if (list->open_count == kOpenMax) Cut(thread, list);
}

// Its memory has not been given back, or moved.
bool GpuCuts::IsThere(const Entry& entry) const noexcept {
  return IsAlive(entry.op->tensors[entry.tensor].seen);
}

void GpuCuts::Compact(List* list) noexcept {
  uint32_t kept = 0;
  list->results = 0;
  for (uint32_t i = 0; i < list->open_count; ++i) {
    const Entry& entry = entries_[list->open[i]];
    if (entry.state != State::kOpen || entry.list != list) continue;
    list->open[kept++] = list->open[i];
    list->results += entry.result && entry.tensor < entry.op->outputs;
  }
  list->open_count = kept;
}

// ---- cuts

// What one launch looks at. This is the place to change where a launch takes more tensors.
struct GpuCuts::Batch {
  Entry* crossing[device::kOutputsMax];
  size_t crossing_count = 0;
  Entry* beside[device::kInputsMax];
  size_t beside_count = 0;
};

// As many launches as it takes; what lies beside is always looked at where the first of those that
// cross are bad.
void GpuCuts::LookAt(ThreadState* thread, List* list, std::span<Entry* const> crossing,
                     std::span<Entry* const> beside) noexcept {
  size_t crossed = 0;
  size_t looked = 0;
  while (crossed < crossing.size() || looked < beside.size()) {
    Batch batch;
    const size_t from = crossed < crossing.size() ? crossed : 0;
    for (size_t i = from; i < crossing.size() && batch.crossing_count < device::kOutputsMax; ++i) {
      batch.crossing[batch.crossing_count++] = crossing[i];
    }
    if (from == crossed) crossed += batch.crossing_count;
    while (looked < beside.size() && batch.beside_count < device::kInputsMax) {
      batch.beside[batch.beside_count++] = beside[looked++];
    }
    Launch(thread, &batch);
  }
  Compact(list);
}

// The memory is held while the launch is made: another thread may be about to let go of it. From
// then on the stream's order protects it.
void GpuCuts::Launch(ThreadState* thread, Batch* batch) noexcept {
  const InputSeen* outputs[device::kOutputsMax] = {};
  const InputSeen* inputs[device::kInputsMax] = {};
  const auto take = [&](Entry** entries, size_t* count, const InputSeen** seen) {
    size_t kept = 0;
    for (size_t i = 0; i < *count; ++i) {
      Entry* entry = entries[i];
      if (!IsReachable(*entry)) continue;
      auto storage = TakeStorage(static_cast<const c10::StorageImpl*>(entry->storage.storage));
      const bool there = storage && dropped_count_ < kDroppedMax && IsThere(*entry);
      if (storage) LetDie(storage.release());
      if (!there) {
        Leave(entry, State::kGone);
        continue;
      }
      seen[kept] = &entry->op->tensors[entry->tensor].seen;
      entries[kept++] = entry;
    }
    *count = kept;
  };
  take(batch->crossing, &batch->crossing_count, outputs);
  take(batch->beside, &batch->beside_count, inputs);
  if (batch->crossing_count == 0) {
    std::swap_ranges(batch->crossing, batch->crossing + device::kOutputsMax, batch->beside);
    std::swap_ranges(outputs, outputs + device::kOutputsMax, inputs);
    std::swap(batch->crossing_count, batch->beside_count);
  }
  if (batch->crossing_count == 0) return;
  const GpuChecks::Launched launched =
      gpu_.Check(thread, {outputs, batch->crossing_count}, {inputs, batch->beside_count},
                 /*reports=*/false);
  CountLaunch(entry_, thread, outputs[0]->gpu, launched, {outputs, batch->crossing_count});
  const bool made = launched.ticket != 0 && launched.graph == 0;
  const auto settle = [&](Entry* entry, size_t place, bool gated) {
    if (entry->op == nullptr) return;
    CutTensor& tensor = entry->op->tensors[entry->tensor].cut;
    if (made) tensor.Add({launched.ticket, static_cast<uint8_t>(place), gated, false});
    Leave(entry, !made ? State::kGone : gated ? State::kGated : State::kKnown);
  };
  for (size_t i = 0; i < batch->crossing_count; ++i) settle(batch->crossing[i], i, false);
  for (size_t i = 0; i < batch->beside_count; ++i) settle(batch->beside[i], i, true);
}

void GpuCuts::Cut(ThreadState* thread, List* list) noexcept {
  Entry* crossing[kOpenMax];
  Entry* beside[kOpenMax];
  size_t crossing_count = 0;
  size_t beside_count = 0;
  for (uint32_t i = 0; i < list->open_count; ++i) {
    Entry& entry = entries_[list->open[i]];
    if (entry.state != State::kOpen || entry.list != list) continue;
    if (!IsThere(entry)) {
      Leave(&entry, State::kGone);
    } else if (entry.result || entry.held != nullptr) {
      crossing[crossing_count++] = &entry;
    } else {
      beside[beside_count++] = &entry;
    }
  }
  // The newest have all others behind them.
  const size_t newest =
      crossing_count == 0 ? std::min(beside_count, size_t{device::kOutputsMax}) : 0;
  for (size_t i = 0; i < newest; ++i) crossing[crossing_count++] = beside[--beside_count];
  AddRead(*list, beside, &beside_count);
  LookAt(thread, list, {crossing, crossing_count}, {beside, beside_count});
}

// What the open ops have read, and an earlier cut has left unknown, as far as there is room.
void GpuCuts::AddRead(const List& list, Entry** beside, size_t* count) noexcept {
  const size_t room =
      std::max<size_t>((*count + device::kInputsMax - 1) / device::kInputsMax * device::kInputsMax,
                       device::kInputsMax);
  for (uint32_t i = list.open_count; i != 0 && *count < room; --i) {
    const Entry& entry = entries_[list.open[i - 1]];
    if (entry.state != State::kOpen || entry.list != &list) continue;
    AddKeptOf(list, *entry.op, room, beside, count);
  }
}

// What was read or left by the op, is there and not known.
void GpuCuts::AddKeptOf(const List& list, const CutOp& op, size_t room, Entry** beside,
                        size_t* count) noexcept {
  for (uint32_t i = 0; i < op.outputs + op.inputs && *count < room; ++i) {
    const InputSeen& seen = op.tensors[i].seen;
    if (seen.gpu < 0 || seen.overwritten) continue;
    Entry* entry = FindNewest(seen.storage.storage, seen.byte_begin, seen.byte_end);
    const bool unknown = entry != nullptr && entry->list == &list &&
                         entry->state == State::kGated && !entry->leaf && IsReachable(*entry);
    if (!unknown || !IsThere(*entry)) continue;
    if (std::find(beside, beside + *count, entry) == beside + *count) beside[(*count)++] = entry;
  }
}

void GpuCuts::CutAllCurrent(ThreadState* thread) noexcept {
  for (List& list : lists_) {
    if (list.open_count != 0 && IsCurrent(list)) Cut(thread, &list);
  }
}

// The value crosses the next cut of its stream.
void GpuCuts::Cross(ThreadState* thread, Entry* entry) noexcept {
  if (entry->list == nullptr || !IsReachable(*entry) || entry->result) return;
  // To make room, what is open there may be cut, on the current stream.
  if (entry->state == State::kGated && IsCurrent(*entry->list)) Open(thread, entry);
  if (entry->state != State::kOpen) return;
  entry->result = true;
  ++entry->list->results;
}

void GpuCuts::AtResult(ThreadState* thread, const PlainTensor& tensor, bool now) noexcept {
  const Locked lock(*this);
  Entry* entry = FindNewest(tensor.storage, tensor.byte_begin, tensor.byte_end);
  if (entry == nullptr || entry->list == nullptr) return;
  List* list = entry->list;
  Cross(thread, entry);
  const bool full = list->results >= device::kOutputsMax;
  if ((now || full) && list->results != 0 && IsCurrent(*list)) Cut(thread, list);
}

void GpuCuts::AtPass(ThreadState* thread, const SequenceEntry* root) noexcept {
  const Locked lock(*this);
  const Made* made = root != nullptr ? FindMade(root, root->sequence.load()) : nullptr;
  if (made != nullptr && made->needed && made->event > final_.load(std::memory_order_relaxed)) {
    for (uint32_t i = 0; i < made->op->outputs; ++i) {
      const InputSeen& seen = made->op->tensors[i].seen;
      Entry* entry = FindNewest(seen.storage.storage, seen.byte_begin, seen.byte_end);
      if (entry != nullptr && entry->event == made->event) Cross(thread, entry);
    }
  }
  CutAllCurrent(thread);
}

void GpuCuts::AtEscape(ThreadState* thread, const InputSeen& input) noexcept {
  const Locked lock(*this);
  Entry* entry = FindNewest(input.storage.storage, input.byte_begin, input.byte_end);
  if (entry == nullptr || entry->list == nullptr) return;
  List* list = entry->list;
  Cross(thread, entry);
  if (list->open_count != 0 && IsCurrent(*list)) Cut(thread, list);
}

void GpuCuts::AtNodeEnd(ThreadState* thread) noexcept try {
  const Locked lock(*this);
  auto* list = const_cast<List*>(static_cast<const List*>(thread->cut_list));
  if (list == nullptr || list->open_count == 0 || !IsCurrent(*list)) return;
  Entry* left[kOpenMax];
  size_t left_count = 0;
  for (uint32_t i = 0; i < list->open_count; ++i) {
    Entry& entry = entries_[list->open[i]];
    // A checkpoint computes a part of the forward anew inside its node.
    if (entry.state != State::kOpen || entry.list != list || !entry.op->backward) continue;
    if (IsThere(entry)) {
      left[left_count++] = &entry;
    } else {
      Leave(&entry, State::kGone);
    }
  }
  if (left_count == 0) return Compact(list);
  // The gradients of leaves are looked at by the optimizer: what made them waits for that.
  const LeafSizes leaves = LeavesOfRunningNode();
  for (const int64_t size : leaves) {
    Entry** fitting =
        std::find_if(left, left + left_count, [size](const Entry* e) { return e->numel == size; });
    const auto fits =
        std::count_if(left, left + left_count, [size](const Entry* e) { return e->numel == size; });
    if (size == 0 || fits == 0 || fits > std::count(leaves.begin(), leaves.end(), size)) continue;
    Entry* entry = *fitting;
    std::copy(fitting + 1, left + left_count, fitting);
    --left_count;
    entry->op->needed = entry->needed = entry->leaf = true;
    Leave(entry, State::kGated);
  }
  if (left_count == 0) return Compact(list);
  Entry* beside[kOpenMax];
  size_t beside_count = 0;
  const SequenceEntry* made_by = MadeRunningNode(thread);
  const Made* made = made_by != nullptr ? FindMade(made_by, made_by->sequence.load()) : nullptr;
  if (made != nullptr && made->needed && made->event > final_.load(std::memory_order_relaxed)) {
    AddKeptOf(*list, *made->op, kOpenMax, beside, &beside_count);
  }
  const auto waits = [](const Entry* entry) { return entry->held != nullptr; };
  const auto was_deferred = [](const Entry* entry) { return entry->deferred; };
  if (beside_count == 0 && std::none_of(left, left + left_count, was_deferred)) {
    // What the node has read and left is there at the end of the next one.
    for (size_t i = 0; i < left_count; ++i) left[i]->deferred = !waits(left[i]);
    return Compact(list);
  }
  LookAt(thread, list, {left, left_count}, {beside, beside_count});
} catch (...) {
}

void GpuCuts::AtUpdate(ThreadState* thread) noexcept {
  const Locked lock(*this);
  const uint64_t begin = std::max(step_begin_, oldest());
  step_begin_ = count_;
  const uint64_t before = final_.load(std::memory_order_relaxed);
  LookAtAlive(thread, begin, kOutlivingBytesMax);
  for (List& list : lists_) {
    for (uint32_t i = 0; i < list.open_count; ++i) {
      Entry& entry = entries_[list.open[i]];
      // What is on a stream that nobody uses any more holds up all others.
      const bool old = !IsCurrent(list) && entry.event <= before;
      if (entry.state != State::kOpen || entry.list != &list) continue;
      if (old || !IsThere(entry)) Leave(&entry, State::kGone);
    }
    Compact(&list);
  }
  FinalizeLocked(newest_event_);
}

// All that is open or was looked at for another's sake, from this entry on, on streams that are
// current. The gradients of leaves are their optimizer's.
void GpuCuts::LookAtAlive(ThreadState* thread, uint64_t from, uint64_t bytes_max) noexcept {
  for (List& list : lists_) {
    if (!IsCurrent(list)) continue;
    Entry* alive[device::kOutputsMax];
    size_t count = 0;
    uint64_t bytes = 0;
    for (uint64_t number = from; number < count_ && bytes <= bytes_max; ++number) {
      Entry& entry = At(number);
      const bool unknown =
          entry.state == State::kOpen || (entry.state == State::kGated && !entry.leaf);
      if (entry.list != &list || !unknown || !IsReachable(entry) || !IsThere(entry)) continue;
      bytes += BytesOf(entry.op->tensors[entry.tensor].seen);
      alive[count++] = &entry;
      if (count < device::kOutputsMax) continue;
      LookAt(thread, &list, {alive, count}, {});
      count = 0;
    }
    LookAt(thread, &list, {alive, count}, {});
  }
}

void GpuCuts::CloseAll(ThreadState* thread) noexcept {
  {
    const Locked lock(*this);
    LookAtAlive(thread, oldest(), UINT64_MAX);
  }
  LetGo();
}

void GpuCuts::LetGo() noexcept {
  const Locked lock(*this);
  for (List& list : lists_) {
    for (uint32_t i = 0; i < list.open_count; ++i) {
      Entry& entry = entries_[list.open[i]];
      if (entry.state == State::kOpen && entry.list == &list) Leave(&entry, State::kGone);
    }
    list.open_count = list.results = 0;
  }
  FinalizeLocked(newest_event_);
  forgotten_ = count_;
  any_.store(false, std::memory_order_relaxed);
}

void GpuCuts::Finalize(uint64_t through) noexcept {
  const Locked lock(*this);
  FinalizeLocked(through);
}

void GpuCuts::FinalizeLocked(uint64_t through) noexcept {
  if (through > final_.load(std::memory_order_relaxed)) {
    final_.store(through, std::memory_order_release);
  }
}

// ---- telling

uint64_t GpuCuts::FirstUnanswered(const CutOp& op) noexcept {
  for (uint32_t i = 0; i < op.outputs + op.inputs; ++i) {
    const CutTensor& tensor = op.tensors[i].cut;
    for (uint32_t k = 0; k < std::min(tensor.looks_count, CutTensor::kLooksMax); ++k) {
      bool lost = false;
      const uint64_t ticket = tensor.looks[k].ticket;
      if (ticket != 0 && gpu_.Find(ticket, &lost) == nullptr && !lost) return ticket;
    }
  }
  return 0;
}

GpuCuts::Finding GpuCuts::Find(const CutTensor& tensor) noexcept {
  Finding found;
  for (uint32_t k = 0; k < std::min(tensor.looks_count, CutTensor::kLooksMax); ++k) {
    const CutLook& look = tensor.looks[k];
    bool lost = false;
    const GpuAnswer* answer = look.ticket != 0 ? gpu_.Find(look.ticket, &lost) : nullptr;
    if (look.ticket != 0 && answer == nullptr) continue;
    if (answer == nullptr || answer->outcome == device::Finished::Outcome::kClean) {
      if (!look.gated) found.known = Known::kClean;
      continue;
    }
    const device::CheckResult& result = *answer->result;
    Finding bad{.known = Known::kBad, .gated = look.gated, .brief = result.brief != 0};
    if (look.in_list) {
      const ListedEntry entry = FindListed(device::ListOf(result), look.place);
      bad.kinds = entry.kinds;
      bad.counted = entry.counted;
      bad.counts = entry.counts;
      bad.by_place = true;
    } else {
      bad.kinds = (look.gated ? result.input_kinds : result.output_kinds)[look.place];
      bad.counts = (look.gated ? result.inputs : result.outputs)[look.place];
      bad.counted = true;
    }
    if (bad.kinds != 0) return bad;
    found.known = Known::kClean;
  }
  return found;
}

void GpuCuts::RecordTold(uint64_t event, uint64_t known) noexcept {
  told_[event % kTold] = {event, known};
}

void GpuCuts::RecordDoubt(uint64_t event, const BadEntry& from, uint8_t kinds) noexcept {
  Doubt& doubt = doubts_[doubts_count_++ % kDoubts];
  doubt = {event, from};
  doubt.from.kinds = kinds;
}

const BadEntry* GpuCuts::FindDoubt(uint64_t event) const noexcept {
  for (const Doubt& doubt : doubts_) {
    if (doubt.event == event) return &doubt.from;
  }
  return nullptr;
}

Traced GpuCuts::Trace(const CutOp& op) const noexcept {
  Traced traced;
  for (uint32_t i = op.outputs; i < op.outputs + op.inputs; ++i) {
    const SeenTensor& input = op.tensors[i];
    // Looked at, or known to be bad; what lies on the CPU was read where the op began.
    if (input.seen.gpu < 0 || input.seen.overwritten || input.looked_at >= 0 || input.seen.known) {
      continue;
    }
    traced.complete &= !input.cut.in_part;
    for (uint32_t k = 0; k < input.cut.writers_count; ++k) {
      const CutTensor::Writer& writer = input.cut.writers[k];
      if (IsResolved(writer.event, uint64_t{1} << writer.tensor)) continue;
      const BadEntry* doubt = FindDoubt(writer.event);
      traced.complete &= doubt != nullptr && IsResolved(writer.event, kHandsOnNan);
      if (doubt == nullptr) continue;
      wire::Source source = SourceFrom(*doubt);
      source.kinds = doubt->kinds != 0 ? doubt->kinds : wire::kHasNan;
      traced.sources.Add(source, doubt->value.index);
    }
  }
  traced.complete &=
      !op.forward_unknown && (op.forward == 0 || IsResolved(op.forward, kOutputsKnown));
  return traced;
}

}  // namespace nanwatch
