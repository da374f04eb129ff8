// SPDX-License-Identifier: Apache-2.0
// Batches of level sampled are resolved (op_batches.h): which results were bad, in the order in
// which their ops ran, and how much is known of what these ops read.
#include <algorithm>

#include "shim/observe/gpu/batch_answer.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/resolver.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

using State = KnownNotes::State;

// An op between the two may have read what the second one wrote over.
bool MayHaveRead(const OpNote& reader, uint32_t at, const OpNote& unread, uint32_t unread_at) {
  if (unread.number >= reader.number) return false;
  return unread_at < at &&
         (unread.written_over_by < 0 || static_cast<uint32_t>(unread.written_over_by) >= at);
}

// A recorded value that was read, nobody knows as which input.
void AddValue(const ValueRef& value, uint32_t site, uint8_t kinds, Sources* sources) {
  wire::Source source{};
  source.kind = static_cast<uint8_t>(wire::SourceKind::kValue);
  source.site = site;
  source.value = value.ticket;
  source.kinds = kinds;
  source.input = 255;
  sources->Add(source, value.index);
}

bool TakesOneTensor(const OpTraits& op) {
  const auto& arguments = op.schema->arguments();
  return std::count_if(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
           return argument.type()->kind() == c10::TypeKind::TensorType;
         }) == 1;
}

}  // namespace

void GpuResolver::ResolveBatch(BatchEvent& batch, const GpuAnswer* answer) noexcept {
  if (answer != nullptr && answer->outcome == device::Finished::Outcome::kBad) {
    uint32_t entry_count = 0;
    for (uint32_t i = 0; i < batch.count; ++i) entry_count += batch.notes[i].entry >= 0;
    BatchAnswer found{&batch, device::BatchOf(*answer->result), entry_count};
    return IsMasks(found) ? RecordMasks(found) : ResolveBadBatch(found);
  }
  const bool any_bad = parts_.bad_values.size() != 0;
  for (uint32_t i = 0; i < batch.count;) {
    const std::span<OpNote> notes = NotesOfOp(batch, i);
    bool read = answer != nullptr;
    for (const OpNote& note : notes) {
      read &= note.in_full;
      if (note.in_full && answer != nullptr && any_bad) ForgetBad(parts_.bad_values, note.seen);
    }
    notes_.Record(notes.front(), read ? State::kClean : State::kUnread);
    i += static_cast<uint32_t>(notes.size());
  }
}

void GpuResolver::ResolveBadBatch(BatchAnswer& found) noexcept {
  BatchEvent& batch = *found.batch;
  for (uint32_t i = 0; i < batch.other_count; ++i) {
    OpNote& other = batch.others[i];
    const BatchAnswer::Read read = found.Of(other, /*is_other=*/true);
    if (other.number == 0) {
      if (read.kinds != 0) ResolveBadLeaf(found, other);
      continue;
    }
    const KnownNotes::Known* known = notes_.Find(other.number);
    if (known != nullptr && known->state == State::kBad) continue;
    ResolveNotes(found, {&other, 1}, /*are_others=*/true);
  }
  RecordReadLater(found);
  for (uint32_t i = 0; i < batch.count;) {
    const std::span<OpNote> notes = NotesOfOp(batch, i);
    ResolveNotes(found, notes, /*are_others=*/false);
    i += static_cast<uint32_t>(notes.size());
  }
}

// What an op has written over was not read. Where the op makes no NaN of finite values (relu_), the
// NaN that it left was there before.
void GpuResolver::RecordReadLater(const BatchAnswer& found) noexcept {
  BatchEvent& batch = *found.batch;
  for (uint32_t i = batch.count; i-- != 0;) {
    OpNote& note = batch.notes[i];
    const auto by = static_cast<uint32_t>(note.written_over_by);
    if (note.entry >= 0 || note.written_over_by < 0 || by >= batch.count) continue;
    const OpNote& writer = batch.notes[by];
    const bool keeps_nan = (writer.op->families & kNanProof) != 0 && TakesOneTensor(*writer.op);
    const bool same_bytes = writer.seen.byte_begin == note.seen.byte_begin &&
                            writer.seen.byte_end == note.seen.byte_end;
    if (!keeps_nan || !same_bytes) continue;
    note.kinds_read_later = found.Of(writer, /*is_other=*/false).kinds & wire::kHasNan;
  }
}

// A parameter, or another leaf, that came in bad: the ops that read it follow from it.
void GpuResolver::ResolveBadLeaf(const BatchAnswer& found, OpNote& leaf) noexcept {
  BadEntry known;
  if (FindBad(leaf.seen, &known)) return;
  const BatchAnswer::Read read = found.Of(leaf, /*is_other=*/true);
  wire::TensorStats stats{};
  FillShapeOnly(leaf.seen.View(), &stats);
  if (read.counts != nullptr) {
    FillCounts(*read.counts, read.kinds, found.result.brief != 0, &stats);
  } else {
    FillKinds(read.kinds, &stats);
  }
  leaf.seen.counted = &stats;
  resolver_->told = &found.batch->moment;
  ResolveGiven(leaf.seen.Plain());
  leaf.seen.counted = nullptr;
}

// The results of one op: one after another in the batch, or one of the others.
void GpuResolver::ResolveNotes(BatchAnswer& found, std::span<OpNote> notes,
                               bool are_others) noexcept {
  const auto is_bad = [&](const OpNote& note) { return found.Of(note, are_others).kinds != 0; };
  if (std::any_of(notes.begin(), notes.end(), is_bad)) ResolveMasksOf(notes.front());
  OpEvent& event = *scratch_;
  device::CheckResult result{};
  const uint32_t outputs = std::min<uint32_t>(notes.size(), device::kOutputsMax);
  uint8_t kinds = 0;
  event.outputs = outputs;
  event.inputs = 0;
  result.brief = found.result.brief;
  for (uint32_t i = 0; i < outputs; ++i) {
    const BatchAnswer::Read read = found.Of(notes[i], are_others);
    notes[i].in_full = read.in_full;
    SeenTensor& tensor = event.tensors[i];
    tensor.seen = notes[i].seen;
    tensor.looked_at = static_cast<int8_t>(i);
    tensor.unread = false;
    FillShapeOnly(notes[i].seen.View(), &tensor.stats);
    result.output_kinds[i] = read.kinds;
    if (read.counts != nullptr) {
      result.outputs[i] = *read.counts;
    } else {
      result.outputs[i].finite_min = 1;  // above the maximum: nothing was counted
    }
    if (!IsOneRun(notes[i].seen.View(), /*in_any_order=*/false)) {
      result.outputs[i].first_bad = ~uint64_t{0};
    }
    kinds |= read.kinds;
  }
  if (kinds != 0) {
    ResolveBadNotes(found, notes, are_others, event, result);
  } else {
    for (const OpNote& note : notes) {
      if (note.in_full && parts_.bad_values.size() != 0) ForgetBad(parts_.bad_values, note.seen);
    }
  }
  RecordNotes(notes, {result.output_kinds, outputs}, are_others);
}

// What is known of the op from here on.
void GpuResolver::RecordNotes(std::span<const OpNote> notes, std::span<const uint8_t> kinds,
                              bool are_others) noexcept {
  const OpNote& first = notes.front();
  bool read = notes.size() == first.results;
  for (const OpNote& note : notes) read &= note.in_full;
  for (size_t i = 0; i < kinds.size(); ++i) {
    BadEntry entry;
    if (kinds[i] == 0 || !FindBad(notes[i].seen, &entry)) continue;
    return notes_.RecordBad(first, entry, kinds[i]);
  }
  if (read || !are_others) notes_.Record(first, read ? State::kClean : State::kUnread);
}

void GpuResolver::ResolveBadNotes(const BatchAnswer& found, std::span<OpNote> notes,
                                  bool are_others, OpEvent& event,
                                  const device::CheckResult& result) noexcept {
  const OpNote& first = notes.front();
  ThreadState* thread = resolver_;
  event.kind = EventKind::kOp;
  event.number = found.batch != nullptr ? found.batch->number : told_event_;
  event.graph = nullptr;
  event.moment = first.moment;
  event.frame = Frame{};
  event.frame.op = first.op;
  event.frame.sequence = first.sequence;
  event.frame.kind = FrameKind::kOp;
  event.region = {};
  event.escaped = 0;
  BeginResolving(event);
  const Traced traced = TraceNote(found, first, are_others);
  const GpuAnswer answer{0, device::Finished::Outcome::kBad, &result};
  (void)FillFrame(event, &answer, /*bad=*/true);
  thread->traced = &traced;
  ResolveBadOp(event, answer);
  thread->traced = nullptr;
}

// What one note stands for as a source. False: nobody knows whether it was bad.
bool GpuResolver::AddNoteSource(const BatchEvent& batch, uint64_t producer,
                                Traced* traced) noexcept {
  if ((producer & OpNote::kLeafBit) != 0) {
    const OpNote& leaf = batch.others[producer & ~OpNote::kLeafBit];
    BadEntry entry;
    if (FindBad(leaf.seen, &entry)) {
      wire::Source source = SourceFrom(entry);
      if (source.kinds == 0) source.kinds = wire::kHasNan;
      traced->sources.Add(source, entry.value.index);
    }
    return leaf.entry >= 0;
  }
  return AddOpSource(producer, traced);
}

bool GpuResolver::AddOpSource(uint64_t producer, Traced* traced) noexcept {
  const KnownNotes::Known* known = notes_.Find(producer & ~OpNote::kViewBit);
  if (known == nullptr || known->state == State::kUnread) return false;
  if (known->state == State::kMask) return false;  // it is remembered no more
  if (known->state == State::kBad && known->value.ticket != 0) {
    AddValue(known->value, known->site, known->kinds, &traced->sources);
    // Of what is bad in part a view may show a part that is not.
    traced->complete &= (producer & OpNote::kViewBit) == 0;
  }
  return true;
}

// Whether an op of the batch may have read a value of the batch that the launch has not.
bool GpuResolver::MayHaveReadUnread(const BatchEvent& batch, const OpNote& note,
                                    bool by_edges) noexcept {
  const auto at = static_cast<uint32_t>(batch.notes.IndexOf(note));
  for (uint32_t i = 0; i < at; ++i) {
    const OpNote& earlier = batch.notes[i];
    // Edges name those that need a gradient.
    if (earlier.in_full || (by_edges && earlier.needs_gradient)) continue;
    if (MayHaveRead(note, at, earlier, i)) return true;
  }
  return false;
}

Traced GpuResolver::TraceNote(const BatchAnswer& found, const OpNote& note,
                              bool is_other) noexcept {
  Traced traced;
  bool all_known = true;
  for (uint32_t i = 0; i < note.producer_count; ++i) {
    // Places of leaves are those of the batch that the note was made in.
    const bool of_another = is_other && (note.producers[i] & OpNote::kLeafBit) != 0;
    all_known &= !of_another && AddNoteSource(*found.batch, note.producers[i], &traced);
  }
  const bool by_edges = note.has_edges && note.edges_complete && all_known;
  const bool in_backward = note.moment.place.phase == wire::Phase::kBackward;
  const bool reads_more = !by_edges || note.unlinked;
  if (in_backward) all_known &= TraceForward(note, &traced);
  if (in_backward || reads_more) {
    TraceNewest(note.moment, /*knows_none=*/!note.has_edges && !in_backward, &traced);
  }
  // A mask that no edge names may have been read.
  const bool any_mask = masks_count_ != 0 && mask_step_ == parts_.progress.completed();
  traced.complete &= all_known && !is_other && !(reads_more && !in_backward && any_mask);
  if (!is_other) {
    const BatchEvent& batch = *found.batch;
    traced.complete &= !batch.unread_without && (by_edges || !batch.unread_with_gradient) &&
                       !MayHaveReadUnread(batch, note, by_edges);
  }
  return traced;
}

// Of an op in a backward pass: what the op that made the running node had, and what it made.
bool GpuResolver::TraceForward(const OpNote& note, Traced* traced) noexcept {
  const SequenceEntry* made = note.moment.node_made_by.Get();
  if (made == nullptr) return true;
  const KnownNotes::Known* forward = notes_.Find(made->note);
  if (forward == nullptr) return made->op != nullptr && made->op->skip;
  bool all_known = AddOpSource(forward->number, traced);
  for (uint32_t i = 0; i < forward->producer_count; ++i) {
    if ((forward->producers[i] & OpNote::kLeafBit) != 0) continue;
    all_known &= AddOpSource(forward->producers[i], traced);
  }
  return all_known;
}

// What nobody knows of an op's inputs: what was left bad last it may have read. In a backward pass
// that is the gradient that its node was handed.
void GpuResolver::TraceNewest(const Moment& moment, bool knows_none, Traced* traced) noexcept {
  if (moment.place.phase == wire::Phase::kBackward) {
    if (newest_in_pass_.pass != moment.place.pass) return;
    // A NaN in the gradient explains more than what the forward had.
    if ((newest_in_pass_.kinds & wire::kHasNan) != 0) traced->sources = Sources{};
    return AddNewest(newest_in_pass_, traced);
  }
  const NewestBad& newest = knows_none ? newest_ : newest_without_gradient_;
  if (newest.thread == moment.thread && newest.step == parts_.progress.completed()) {
    AddNewest(newest, traced);
  }
}

void GpuResolver::AddNewest(const NewestBad& newest, Traced* traced) noexcept {
  // An Inf that is known to have gone in does not rule out a NaN beside it.
  const bool explained =
      traced->sources.count != 0 &&
      ((traced->sources.kinds & wire::kHasNan) != 0 || (newest.kinds & wire::kHasNan) == 0);
  if (newest.value.ticket == 0 || explained) return;
  traced->complete = false;
  traced->sources = Sources{};
  AddValue(newest.value, newest.site, newest.kinds, &traced->sources);
}

// Of any op, at any level: the next one may be recorded without its inputs.
void GpuResolver::RecordNewest(const OpEvent& event, const InputSeen& result,
                               uint8_t kinds) noexcept {
  BadEntry entry;
  if (!FindBad(result, &entry)) return;
  newest_ = NewestBad{entry.value,
                      entry.site,
                      kinds,
                      event.moment.place.pass,
                      event.moment.thread,
                      parts_.progress.completed()};
  if (event.moment.place.phase == wire::Phase::kBackward) {
    newest_in_pass_ = newest_;
  } else if (!result.requires_grad) {
    newest_without_gradient_ = newest_;
  }
}

}  // namespace nanwatch
