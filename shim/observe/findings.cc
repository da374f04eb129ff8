#include "shim/observe/findings.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shim/check/scan.h"
#include "shim/classify/finding_class.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/inputs.h"
#include "shim/observe/kept_inputs.h"
#include "shim/observe/named_reading.h"
#include "shim/observe/place.h"
#include "shim/observe/tensor_stats.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::Phase;
using wire::Source;
using wire::SourceKind;
using wire::Target;
using wire::ValueRecord;

// A site's first values are written out with everything known; later ones only when they turn out
// to matter.
constexpr uint32_t kFullRecordsPerSite = 2;
// Writes to parameters and the like matter by themselves.
constexpr uint32_t kFullWritesPerSite = 8;
constexpr int kAncestorsMax = 512;

struct LineAsker {
  const Observer& observer;
  const ThreadState* thread;
};

uint32_t InternSite(Observer& observer, ThreadState* thread, Emitter& emitter, const SiteKey& key,
                    bool* is_new) {
  LineAsker asker{observer, thread};
  const auto line = [](void* context) {
    const auto& from = *static_cast<const LineAsker*>(context);
    return UserLineOf(from.observer, from.thread);
  };
  return emitter.InternSite(key, line, &asker, is_new);
}

// ---- tensors of a record

int FillInputs(Observer& observer, ThreadState* thread, const Frame& frame, Emitter& emitter,
               wire::TensorStats* stats) {
  int count = 0;
  // Bad inputs first: they are what the reader wants to see if not all fit.
  for (const bool want_bad : {true, false}) {
    for (uint32_t i = 0; i < frame.inputs_count && count < wire::kInputsMax; ++i) {
      const InputSeen& input = thread->inputs[frame.inputs_begin + i];
      if ((input.kinds != 0) != want_bad || input.overwritten || input.updated || input.rewritten ||
          !IsAlive(input)) {
        continue;
      }
      wire::TensorStats* one = &stats[count++];
      FillStats(input.View(), static_cast<uint8_t>(input.argument), one);
      if (input.argument < frame.op->schema->arguments().size()) {
        one->name = emitter.Intern(frame.op->schema->arguments()[input.argument].name());
      }
      if (input.known) one->value = input.bad.value.ticket;
      const NamedTensor* named = observer.python->names().FindByImpl(
          input.impl, static_cast<const c10::StorageImpl*>(input.storage.storage));
      if (named != nullptr) one->target = static_cast<uint8_t>(TargetOf(*named));
    }
  }
  return count;
}

// ---- what was written

uint32_t GpuFlag(const PlainTensor& tensor) {
  return static_cast<uint32_t>(tensor.gpu + 1) << ValueRecord::kGpuShift;
}

struct Written {
  Target target = Target::kNone;
  uint32_t flags = 0;
  uint32_t name = 0;
  const NamedTensor* named = nullptr;
};

// Nobody knows where what went in came from.
Source UnknownSource(uint8_t kinds) {
  Source source{};
  source.kind = static_cast<uint8_t>(SourceKind::kUnknown);
  source.kinds = kinds;
  source.input = 255;
  return source;
}

// After a backward pass a leaf that requires a gradient is written in place without grad mode: that
// is an update.
bool IsUpdateByHand(Observer& observer, const Place& place) {
  return place.phase == Phase::kOther && observer.plain_update_due.load(std::memory_order_relaxed);
}

Written WhatWasWritten(Observer& observer, const Frame& frame, const Place& place, Emitter& emitter,
                       const BadOutput& output) {
  Written written;
  const bool writes_existing = frame.op->in_place || (frame.op->families & kBatchNorm) != 0;
  if (!writes_existing) return written;
  if (frame.op->in_place) written.flags |= ValueRecord::kInPlace;
  const PythonNames& names = observer.python->names();
  // What a GPU has written, here or on its own side, is told of when the tensor may be gone.
  written.named = output.tensor.gpu >= 0 || output.tensor.view.counted != nullptr
                      ? names.FindByImpl(output.tensor.impl, output.tensor.storage)
                      : names.FindByImpl(output.tensor.impl);
  if (written.named == nullptr) {
    written.named = observer.python->names().FindByStorage(output.tensor.storage);
  }
  if (written.named != nullptr) {
    written.name = InternText(emitter, written.named->name);
    written.target = TargetOf(*written.named);
    written.flags |= written.target == Target::kParameter ? ValueRecord::kWroteParameter
                                                          : ValueRecord::kWroteBuffer;
  } else if (output.requires_grad && frame.op->in_place &&
             (place.phase == Phase::kOptimizer || IsUpdateByHand(observer, place))) {
    written.target = Target::kParameter;  // a leaf that no module holds
    written.flags |= ValueRecord::kWroteParameter;
  }
  return written;
}

// A cast to a wide type may overflow too (float64 to float32). Of a batch it rather passes on an
// Inf that was there (tables are read as float64); but what has a gradient was computed, by an op
// that left it finite.
bool IsCastOfComputed(const Frame& frame, const BadOutput& output) {
  return output.requires_grad && std::strcmp(frame.op->name, "aten::_to_copy") == 0;
}

// A composite of torch computes nothing but by the ops it calls. With none of them bad, it returned
// what it was given (dropout in evaluation).
bool PassesOn(const Frame& frame) {
  return frame.op->transparent && !frame.op->writes_unseen && !frame.child_bad &&
         frame.op->schema != nullptr && std::strncmp(frame.op->name, "aten::", 6) == 0;
}

OpEvidence EvidenceOf(const Frame& frame, const Place& place, const BadOutput* outputs, int count,
                      const Sources& sources) {
  OpEvidence evidence;
  for (int i = 0; i < count; ++i) evidence.output_kinds |= NonFiniteKinds(outputs[i].tensor.view);
  const uint32_t families = frame.op->families;
  evidence.inputs_seen = frame.inputs_seen;
  evidence.input_kinds = frame.inputs_seen ? sources.kinds : 0;
  // The numbers that a backward formula works with are its own results (2 / (n - 1) of a variance):
  // nobody asked.
  evidence.scalar_bad = frame.scalar_bad && place.phase != Phase::kBackward;
  evidence.writes_constants = (families & (kFills | kMasks)) != 0;
  evidence.enters = (families & kEnters) != 0;
  evidence.moves = (families & kMoves) != 0 || PassesOn(frame);
  evidence.nan_proof = (families & kNanProof) != 0;
  const wire::ElementType type = outputs[0].tensor.view.type;
  // Complex arithmetic makes NaN of Inf - Inf between its parts.
  if (type == wire::ElementType::kComplex128 || type == wire::ElementType::kComplex64 ||
      type == wire::ElementType::kComplex32) {
    evidence.nan_proof = false;
  }
  if (evidence.nan_proof && !frame.inputs_seen && place.phase == Phase::kOptimizer) {
    BadEntry bad;
    CountBad(outputs[0].tensor.view, &bad);
    evidence.bad_number =
        bad.elements > 1 && bad.elements == static_cast<uint64_t>(outputs[0].tensor.view.numel);
  }
  // What came into a module was looked at there, so that a cast inside one is of something finite.
  evidence.lacks_inf = ElementBytes(type) == 1 && type != wire::ElementType::kFloat8E5M2 &&
                       (place.layer != nullptr || outputs[0].requires_grad);
  evidence.narrows = type == wire::ElementType::kFloat16 || type == wire::ElementType::kBFloat16 ||
                     ElementBytes(type) == 1 || IsCastOfComputed(frame, outputs[0]);
  return evidence;
}

// An in-place op left exactly as much bad as it found (an optimizer stepping over a parameter that
// holds a NaN row, a clipped gradient): nothing came to be, and what is known of the memory stays
// true. What is known may be of a part only (one entry of a bias was set to -Inf): it explains all
// that is bad if it counts as much.
bool IsUnchanged(Observer& observer, const Frame& frame, const BadOutput& output) {
  if (!frame.op->in_place) return false;
  BadEntry entry;
  const PlainTensor& tensor = output.tensor;
  if (!observer.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &entry) ||
      entry.byte_begin < tensor.byte_begin || entry.byte_end > tensor.byte_end ||
      entry.elements == 0) {
    return false;
  }
  BadEntry now;
  CountBad(tensor.view, &now);
  return now.elements == entry.elements && now.kinds == entry.kinds;
}

// Remembers where the value lies, so that ops which read it are told from those that make their
// own.
void Remember(Observer& observer, const BadOutput* outputs, int count, ValueRef value,
              uint32_t site, const Written& written, bool in_optimizer, bool count_elements) {
  for (int i = 0; i < count; ++i) {
    BadEntry entry;
    entry.storage = HoldWeakly(outputs[i].tensor.storage);
    entry.byte_begin = outputs[i].tensor.byte_begin;
    entry.byte_end = outputs[i].tensor.byte_end;
    entry.dense = outputs[i].tensor.IsDense();
    entry.value = value;
    entry.site = site;
    entry.name = i == 0 ? written.name : 0;
    entry.target = i == 0 ? written.target : Target::kNone;
    entry.born_step = observer.steps.completed();
    entry.born_range = in_optimizer ? observer.steps.range() : 0;
    if (count_elements) CountBad(outputs[i].tensor.view, &entry);
    observer.bad_values.Add(entry);
  }
  observer.arming.Arm();
}

// A composite returns what an op called by it has computed and reported, or what it was given: the
// same value, once.
bool IsInherited(Observer& observer, ThreadState* thread, Frame& frame, const BadOutput* outputs,
                 int count) {
  if (!frame.op->transparent || !(frame.child_bad || PassesOn(frame))) return false;
  for (int i = 0; i < count; ++i) {
    BadEntry entry;
    if (!observer.bad_values.Find(outputs[i].tensor.storage, outputs[i].tensor.byte_begin,
                                  outputs[i].tensor.byte_end, &entry)) {
      return false;
    }
    if (SequenceEntry* sequence = SequenceOf(thread, frame); sequence != nullptr) {
      sequence->value = entry.value;
      sequence->site = entry.site;
    }
  }
  return true;
}

// One record in the making.
struct Draft {
  ValueRecord value{};
  wire::TensorStats tensors[wire::kOutputsMax + wire::kInputsMax];
};
static_assert(sizeof(Draft) == wire::kRecordBytesMax);

void NoteReachOf(Observer& observer, Emitter& emitter, const ValueRecord& record, ValueRef value) {
  const auto note = [&](wire::Reach reach) {
    emitter.NoteReach(reach, record.header.ticket, record.header.ticket, record.param,
                      record.header.clocks);
  };
  note(wire::Reach::kActivation);
  if ((record.flags & ValueRecord::kWroteParameter) != 0) note(wire::Reach::kParameter);
  if ((record.flags & ValueRecord::kWroteBuffer) != 0) note(wire::Reach::kBuffer);
  constexpr uint32_t kMatters = ValueRecord::kWroteParameter | ValueRecord::kWroteBuffer;
  if ((record.flags & kMatters) != 0) WriteAncestors(observer, value);
}

// Emits, or keeps for later, and says where the value stands among the recent ones.
ValueRef File(Observer& observer, Emitter& emitter, Draft& draft, const Sources& sources,
              const SiteKey& key, bool write, bool is_new_site) {
  const size_t bytes = sizeof(ValueRecord) +
                       sizeof(wire::TensorStats) * (draft.value.n_outputs + draft.value.n_inputs);
  draft.value.header.bytes = static_cast<uint16_t>(bytes);
  if (write) {
    if (is_new_site) emitter.KeepFirst(draft.value);
    emitter.Emit(draft.value.header);
  }
  RecentValues::Kept kept{};
  kept.record = draft.value;
  std::copy(sources.index, sources.index + wire::kSourcesMax, kept.source_index);
  kept.op = key.op;
  kept.layer = key.layer;
  kept.finding_class = key.finding_class;
  kept.written = write;
  return observer.recent_values.Add(kept);
}

SiteKey MakeKey(Observer& observer, const ThreadState* thread, Emitter& emitter, const Place& place,
                uint32_t op, FindingClass finding_class, uint8_t kinds, uint8_t outputs,
                uint32_t flags, uint32_t param) {
  SiteKey key;
  key.op = op;
  if (place.layer != nullptr) {
    key.layer = InternText(emitter, place.layer->path);
    key.layer_type = InternText(emitter, place.layer->type);
    key.root = InternText(emitter, place.layer->root);
  }
  key.node = InternText(emitter, place.node);
  if (key.node == 0 && thread->told != nullptr) key.node = thread->told->node;
  key.flags = flags;
  key.param = param;
  key.call = UserCallOf(observer, thread);
  key.phase = place.phase;
  key.finding_class = finding_class;
  key.kinds = kinds;
  key.outputs = outputs;
  return key;
}

bool MayBeOrigin(FindingClass finding_class) {
  return finding_class == FindingClass::kProduce || finding_class == FindingClass::kInfToNan ||
         finding_class == FindingClass::kExternal;
}

// Of what one place has found `seen` times: often at first, because it may be excused for a while
// (a scaler's skips), then ever more rarely, because it may be so by design.
bool IsWorthATrail(uint32_t seen) {
  constexpr uint32_t kAlwaysMax = 16;
  return seen <= kAlwaysMax || (seen & (seen - 1)) == 0;
}

// A pass may begin at the value: it is made where the roots of passes are made. A metric may be
// made by the same op there (mean, div), but needs no gradient.
bool MayBeLoss(Observer& observer, ValueRef value) {
  RecentValues::Kept made;
  return observer.recent_values.Look(value, &made) &&
         (made.record.flags & ValueRecord::kNeedsGradient) != 0 &&
         observer.passes.WasRoot(made.op, made.layer);
}

void EmitEscape(Observer& observer, ThreadState* thread, const Frame& frame, Emitter& emitter,
                const Source& source, ValueRef value, double number) {
  wire::EscapeRecord record{};
  record.value = number;
  record.source = source;
  const Place place = PlaceOf(thread);
  bool is_new = false;
  record.site = InternSite(observer, thread, emitter,
                           MakeKey(observer, thread, emitter, place, observer.NameOf(*frame.op),
                                   FindingClass::kPropagate, source.kinds, 0, place.flags, 0),
                           &is_new);
  record.header = MakeHeader(observer, thread, emitter, wire::RecordKind::kEscape, sizeof record);
  const uint32_t seen = emitter.CountSite(record.site, record.header.ticket, record.header.clocks);
  if (seen > kFullRecordsPerSite) return;
  if (MayBeLoss(observer, value)) {
    record.flags |= 1;
    emitter.NoteReach(wire::Reach::kLoss, value.ticket, record.header.ticket, 0,
                      record.header.clocks);
  }
  emitter.Emit(record.header);
  if (value.ticket != 0) WriteAncestors(observer, value);
}

// A program that tests its loss and leaves a bad one out neither begins a pass at it nor need it
// read the number: what can be seen is that one number was compared.
void NoteComparedLoss(Observer& observer, ThreadState* thread, const Frame& frame,
                      Emitter& emitter) {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!input.known || input.numel != 1 || !MayBeLoss(observer, input.bad.value)) continue;
    Source source = SourceFrom(input.bad);
    source.kinds = input.kinds;
    const double infinity = input.kinds == wire::kHasNegInf ? -HUGE_VAL : HUGE_VAL;
    const double number = (input.kinds & wire::kHasNan) != 0 ? std::nan("") : infinity;
    return EmitEscape(observer, thread, frame, emitter, source, input.bad.value, number);
  }
}

}  // namespace

wire::RecordHeader MakeHeader(Observer& observer, ThreadState* thread, Emitter& emitter,
                              wire::RecordKind kind, size_t bytes) noexcept {
  wire::RecordHeader header{};
  header.kind = static_cast<uint16_t>(kind);
  header.bytes = static_cast<uint16_t>(bytes);
  const Moment* told = thread->told;
  header.thread = (told != nullptr ? told->thread : thread)->small_id;
  header.ticket = emitter.DrawTicket();
  header.time_ns = told != nullptr ? told->time_ns : MonotonicNs();
  header.clocks = observer.steps.Now();
  return header;
}

void OnBadOutputs(Observer& observer, ThreadState* thread, Frame& frame, const BadOutput* outputs,
                  int count) noexcept {
  if (thread->proof) {
    thread->proof_seen = true;
    return;
  }
  ++thread->counters.values_bad;
  if (observer.Poisoned()) return;
  Emitter* emitter = observer.EnsureEmitter();
  if (emitter == nullptr || IsInherited(observer, thread, frame, outputs, count)) return;
  BadOutput changed[kBadOutputsMax];
  int changed_count = 0;
  for (int i = 0; i < count; ++i) {
    if (!IsUnchanged(observer, frame, outputs[i])) changed[changed_count++] = outputs[i];
  }
  if (changed_count == 0) return;
  outputs = changed;
  count = changed_count;

  const Place place = PlaceOf(thread);
  Sources sources;
  const bool in_python = UserCallOf(observer, thread) != 0;
  const OwnWrites own{in_python ? outputs : nullptr, in_python ? count : 0};
  const Traced* traced = thread->traced;
  KeptInputs kept;
  if (frame.inputs_seen) {
    CollectSeenSources(observer, thread, frame, own, &sources);
  } else if (traced == nullptr && thread->told == nullptr && thread->regions_open == 0) {
    kept.Take(frame, outputs, count);
    kept.AddSources(observer, thread, own, &sources);
  }
  if (traced != nullptr) {
    for (int i = 0; i < traced->sources.count; ++i) {
      sources.Add(traced->sources.list[i], traced->sources.index[i]);
    }
  }
  // Kernels that nobody announces run between the ops that a compiled region calls. What they made,
  // and what these ops make of it, is judged where the region returns, by what went in.
  if (sources.made_in_region && sources.count == 0) return;
  OpEvidence evidence = EvidenceOf(frame, place, outputs, count, sources);
  const bool source_known = (traced != nullptr || !frame.inputs_seen) && sources.count != 0;
  if (source_known || kept.number_bad()) {
    evidence.inputs_seen = true;
    evidence.input_kinds = sources.kinds;
    evidence.scalar_bad = kept.number_bad() && place.phase != Phase::kBackward;
  }
  FindingClass finding_class = Classify(evidence);
  if (!evidence.inputs_seen) {
    if (finding_class != FindingClass::kScalar)
      AssumeSources(observer, place, outputs, count, evidence.output_kinds, &sources);
    Source received{};
    ValueRef received_value;
    // Nothing was known to be bad when the op began; what a collective has delivered since may be
    // what it read.
    if (finding_class != FindingClass::kScalar && sources.count == 0 &&
        observer.deliveries.FindReceived(observer, thread, own.outputs, own.count, &received,
                                         &received_value)) {
      received.input = 255;
      sources.Add(received, received_value.index);
    }
    if (sources.count != 0) finding_class = FindingClass::kPropagate;
  }

  // "Asked for" and "came in" are said of clean inputs, and these may have been anything.
  if (traced != nullptr && !traced->complete && sources.count == 0 &&
      evidence.output_kinds != wire::kHasNegInf &&
      (finding_class == FindingClass::kScalar || finding_class == FindingClass::kExternal)) {
    finding_class = FindingClass::kPropagate;
    sources.Add(UnknownSource(evidence.output_kinds), 0);
  }

  const Written written = WhatWasWritten(observer, frame, place, *emitter, outputs[0]);
  uint8_t output_bits = 0;
  for (int i = 0; i < count; ++i) output_bits |= static_cast<uint8_t>(1u << (outputs[i].index & 7));
  uint32_t flags = place.flags | written.flags;
  uint32_t op_name = observer.NameOf(*frame.op);
  if (thread->regions_open != 0 && !frame.inputs_seen) {
    op_name = InternText(*emitter, thread->region.name);
    flags |= ValueRecord::kIsCompiledRegion;
  }
  const SiteKey key = MakeKey(observer, thread, *emitter, place, op_name, finding_class,
                              evidence.output_kinds, output_bits, flags, written.name);
  bool is_new = false;
  const uint32_t site = InternSite(observer, thread, *emitter, key, &is_new);

  Draft draft;
  ValueRecord& value = draft.value;
  value.header = MakeHeader(observer, thread, *emitter, wire::RecordKind::kValue, 0);
  const uint32_t seen = emitter->CountSite(site, value.header.ticket, value.header.clocks);
  value.site = site;
  value.flags =
      flags | (frame.inputs_seen ? ValueRecord::kInputsSeen : 0u) |
      (outputs[0].requires_grad ? ValueRecord::kNeedsGradient : 0u) |
      ((traced != nullptr && !traced->complete) || sources.assumed ? ValueRecord::kInexact : 0u) |
      GpuFlag(outputs[0].tensor);
  value.param = written.name;
  value.target = static_cast<uint8_t>(written.target);
  value.pass = place.pass;
  value.n_sources = static_cast<uint8_t>(sources.count);
  std::copy(sources.list, sources.list + sources.count, value.sources);
  const bool matters = (flags & (ValueRecord::kWroteParameter | ValueRecord::kWroteBuffer)) != 0;
  const bool write = seen <= (matters ? kFullWritesPerSite : kFullRecordsPerSite);
  if (write) {
    value.n_outputs = static_cast<uint8_t>(std::min(count, wire::kOutputsMax));
    for (int i = 0; i < value.n_outputs; ++i) {
      FillStats(outputs[i].tensor.view, outputs[i].index, &draft.tensors[i]);
      draft.tensors[i].value = value.header.ticket;
    }
    if (frame.inputs_seen && frame.op->schema != nullptr) {
      value.n_inputs = static_cast<uint8_t>(
          FillInputs(observer, thread, frame, *emitter, &draft.tensors[value.n_outputs]));
    } else {
      value.n_inputs = static_cast<uint8_t>(
          kept.Fill(observer, frame, *emitter, &draft.tensors[value.n_outputs]));
    }
  }
  const ValueRef ref = File(observer, *emitter, draft, sources, key, write, is_new);
  if (MayBeOrigin(finding_class) && IsWorthATrail(seen)) {
    observer.trail.Keep(observer, thread, value.header.ticket);
  }
  if (__builtin_expect(frame.kernels_pushed, 0) && outputs[0].tensor.gpu >= 0 &&
      finding_class != FindingClass::kPropagate && IsWorthATrail(seen)) {
    observer.op_kernels.NoteFinding(frame, value.header);
  }
  NoteReachOf(observer, *emitter, value, ref);
  if (thread->regions_open != 0 && thread->region.source.kinds == 0) {
    thread->region.source.kind = static_cast<uint8_t>(SourceKind::kValue);
    thread->region.source.site = site;
    thread->region.source.value = ref.ticket;
    thread->region.source.kinds = evidence.output_kinds;
    thread->region.source.input = 255;
    thread->region.value = ref;
  }
  Remember(
      observer, outputs, count, ref, site, written, thread->optimizer_depth != 0,
      frame.op->in_place || finding_class == FindingClass::kExternal || outputs[0].tensor.gpu >= 0);
  // A constant that was asked for (a class switched off by a bias of -Inf) ruins nothing by itself:
  // what reads it is watched on. What an update makes of it is another matter.
  const bool mask = evidence.output_kinds == wire::kHasNegInf;
  const bool deliberate = thread->optimizer_depth == 0 &&
                          observer.recent_values.WasGiven(ref, /*external_counts=*/mask);
  if (written.target == Target::kParameter && !deliberate) {
    observer.poison.Mark(written.named, outputs[0].tensor);
  }
  if (SequenceEntry* sequence = SequenceOf(thread, frame); sequence != nullptr) {
    sequence->value = ref;
    sequence->site = site;
  }
}

void OnCleanOutputs(Observer& observer, ThreadState* thread, Frame& frame) noexcept {
  if (observer.Poisoned()) return;
  // What was written over cleanly is no longer bad.
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!(input.updated || input.overwritten)) continue;
    ForgetBad(observer, input);
  }
  if (!frame.input_bad || frame.op->schema == nullptr || frame.op->skip || frame.child_bad ||
      (frame.op->families & kReadsMetadata) != 0) {
    return;
  }
  Emitter* emitter = observer.emitter();
  if (emitter == nullptr) return;
  if ((frame.op->families & kCompares) != 0) NoteComparedLoss(observer, thread, frame, *emitter);
  Sources sources;
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!input.known) continue;
    Source source = SourceFrom(input.bad);
    source.kinds = input.kinds;
    source.input = static_cast<uint8_t>(std::min<int>(input.argument, 255));
    sources.Add(source, input.bad.value.index);
  }
  const Place place = PlaceOf(thread);
  bool is_new = false;
  const uint32_t site =
      InternSite(observer, thread, *emitter,
                 MakeKey(observer, thread, *emitter, place, observer.NameOf(*frame.op),
                         FindingClass::kKilled, sources.kinds, 0, place.flags, 0),
                 &is_new);
  wire::KillRecord record{};
  record.header = MakeHeader(observer, thread, *emitter, wire::RecordKind::kKill, sizeof record);
  const uint32_t seen = emitter->CountSite(site, record.header.ticket, record.header.clocks);
  if (seen > kFullRecordsPerSite) return;
  record.site = site;
  record.n_sources = static_cast<uint8_t>(sources.count);
  std::copy(sources.list, sources.list + sources.count, record.sources);
  emitter->Emit(record.header);
}

// A view of a bad value stands for it where autograd nodes are concerned, and what is written over
// with good values is good again.
void OnSkippedOutput(Observer& observer, ThreadState* thread, const Frame& frame,
                     const PlainTensor& tensor) noexcept {
  if (observer.bad_values.size() == 0) return;
  if ((frame.op->families & kCreates) != 0) {
    return observer.bad_values.Clear(tensor.storage, tensor.byte_begin, tensor.byte_end,
                                     tensor.IsDense());
  }
  BadEntry entry;
  SequenceEntry* sequence = frame.op->is_view ? SequenceOf(thread, frame) : nullptr;
  if (sequence == nullptr ||
      !observer.bad_values.Find(tensor.storage, tensor.byte_begin, tensor.byte_end, &entry)) {
    return;
  }
  sequence->value = entry.value;
  sequence->site = entry.site;
}

void OnEscape(Observer& observer, ThreadState* thread, Frame& frame, double number) noexcept {
  if (observer.Poisoned()) return;
  Emitter* emitter = observer.EnsureEmitter();
  if (emitter == nullptr) return;
  Source source{};
  ValueRef value;
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (!input.known) continue;
    source = SourceFrom(input.bad);
    source.kinds = input.kinds;
    value = input.bad.value;
  }
  EmitEscape(observer, thread, frame, *emitter, source, value, number);
}

UnseenWriter UnseenAt(const char* op, const Layer* layer, Phase phase, uint8_t kinds,
                      ValueRef from) noexcept {
  UnseenWriter writer{};
  writer.op = op;
  writer.node = "";
  writer.layer = layer;
  writer.phase = phase;
  writer.finding_class = FindingClass::kPropagate;
  Source source = UnknownSource(kinds);
  if (from.ticket != 0) {
    source.kind = static_cast<uint8_t>(SourceKind::kValue);
    source.value = from.ticket;
  }
  writer.Add(source, from);
  return writer;
}

ValueRef OnUnseenWrite(Observer& observer, ThreadState* thread, const PlainTensor& tensor,
                       const UnseenWriter& writer) noexcept {
  ++thread->counters.values_bad;
  Emitter* emitter = observer.Poisoned() ? nullptr : observer.EnsureEmitter();
  if (emitter == nullptr) return {};
  Place place = PlaceOf(thread);
  place.layer = writer.layer;
  place.phase = writer.phase;
  if (writer.node != nullptr) place.node = writer.node;
  const uint8_t kinds = NonFiniteKinds(tensor.view);
  Written written;
  written.named = writer.named;
  written.target = writer.target;
  if (writer.named != nullptr) written.name = InternText(*emitter, writer.named->name);
  if (writer.target == Target::kParameter) written.flags |= ValueRecord::kWroteParameter;
  const uint32_t flags = writer.flags | place.flags | written.flags;
  bool is_new = false;
  const SiteKey key = MakeKey(observer, thread, *emitter, place, InternText(*emitter, writer.op),
                              writer.finding_class, kinds, 1, flags, written.name);
  const uint32_t site = InternSite(observer, thread, *emitter, key, &is_new);
  Draft draft;
  ValueRecord& value = draft.value;
  value.header = MakeHeader(observer, thread, *emitter, wire::RecordKind::kValue, 0);
  const uint32_t seen = emitter->CountSite(site, value.header.ticket, value.header.clocks);
  value.site = site;
  value.flags = flags | GpuFlag(tensor);
  value.param = written.name;
  value.target = static_cast<uint8_t>(written.target);
  value.pass = place.pass;
  Sources sources;
  for (int i = 0; i < writer.source_count; ++i) {
    sources.Add(writer.sources[i], writer.values[i].index);
  }
  value.n_sources = static_cast<uint8_t>(sources.count);
  std::copy(sources.list, sources.list + sources.count, value.sources);
  const bool write = seen <= kFullRecordsPerSite;
  if (write) {
    value.n_outputs = 1;
    FillStats(tensor.view, 0, &draft.tensors[0]);
    draft.tensors[0].value = value.header.ticket;
  }
  const ValueRef ref = File(observer, *emitter, draft, sources, key, write, is_new);
  const BadOutput output{tensor, 0, false};
  const bool in_update = writer.phase == Phase::kOptimizer;
  if (in_update) NoteReachOf(observer, *emitter, value, ref);
  Remember(observer, &output, 1, ref, site, written, in_update, in_update);
  if (written.target == Target::kParameter) observer.poison.Mark(written.named, tensor);
  return ref;
}

void WriteAncestors(Observer& observer, ValueRef value) noexcept {
  Emitter* emitter = observer.emitter();
  if (emitter == nullptr) return;
  ValueRef open[kAncestorsMax];
  int count = 0;
  open[count++] = value;
  // A value that has been traced before ends its branch, so that each is visited once.
  for (int i = 0; i < count; ++i) {
    RecentValues::Kept kept;
    if (!observer.recent_values.Trace(open[i], &kept) || kept.traced) continue;
    for (int s = 0; s < kept.record.n_sources && count < kAncestorsMax; ++s) {
      if (kept.record.sources[s].kind != static_cast<uint8_t>(SourceKind::kValue)) continue;
      open[count++] = ValueRef{kept.record.sources[s].value, kept.source_index[s]};
    }
    if (kept.written) continue;
    kept.record.flags |= ValueRecord::kLate;
    kept.record.n_outputs = kept.record.n_inputs = 0;
    kept.record.header.bytes = sizeof(ValueRecord);
    emitter->Emit(kept.record.header);
  }
}

}  // namespace nanwatch
