// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/record_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/ingest/checkpoint_decoder.h"
#include "daemon/ingest/wire_bytes.h"
#include "proto/wire/cell_record.h"
#include "proto/wire/kernel_counts.h"
#include "proto/wire/loader_samples.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

constexpr uint8_t kPhaseMax = static_cast<uint8_t>(wire::Phase::kOptimizer);
constexpr uint8_t kClassMax = static_cast<uint8_t>(wire::FindingClass::kReceived);
constexpr uint8_t kTargetMax = static_cast<uint8_t>(wire::Target::kUninitialised);
constexpr uint8_t kSourceKindMax = static_cast<uint8_t>(wire::SourceKind::kUnknown);

uint32_t InRange(uint32_t value, uint32_t max) { return value <= max ? value : 0; }

void Fill(RecordSource& out, const wire::Source& source, const NameCache& names) {
  out.set_kind(InRange(source.kind, kSourceKindMax));
  out.set_target(InRange(source.target, kTargetMax));
  out.set_kinds(source.kinds & 7);
  out.set_input(source.input);
  out.set_site(source.site);
  out.set_name(names.Text(source.name));
  out.set_value(source.value);
  out.set_flags(source.flags & wire::Source::kWriterUnseen);
}

void Fill(RecordTensor& out, const wire::TensorStats& stats, const NameCache& names) {
  out.set_element_type(InRange(stats.element_type, wire::kElementTypeCount - 1));
  out.set_ndim(stats.ndim);
  out.set_index(stats.index);
  out.set_target(InRange(stats.target, kTargetMax));
  out.set_name(names.Text(stats.name));
  out.set_numel(stats.numel);
  out.set_nan(stats.nan);
  out.set_pos_inf(stats.pos_inf);
  out.set_neg_inf(stats.neg_inf);
  out.set_finite_min(stats.finite_min);
  out.set_finite_max(stats.finite_max);
  out.set_finite_mean(stats.finite_mean);
  out.set_first_bad(stats.first_bad);
  for (int i = 0; i < std::min<int>(stats.ndim, wire::kShapeDimsMax); ++i)
    out.add_shape(stats.shape[i]);
  out.set_value(stats.value);
}

// The first `count` of a record's sources; false when there cannot be as many.
template <typename Repeated>
bool FillSources(Repeated& out, const wire::Source (&sources)[wire::kSourcesMax], uint8_t count,
                 const NameCache& names) {
  if (count > wire::kSourcesMax) return false;
  for (int i = 0; i < count; ++i) Fill(*out.Add(), sources[i], names);
  return true;
}

// Where bad leaves or parameters are named beside their sources, the name of the leaf is the one
// that counts.
template <typename Repeated>
void FillNames(Repeated& out, const uint32_t (&ids)[wire::kSourcesMax], const NameCache& names) {
  for (int i = 0; i < out.size(); ++i) {
    if (ids[i] != 0) out.Mutable(i)->set_name(names.Text(ids[i]));
  }
}

// False: what the bytes say cannot be. Text is foreign: an index that is no literal is shown as it
// is.
bool DecodeSamples(LoaderSamples& out, const unsigned char* bytes_behind_tensors, size_t bytes) {
  const auto from = Take<wire::LoaderSamples>(bytes_behind_tensors, bytes);
  if (!from || from->count > wire::kLoaderSamplesMax || from->text_bytes > sizeof from->text) {
    return false;
  }
  std::string_view text(from->text, from->text_bytes);
  for (int i = 0; i < from->count; ++i) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    out.add_indices(wire::CleanText(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  out.set_of_batch(from->of_batch);
  out.set_whole_batch((from->flags & wire::LoaderSamples::kWholeBatch) != 0);
  return true;
}

bool DecodeValue(ValueFact& out, const unsigned char* record, size_t bytes,
                 const NameCache& names) {
  const auto from = Take<wire::ValueRecord>(record, bytes);
  if (!from || from->n_outputs > wire::kOutputsMax || from->n_inputs > wire::kInputsMax)
    return false;
  const size_t tensors = size_t{from->n_outputs} + from->n_inputs;
  if (bytes < sizeof(wire::ValueRecord) + tensors * sizeof(wire::TensorStats)) return false;
  out.set_site(from->site);
  out.set_flags(from->flags);
  out.set_param(names.Text(from->param));
  out.set_target(InRange(from->target, kTargetMax));
  out.set_pass(from->pass);
  if (!FillSources(*out.mutable_sources(), from->sources, from->n_sources, names)) return false;
  for (size_t i = 0; i < tensors; ++i) {
    wire::TensorStats stats;
    std::memcpy(&stats, record + sizeof(wire::ValueRecord) + i * sizeof stats, sizeof stats);
    Fill(i < from->n_outputs ? *out.add_outputs() : *out.add_inputs(), stats, names);
  }
  if ((from->flags & wire::ValueRecord::kHasSamples) == 0) return true;
  const size_t behind = sizeof(wire::ValueRecord) + tensors * sizeof(wire::TensorStats);
  return DecodeSamples(*out.mutable_samples(), record + behind, bytes - behind);
}

bool DecodeKill(KillFact& out, const unsigned char* record, size_t bytes, const NameCache& names) {
  const auto from = Take<wire::KillRecord>(record, bytes);
  if (!from) return false;
  out.set_site(from->site);
  return FillSources(*out.mutable_sources(), from->sources, from->n_sources, names);
}

bool DecodePass(PassFact& out, const unsigned char* record, size_t bytes, const NameCache& names) {
  const auto from = Take<wire::PassRecord>(record, bytes);
  if (!from) return false;
  out.set_pass(from->pass);
  out.set_root_value(from->root_value);
  out.set_root_op(names.Text(from->root_op));
  out.set_root_layer(names.Text(from->root_layer));
  out.set_root_site(from->root_site);
  out.set_flags(from->flags);
  out.set_leaves(from->leaves);
  out.set_leaves_bad(from->leaves_bad);
  if (!FillSources(*out.mutable_bad(), from->bad, from->n_bad, names)) return false;
  FillNames(*out.mutable_bad(), from->bad_names, names);
  return true;
}

bool DecodeUpdate(UpdateFact& out, const unsigned char* record, size_t bytes,
                  const NameCache& names) {
  const auto from = Take<wire::UpdateRecord>(record, bytes);
  if (!from) return false;
  out.set_optimizer(from->optimizer);
  out.set_optimizer_class(names.Text(from->optimizer_class));
  out.set_flags(from->flags);
  out.set_parameters_bad(from->parameters_bad);
  out.set_states_bad(from->states_bad);
  if (!FillSources(*out.mutable_bad(), from->bad, from->n_bad, names)) return false;
  FillNames(*out.mutable_bad(), from->bad_names, names);
  return true;
}

bool DecodeScaler(ScalerFact& out, const unsigned char* record, size_t bytes) {
  const auto from = Take<wire::ScalerRecord>(record, bytes);
  if (!from) return false;
  out.set_scale_before(from->scale_before);
  out.set_scale_after(from->scale_after);
  out.set_flags(from->flags);
  out.set_skips_in_a_row(from->skips_in_a_row);
  return true;
}

bool DecodeEscape(EscapeFact& out, const unsigned char* record, size_t bytes,
                  const NameCache& names) {
  const auto from = Take<wire::EscapeRecord>(record, bytes);
  if (!from) return false;
  out.set_site(from->site);
  out.set_flags(from->flags);
  out.set_value(from->value);
  Fill(*out.mutable_source(), from->source, names);
  return true;
}

bool DecodeCollective(CollectiveFact& out, const unsigned char* record, size_t bytes,
                      const NameCache& names) {
  const auto from = Take<wire::CollectiveRecord>(record, bytes);
  if (!from) return false;
  out.set_op(names.Text(from->op));
  out.set_group(names.Text(from->group));
  out.set_sequence(from->sequence);
  out.set_flags(from->flags);
  Fill(*out.mutable_input(), from->input, names);
  out.set_output_value(from->output_value);
  return true;
}

bool DecodeEnd(EndFact& out, const unsigned char* record, size_t bytes) {
  const auto from = Take<wire::EndRecord>(record, bytes);
  if (!from) return false;
  out.set_how(InRange(from->how, static_cast<uint32_t>(wire::EndRecord::How::kFork)));
  const auto by_bad_value = static_cast<uint32_t>(wire::EndRecord::Failed::kByBadValue);
  const uint32_t failed = InRange(from->failed, by_bad_value);
  out.set_failed(failed != 0);
  out.set_failed_by_bad_value(failed == by_bad_value);
  return true;
}

bool IsOfCell(const unsigned char* record, size_t bytes) {
  const auto from = Take<wire::LevelRecord>(record, bytes);
  return from && from->why == wire::kLevelWhyCell;
}

bool DecodeCell(CellFact& out, const unsigned char* record, size_t bytes) {
  const auto from = Take<wire::LevelRecord>(record, bytes);
  if (!from) return false;
  out.set_number(from->full_every);
  out.set_began_ns(from->control);
  return true;
}

bool DecodeLevel(LevelFact& out, const unsigned char* record, size_t bytes) {
  const auto from = Take<wire::LevelRecord>(record, bytes);
  if (!from) return false;
  constexpr auto kLevelMax = static_cast<uint32_t>(wire::Level::kAuto);
  out.set_from(InRange(from->from, kLevelMax));
  out.set_to(InRange(from->to, kLevelMax));
  out.set_why(InRange(from->why, static_cast<uint32_t>(wire::LevelRecord::Why::kOnGpu)));
  out.set_full_every(from->full_every);
  if (from->overhead_percent >= 0) out.set_overhead_percent(from->overhead_percent);
  if (from->budget_percent >= 0) out.set_budget_percent(from->budget_percent);
  out.set_control(from->control);
  return true;
}

bool DecodeKernels(KernelsFact& out, const unsigned char* record, size_t bytes,
                   const NameCache& names) {
  const auto from = Take<wire::KernelsRecord>(record, bytes);
  if (!from || from->n_kernels > wire::kKernelsMax) return false;
  out.set_value(from->value);
  out.set_lost(from->lost);
  out.set_left_out(from->left_out);
  for (int i = 0; i < from->n_kernels; ++i) {
    KernelsFact::Kernel& kernel = *out.add_kernels();
    kernel.set_name(names.Text(from->kernels[i].name));
    kernel.set_count(from->kernels[i].count);
    kernel.set_nanoseconds(from->kernels[i].nanoseconds);
  }
  if (const auto whole = Take<wire::CountedKernelsRecord>(record, bytes)) {
    KernelRecords& records = *out.mutable_records();
    records.set_buffers(whole->counts.buffers);
    records.set_kernels(whole->counts.kernels);
    records.set_kernels_in_graphs(whole->counts.kernels_in_graphs);
    records.set_launches(whole->counts.launches);
    records.set_matched(whole->counts.matched);
    records.set_yielded(whole->counts.yielded != 0);
  }
  return true;
}

bool DecodeFact(Record& out, uint16_t kind, const unsigned char* record, size_t bytes,
                const NameCache& names) {
  switch (static_cast<wire::RecordKind>(kind)) {
    case wire::RecordKind::kValue:
      return DecodeValue(*out.mutable_value(), record, bytes, names);
    case wire::RecordKind::kKill:
      return DecodeKill(*out.mutable_kill(), record, bytes, names);
    case wire::RecordKind::kPass:
      return DecodePass(*out.mutable_pass(), record, bytes, names);
    case wire::RecordKind::kUpdate:
      return DecodeUpdate(*out.mutable_update(), record, bytes, names);
    case wire::RecordKind::kScaler:
      return DecodeScaler(*out.mutable_scaler(), record, bytes);
    case wire::RecordKind::kEscape:
      return DecodeEscape(*out.mutable_escape(), record, bytes, names);
    case wire::RecordKind::kCollective:
      return DecodeCollective(*out.mutable_collective(), record, bytes, names);
    case wire::RecordKind::kEnd:
      return DecodeEnd(*out.mutable_end(), record, bytes);
    case wire::RecordKind::kLevel:
      if (IsOfCell(record, bytes)) return DecodeCell(*out.mutable_cell(), record, bytes);
      return DecodeLevel(*out.mutable_level(), record, bytes);
    case wire::RecordKind::kKernels:
      return DecodeKernels(*out.mutable_kernels(), record, bytes, names);
    case wire::RecordKind::kCheckpoint:
      return DecodeCheckpoint(*out.mutable_checkpoint(), record, bytes);
    case wire::RecordKind::kPadding:
      break;
  }
  return false;
}

}  // namespace

Clocks DecodeClocks(const wire::Clocks& clocks) {
  Clocks out;
  for (uint32_t steps : clocks.optimizer_steps) out.add_optimizer_steps(steps);
  out.set_optimizer_ranges(clocks.optimizer_ranges);
  out.set_scaler_skips(clocks.scaler_skips);
  out.set_passes(clocks.passes);
  out.set_micro_passes(clocks.micro_passes);
  out.set_plain_updates(clocks.plain_updates);
  out.set_optimizer_count(clocks.optimizer_count);
  return out;
}

std::optional<Record> DecodeRecord(const unsigned char* record, size_t bytes,
                                   const NameCache& names) {
  const auto header = Take<wire::RecordHeader>(record, bytes);
  if (!header || header->bytes > bytes || header->bytes < sizeof(wire::RecordHeader)) return {};
  Record out;
  out.set_ticket(header->ticket);
  out.set_thread(header->thread);
  out.set_time_ns(header->time_ns);
  *out.mutable_clocks() = DecodeClocks(header->clocks);
  if (header->threads_train != 0) out.mutable_clocks()->set_threads_train(true);
  if (header->root_is_older != 0 && header->with_gradients != 0) {
    out.mutable_clocks()->set_root_may_be_older(true);
  } else if (header->root_is_older != 0) {
    out.mutable_clocks()->set_root_is_older(true);
  }
  if (!DecodeFact(out, header->kind, record, header->bytes, names)) return {};
  return out;
}

Record DecodeTrail(const wire::TrailEntry& trail, const NameCache& names) {
  Record out;
  out.set_ticket(trail.ticket);
  out.set_time_ns(trail.time_ns);
  TrailFact& fact = *out.mutable_trail();
  fact.set_value(trail.value);
  std::unordered_map<uint32_t, uint32_t> places;
  const auto place_of = [&](uint32_t id) {
    const auto [place, is_new] = places.try_emplace(id, static_cast<uint32_t>(places.size()));
    if (is_new) fact.add_names(names.Text(id));
    return place->second;
  };
  for (uint32_t i = 0; i < std::min<uint32_t>(trail.count, wire::kTrailOpsMax); ++i) {
    const wire::TrailOp& from = trail.ops[i];
    TrailFact::Op& op = *fact.add_ops();
    op.set_op(place_of(from.op));
    op.set_layer(place_of(from.layer));
    op.set_iteration(from.iteration);
    op.set_phase(InRange(from.phase, kPhaseMax));
    op.set_element_type(from.element_type < wire::kElementTypeCount ? from.element_type : 0);
    const bool makes_sense = std::isfinite(from.largest) && from.largest >= 0;
    if (!makes_sense || from.known > wire::TrailOp::kAtLeast) continue;
    op.set_known(from.known);
    op.set_largest(from.largest);
  }
  return out;
}

// "model.py:88 in forward < train.py:12 in step".
void TakeSource(std::string_view text, Site& site) {
  constexpr std::string_view kSeparator = wire::kSourceSeparator;
  size_t end = std::min(text.find(kSeparator), text.size());
  site.set_source(std::string(text.substr(0, end)));
  while (end < text.size()) {
    text.remove_prefix(end + kSeparator.size());
    end = std::min(text.find(kSeparator), text.size());
    site.add_callers(std::string(text.substr(0, end)));
  }
}

Site DecodeSite(uint32_t id, const wire::Site& site, const NameCache& names) {
  Site out;
  out.set_id(id);
  out.set_op(names.Text(site.key.op));
  out.set_layer(names.Text(site.key.layer));
  out.set_layer_type(names.Text(site.key.layer_type));
  out.set_root(names.Text(site.key.root));
  out.set_node(names.Text(site.key.node));
  TakeSource(names.Text(site.source), out);
  out.set_phase(InRange(static_cast<uint8_t>(site.key.phase), kPhaseMax));
  out.set_finding_class(InRange(static_cast<uint8_t>(site.key.finding_class), kClassMax));
  out.set_kinds(site.key.kinds & 7);
  out.set_outputs(site.key.outputs);
  out.set_flags(site.key.flags);
  out.set_param(names.Text(site.key.param));
  out.set_count(site.count);
  out.set_first_ticket(site.first_ticket);
  out.set_last_ticket(site.last_ticket);
  *out.mutable_first_clocks() = DecodeClocks(site.first_clocks);
  *out.mutable_last_clocks() = DecodeClocks(site.last_clocks);
  return out;
}

}  // namespace nanwatch
