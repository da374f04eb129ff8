// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/op_batches.h"

#include <algorithm>
#include <utility>

#include "shim/device/batch_launch.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/launch_counts.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

c10::StorageImpl* StorageOf(const InputSeen& seen) {
  return static_cast<c10::StorageImpl*>(const_cast<void*>(seen.storage.storage));
}

// Whether an op that writes an argument has begun on this thread.
bool WritesNow(const ThreadState& thread) {
  const uint32_t open = std::min(thread.depth, ThreadState::kFramesMax);
  return std::any_of(thread.frames, thread.frames + open, [](const Frame& frame) {
    return frame.kind == FrameKind::kOp && frame.op->in_place;
  });
}

}  // namespace

// Storages whose last hold may be ours are freed behind all locks: that may call the allocator.
struct OpBatches::Released {
  // One note may end a batch and fill the next.
  static constexpr uint32_t kLaunchesMax = 2;
  c10::StorageImpl* list[kLaunchesMax * (BatchEvent::kNotesMax + BatchEvent::kOthersMax)];
  uint32_t count = 0;

  Released() = default;
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;
  ~Released() {
    for (uint32_t i = 0; i < count; ++i) {
      (void)c10::intrusive_ptr<c10::StorageImpl>::reclaim(list[i]);
    }
  }
};

// An op that has left results.
struct OpBatches::EndedOp {
  ThreadState* thread;
  const Frame& frame;
  const Moment& moment;
  device::CuStream stream;
  uint32_t results;
};

class OpBatches::Taken {
 public:
  // The owner waits: another holds it for one launch at most.
  Taken(Open& open, bool waits) noexcept : open_(open) {
    do {
      taken_ = !open_.taken.exchange(true, std::memory_order_acquire);
    } while (!taken_ && waits);
  }
  ~Taken() {
    if (taken_) open_.taken.store(false, std::memory_order_release);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  explicit operator bool() const noexcept { return taken_; }

 private:
  Open& open_;
  bool taken_ = false;
};

OpBatches::Open* OpBatches::OpenOf(ThreadState* thread) noexcept {
  if (thread->batch != nullptr) return static_cast<Open*>(thread->batch);
  for (uint32_t i = 0; i < kOpenMax; ++i) {
    ThreadState* nobody = nullptr;
    if (!open_[i].owner.compare_exchange_strong(nobody, thread)) continue;
    uint32_t used = used_.load();
    while (used < i + 1 && !used_.compare_exchange_weak(used, i + 1)) {
    }
    thread->batch = &open_[i];
    return &open_[i];
  }
  return nullptr;
}

void OpBatches::OnThreadEnd(ThreadState* thread) noexcept {
  auto* open = static_cast<Open*>(std::exchange(thread->batch, nullptr));
  if (open != nullptr) open->owner.store(nullptr);
}

template <class Fill>
bool OpBatches::RecordResults(const EndedOp& op, int gpu, const c10::TensorImpl& first,
                              Fill&& fill) noexcept {
  ThreadState* thread = op.thread;
  Open* open = OpenOf(thread);
  thread->batch_run = op.stream == thread->batch_stream ? thread->batch_run + 1 : 0;
  thread->batch_stream = op.stream;
  const bool at_home = IsAtHome(*thread);
  if (open == nullptr || op.results > BatchEvent::kNotesMax / 2) return false;
  Released released;
  const Taken taken(*open, /*waits=*/true);
  BatchEvent* batch = open->event.load(std::memory_order_relaxed);
  const bool fits = batch != nullptr && open->gpu == gpu && open->stream == op.stream &&
                    batch->count + op.results <= BatchEvent::kNotesMax;
  if (batch != nullptr && !(fits && at_home)) Launch(*open, &released);
  if (!at_home) return false;
  if (!fits && !Begin(*open, op.moment, gpu, op.stream)) return false;
  const Producers producers = ProducersOf(first);
  const uint64_t number = ops_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (SequenceEntry* made = SequenceOf(thread, op.frame); made != nullptr) made->note = number;
  for (uint32_t i = 0; i < op.results; ++i) {
    Add(*open, op, producers, number, [&](InputSeen* seen) { fill(i, seen); });
  }
  if (++open->ops >= open->ops_max || open->held_bytes >= kHeldMax) Launch(*open, &released);
  return true;
}

bool OpBatches::Record(ThreadState* thread, const Frame& frame, const Moment& moment,
                       std::span<const InputSeen* const> results) noexcept {
  const InputSeen& first = *results.front();
  const device::CuStream stream = checks_.EnterStream(thread, first.gpu);
  return RecordResults({thread, frame, moment, stream, static_cast<uint32_t>(results.size())},
                       first.gpu, *first.impl, [results](uint32_t i, InputSeen* seen) {
                         *seen = *results[i];
                         seen->storage = HoldWeakly(StorageOf(*results[i]));
                       });
}

bool OpBatches::Record(ThreadState* thread, const Frame& frame, const Moment& moment,
                       const PlainTensor& result, bool needs_gradient) noexcept {
  const device::CuStream stream = checks_.EnterStream(thread, result.gpu);
  // Elsewhere an op is counted as one on its stream where all is done that it needs.
  if (stream != thread->batch_stream || !IsAtHome(*thread)) return false;
  return RecordResults({thread, frame, moment, stream, 1}, result.gpu, *result.impl,
                       [&result, needs_gradient](uint32_t, InputSeen* seen) {
                         seen->Copy(result);
                         seen->argument = 0;
                         seen->place_in_list = InputSeen::kNoList;
                         seen->kinds = 0;
                         seen->known = seen->updated = seen->overwritten = false;
                         seen->is_result = seen->rewritten = false;
                         seen->requires_grad = needs_gradient;
                       });
}

bool OpBatches::Begin(Open& open, const Moment& moment, int gpu, device::CuStream stream) noexcept {
  LaunchAll();
  if (checks_.IsCaptured(gpu, stream)) return false;
  auto* batch = ring_.Reserve<BatchEvent>();
  if (batch == nullptr) return false;
  batch->kind = EventKind::kBatch;
  batch->moment = moment;
  batch->count = batch->other_count = 0;
  batch->unread_with_gradient = batch->unread_without = false;
  open.gpu = gpu;
  open.stream = stream;
  open.ops = 0;
  // Batches end at other ops each time, so that each op is the last one, whose inputs still live,
  // once in a while.
  const uint32_t turn = batches_.fetch_add(1, std::memory_order_relaxed);
  open.ops_max = turn % kOpsMax == 0 ? 1 + 5 * (turn / kOpsMax) % kOpsMax : kOpsMax;
  open.held_bytes = 0;
  open.event.store(batch, std::memory_order_relaxed);
  open_count_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

template <class Fill>
void OpBatches::Add(Open& open, const EndedOp& op, const Producers& producers, uint64_t number,
                    Fill&& fill) noexcept {
  BatchEvent& batch = *open.event.load(std::memory_order_relaxed);
  OpNote& note = batch.notes.Make(batch.count);
  fill(&note.seen);
  const OpTraits& traits = *op.frame.op;
  if (traits.in_place) MarkWrittenOver(batch, note.seen);
  ++batch.count;
  note.moment = op.moment;
  note.moment.first_event = ~uint64_t{0};  // what its children have found stands for itself
  note.op = &traits;
  note.sequence = op.frame.sequence;
  note.number = number;
  note.results = static_cast<uint8_t>(op.results);
  note.needs_gradient = note.seen.requires_grad;
  AddProducers(batch, producers, &note);
  if (!traits.in_place) Hold(open, &note);
}

void OpBatches::RecordWritten(std::span<const InputSeen* const> results) noexcept {
  if (!AnyOpen()) return;
  const uint32_t used = used_.load();
  for (uint32_t i = 0; i < used; ++i) {
    Open& open = open_[i];
    const Taken taken(open, /*waits=*/true);
    BatchEvent* batch = open.event.load(std::memory_order_relaxed);
    if (batch == nullptr) continue;
    for (const InputSeen* result : results) MarkWrittenOver(*batch, *result);
  }
}

// By an op that comes behind all notes of the batch so far.
void OpBatches::MarkWrittenOver(BatchEvent& batch, const InputSeen& by) noexcept {
  for (uint32_t i = 0; i < batch.count; ++i) {
    OpNote& earlier = batch.notes[i];
    if (earlier.written_over_by >= 0 || !Overlap(earlier.seen, by)) continue;
    earlier.written_over_by = static_cast<int8_t>(batch.count);
  }
}

// A result that is the op's own, and that Python has no object of yet.
void OpBatches::Hold(Open& open, OpNote* note) noexcept {
  c10::StorageImpl* storage = StorageOf(note->seen);
  if (storage->nbytes() > kHeldEachMax || PythonObjectIn(storage->pyobj_slot()) != nullptr) return;
  c10::raw::intrusive_ptr::incref(storage);
  note->held = storage;
  open.held_bytes += storage->nbytes();
}

// The last hold of a storage that Python knows takes the GIL with it.
void OpBatches::Release(c10::StorageImpl* held, Released* released) noexcept {
  if (PythonObjectIn(held->pyobj_slot()) == nullptr) {
    released->list[released->count++] = held;
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (with_python_count_ < kWithPythonMax) with_python_[with_python_count_++] = held;
}

void OpBatches::ReleaseWithGil() noexcept {
  c10::StorageImpl* held[kWithPythonMax];
  uint32_t count = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    count = std::exchange(with_python_count_, 0);
    std::copy_n(with_python_, count, held);
  }
  for (uint32_t i = 0; i < count; ++i) {
    (void)c10::intrusive_ptr<c10::StorageImpl>::reclaim(held[i]);
  }
}

void OpBatches::Launch(Open& open, Released* released) noexcept {
  BatchEvent& batch = *open.event.exchange(nullptr, std::memory_order_relaxed);
  open_count_.fetch_sub(1, std::memory_order_relaxed);
  AddUnread(open, batch);
  device::BatchEntry entries[BatchEvent::kNotesMax];
  device::BatchEntry others[BatchEvent::kOthersMax];
  size_t entry_count = 0;
  size_t other_count = 0;
  const auto take = [&](OpNote& note, device::BatchEntry* list, size_t* count) {
    if (note.held == nullptr) note.held = TakeStorage(StorageOf(note.seen)).release();
    // Results are one run of memory; what an op has read need not be.
    const bool one_run = note.number != 0 || IsOneRun(note.seen.View(), /*in_any_order=*/true);
    const bool there =
        note.held != nullptr && note.written_over_by < 0 && IsAlive(note.seen) && one_run;
    if (!there) return;
    note.entry = static_cast<int8_t>(*count);
    list[(*count)++] = EntryOf(note.seen);
  };
  for (uint32_t i = 0; i < batch.count; ++i) take(batch.notes[i], entries, &entry_count);
  for (uint32_t i = 0; i < batch.other_count; ++i) take(batch.others[i], others, &other_count);
  GpuChecks::Launched launched;
  // In a graph it would read at every replay what lives now.
  if (entry_count != 0 && !checks_.IsCaptured(open.gpu, open.stream)) {
    launched = checks_.CheckBatch(open.gpu, open.stream, {entries, entry_count},
                                  {others, other_count}, phase_.load(std::memory_order_relaxed));
    batch.ticket = launched.ticket;
  }
  CountNotes(batch, open.gpu, launched);
  const auto settle = [&](OpNote& note) {
    if (batch.ticket == 0) note.entry = -1;
    note.in_full = note.entry >= 0 && BytesOf(note.seen.View()) <= device::kReadInFullBytes;
    c10::StorageImpl* held = std::exchange(note.held, nullptr);
    if (held != nullptr) Release(held, released);
  };
  for (uint32_t i = 0; i < batch.count; ++i) settle(batch.notes[i]);
  for (uint32_t i = 0; i < batch.other_count; ++i) settle(batch.others[i]);
  KeepUnread(batch);
  ring_.Publish(&batch);
}

// What was launched, or else all of it, as unchecked.
void OpBatches::CountNotes(const BatchEvent& batch, int gpu,
                           const GpuChecks::Launched& launched) noexcept {
  const InputSeen* counted[BatchEvent::kNotesMax];
  size_t count = 0;
  for (uint32_t i = 0; i < batch.count; ++i) {
    const OpNote& note = batch.notes[i];
    if (batch.ticket == 0 || note.entry >= 0) counted[count++] = &note.seen;
  }
  CountLaunch(entry_, batch.moment.thread, gpu, launched, LaunchedTensors::Of({counted, count}));
}

// With each batch that is open, but those that others are at.
template <class Fn>
void OpBatches::ForEachOpen(Fn&& with) noexcept {
  const uint32_t used = used_.load();
  for (uint32_t i = 0; i < used; ++i) {
    Open& open = open_[i];
    if (open.event.load(std::memory_order_relaxed) == nullptr) continue;
    Released released;
    const Taken taken(open, /*waits=*/false);
    if (taken && open.event.load(std::memory_order_relaxed) != nullptr) with(open, &released);
  }
}

void OpBatches::LaunchAll() noexcept {
  if (!AnyOpen()) return;
  ForEachOpen([this](Open& open, Released* released) { Launch(open, released); });
}

bool OpBatches::LetGo(const ThreadState* thread, int gpu) noexcept {
  bool held = false;
  ForEachOpen([&](Open& open, Released* released) {
    if (open.gpu != gpu) return;
    held |= open.held_bytes != 0;
    if (thread == nullptr || (thread->batch == &open && WritesNow(*thread))) {
      Drop(open, released);
    } else {
      Launch(open, released);
    }
  });
  return held;
}

void OpBatches::DropAll() noexcept {
  ForEachOpen([this](Open& open, Released* released) { Drop(open, released); });
}

// It goes unread.
void OpBatches::Drop(Open& open, Released* released) noexcept {
  BatchEvent& batch = *open.event.exchange(nullptr);
  open_count_.fetch_sub(1, std::memory_order_relaxed);
  for (uint32_t k = 0; k < batch.count; ++k) {
    c10::StorageImpl* held = std::exchange(batch.notes[k].held, nullptr);
    if (held != nullptr) Release(held, released);
  }
  CountNotes(batch, open.gpu, {});
  ring_.Publish(&batch);
}

}  // namespace nanwatch
