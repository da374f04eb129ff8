#include "daemon/ingest/segment_reader.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "daemon/ingest/name_cache.h"
#include "daemon/ingest/record_decoder.h"
#include "daemon/ingest/segment_file.h"
#include "daemon/ingest/writer_liveness.h"
#include "proto/wire/first_findings.h"
#include "proto/wire/live_block.h"
#include "proto/wire/ring.h"
#include "proto/wire/site_table.h"
#include "proto/wire/stats_ring.h"
#include "proto/wire/step_ring.h"

namespace nanwatch {
namespace {

using wire::SectionType;

struct SiteCount {
  uint64_t count = 0;
  uint64_t last_ticket = 0;
  bool operator==(const SiteCount&) const = default;
};

// What a batch leaves behind once it is acknowledged.
struct Progress {
  SegmentCursor cursor;
  std::bitset<wire::kFirstFindingsMax> firsts;
  std::bitset<wire::kReachKinds> reaches;
  uint64_t trails = 0;
};

// Everything whose change means that there is something to read.
struct Published {
  uint64_t reserved = 0;
  uint64_t dropped = 0;
  uint64_t heartbeat = 0;
  uint64_t ops_seen = 0;
  uint64_t values_bad = 0;
  uint64_t values_dropped = 0;
  uint64_t steps = 0;
  uint64_t trails = 0;
  uint64_t stats = 0;
  uint64_t sites = 0;
  uint64_t state = 0;
  uint64_t level = 0;
  bool operator==(const Published&) const = default;
};

}  // namespace

struct SegmentReader::Impl {
  Impl(SegmentFile opened, Access wanted)
      : file(std::move(opened)),
        access(wanted),
        names(file.section(SectionType::kNames).data, file.section(SectionType::kNames).bytes),
        liveness(HostIdentity::Current()) {
    run = DecodeRun(file.header());
    run_id = RunId(run);
    ReadIgnore();
    if (const auto ring = OpenRing({})) done.cursor.ring = ring->Released();
  }

  [[nodiscard]] const wire::LiveBlock& live() const {
    return *reinterpret_cast<const wire::LiveBlock*>(file.section(SectionType::kLive).data);
  }
  [[nodiscard]] std::optional<wire::RingReader> OpenRing(std::optional<uint64_t> cursor) const {
    const SegmentFile::Section& section = file.section(SectionType::kFindings);
    return wire::RingReader::Open(section.data, section.bytes, cursor);
  }

  [[nodiscard]] Published Look() const;
  void ReadRing(RunBatch& batch, bool to_end, uint64_t now_ns);
  void ReadFirstFindings(RunBatch& batch);
  void ReadReach(RunBatch& batch);
  void ReadSites(RunBatch& batch);
  void ReadTelemetry(StepSummary& step) const;
  [[nodiscard]] StepSummary DecodeStep(uint64_t index, const wire::StepEntry& entry) const;
  void ReadSteps(RunBatch& batch);
  void ReadTrails(RunBatch& batch);
  void ReadStats(RunBatch& batch);
  [[nodiscard]] std::optional<StatsSnapshot> NewestStats() const;
  [[nodiscard]] uint64_t Written(SectionType ring) const;
  void ReadLive(RunState& state) const;
  void ReadIgnore();
  void ReleaseUpTo(uint64_t cursor) const;
  void AddRecord(RunBatch& batch, const unsigned char* bytes, size_t size);

  SegmentFile file;
  Access access;
  NameCache names;
  WriterLiveness liveness;
  Run run;
  std::string run_id;

  Progress done;     // acknowledged
  Progress pending;  // after the latest Read
  std::unordered_map<uint32_t, SiteCount> sites_done;
  std::vector<std::pair<uint32_t, SiteCount>> sites_pending;
  Published published_done;
  Published published_pending;
  bool read_once = false;
  std::unordered_set<uint64_t> tickets;  // of the batch under construction

  uint64_t hole_slot = 0;      // where reading waits for a record to be completed,
  uint64_t hole_since_ns = 0;  // and since when; 0: nowhere
};

// Entries that a step ring was given so far; 0 where there is none.
uint64_t SegmentReader::Impl::Written(SectionType ring) const {
  const SegmentFile::Section& section = file.section(ring);
  if (section.bytes < sizeof(wire::StepRingHeader)) return 0;
  return reinterpret_cast<const wire::StepRingHeader*>(section.data)
      ->written.load(std::memory_order_relaxed);
}

Published SegmentReader::Impl::Look() const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Published look;
  if (const auto ring = file.section(SectionType::kFindings);
      ring.bytes >= sizeof(wire::RingHeader)) {
    const auto* header = reinterpret_cast<const wire::RingHeader*>(ring.data);
    look.reserved = header->reserved_slots.load(kRelaxed);
    look.dropped = header->records_dropped.load(kRelaxed);
  }
  look.steps = Written(SectionType::kSteps);
  look.stats = Written(SectionType::kStats);
  look.trails = Written(SectionType::kTrail);
  if (const auto sites = file.section(SectionType::kSites);
      sites.bytes >= sizeof(wire::SiteTableHeader)) {
    look.sites = reinterpret_cast<const wire::SiteTableHeader*>(sites.data)->used.load(kRelaxed);
  }
  look.heartbeat = live().heartbeat_ns.load(kRelaxed);
  look.ops_seen = live().ops_seen.load(kRelaxed);
  look.values_bad = live().values_bad.load(kRelaxed);
  look.values_dropped = live().values_dropped.load(kRelaxed);
  look.state = live().state.load(kRelaxed);
  look.level = live().level.load(kRelaxed);
  return look;
}

void SegmentReader::Impl::AddRecord(RunBatch& batch, const unsigned char* bytes, size_t size) {
  std::optional<Record> record = DecodeRecord(bytes, size, names);
  if (!record) {
    ++pending.cursor.malformed;
  } else if (tickets.insert(record->ticket()).second) {
    batch.records.push_back(*std::move(record));
  }
}

void SegmentReader::Impl::ReadRing(RunBatch& batch, bool to_end, uint64_t now_ns) {
  std::optional<wire::RingReader> ring = OpenRing(done.cursor.ring);
  if (!ring) return;
  // A thread that was stopped in the middle of a record, while others went on, is waited for, not
  // for ever.
  const bool waited = hole_since_ns != 0 && now_ns - hole_since_ns >= kHoleWaitNs;
  wire::Holes holes = to_end ? wire::Holes::kSkip : wire::Holes::kWait;
  wire::RecordCopy copy;
  for (uint64_t left = ring->capacity(); left > 0; --left) {
    const uint64_t at = ring->cursor();
    wire::RingRead read = ring->Read(copy, holes);
    if (read == wire::RingRead::kPending) {
      if (hole_since_ns == 0 || hole_slot != at) {
        hole_slot = at;
        hole_since_ns = now_ns;
        break;
      }
      if (!waited) break;
      read = ring->Read(copy, wire::Holes::kSkip);
      hole_since_ns = 0;
    }
    if (read == wire::RingRead::kEmpty) break;
    if (read == wire::RingRead::kRecord) AddRecord(batch, copy.bytes, copy.header().bytes);
  }
  pending.cursor.ring = ring->cursor();
  pending.cursor.holes += ring->hole_slots();
  pending.cursor.malformed += ring->malformed();
  if (ring->cursor() != hole_slot) hole_since_ns = 0;
}

// Records among the first findings that the ring may have had no room for. Places are taken in
// order: the first that is free ends the search; one being written is looked at next time.
void SegmentReader::Impl::ReadFirstFindings(RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kFirst);
  const size_t count =
      std::min<size_t>(wire::kFirstFindingsMax, section.bytes / sizeof(wire::FirstFinding));
  const auto* places = reinterpret_cast<const wire::FirstFinding*>(section.data);
  for (size_t i = 0; i < count; ++i) {
    if (done.firsts[i]) continue;
    const uint32_t state = places[i].state.load(std::memory_order_acquire);
    if (state == 0) break;
    if (state == 1) continue;
    pending.firsts[i] = true;
    wire::RecordCopy copy;
    if (wire::ReadFirstFinding(places[i], copy)) {
      AddRecord(batch, copy.bytes, copy.header().bytes);
    } else {
      ++pending.cursor.malformed;
    }
  }
}

void SegmentReader::Impl::ReadReach(RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kReach);
  const size_t count =
      std::min<size_t>(wire::kReachKinds, section.bytes / sizeof(wire::FirstReach));
  const auto* places = reinterpret_cast<const wire::FirstReach*>(section.data);
  for (size_t i = 0; i < count; ++i) {
    if (done.reaches[i]) continue;
    const std::optional<wire::ReachFacts> reached = wire::ReadFirstReach(places[i]);
    if (!reached) continue;
    pending.reaches[i] = true;
    FirstReachFact& fact = batch.reach.emplace_back();
    fact.set_reach(static_cast<uint32_t>(i));
    fact.set_name(names.Text(reached->name));
    fact.set_value(reached->value);
    fact.set_ticket(reached->ticket);
    *fact.mutable_clocks() = DecodeClocks(reached->clocks);
  }
}

void SegmentReader::Impl::ReadSites(RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kSites);
  const std::optional<wire::SiteReader> reader =
      wire::SiteReader::Open(section.data, section.bytes);
  if (!reader) return;
  const uint32_t count = std::min(reader->Count(), kSitesMax);
  for (uint32_t id = 1; id <= count; ++id) {
    const std::optional<wire::Site> site = reader->Get(id);
    if (!site) continue;
    const SiteCount now{site->count, site->last_ticket};
    const auto known = sites_done.find(id);
    if (known != sites_done.end() && known->second == now) continue;
    if (known == sites_done.end()) ++batch.sites_new;
    sites_pending.emplace_back(id, now);
    batch.sites.push_back(DecodeSite(id, *site, names));
  }
}

// Those that still stand; what a daemon before this one has read is known by its ticket.
void SegmentReader::Impl::ReadTrails(RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kTrail);
  std::optional<wire::TrailReader> reader =
      wire::TrailReader::Open(section.data, section.bytes, done.trails);
  if (!reader) return;
  const auto entry = std::make_unique<wire::TrailEntry>();
  for (int i = 0; i < wire::kTrails && reader->Read(*entry); ++i) {
    if (!tickets.insert(entry->ticket).second) continue;
    batch.records.push_back(DecodeTrail(*entry, names));
  }
  pending.trails = reader->cursor();
}

// What belongs to the step with this index, if it still stands.
void SegmentReader::Impl::ReadTelemetry(StepSummary& step) const {
  using wire::TelemetryEntry;
  const SegmentFile::Section& section = file.section(SectionType::kTelemetry);
  const std::optional<wire::TelemetryReader> reader =
      wire::TelemetryReader::Open(section.data, section.bytes);
  TelemetryEntry entry;
  if (!reader || !reader->ReadAt(step.index(), entry)) return;
  const auto known = [&entry](TelemetryEntry::Known bit) { return (entry.known & bit) != 0; };
  if (known(TelemetryEntry::kLoss)) step.set_loss(entry.loss);
  if (known(TelemetryEntry::kStepTime)) step.set_seconds(static_cast<double>(entry.step_ns) * 1e-9);
  if (known(TelemetryEntry::kGradientNorm)) step.set_gradient_norm(entry.gradient_norm);
  if (known(TelemetryEntry::kScale)) step.set_scale(entry.scale);
  if (known(TelemetryEntry::kGradients)) {
    step.set_gradients(entry.gradients);
    step.set_gradients_missing(entry.gradients_missing);
    step.set_gradients_zero(entry.gradients_zero);
    step.set_gradients_bad(entry.gradients_bad);
  }
  if (known(TelemetryEntry::kNearLimit) && std::isfinite(entry.near_largest)) {
    step.set_near_largest(entry.near_largest);
    step.set_near_op(names.Text(entry.near_op));
    step.set_near_layer(names.Text(entry.near_layer));
    step.set_near_type(entry.near_type < wire::kElementTypeCount ? entry.near_type : 0);
  }
  step.set_level(entry.level <= static_cast<uint32_t>(wire::Level::kAuto) ? entry.level : 0);
}

StepSummary SegmentReader::Impl::DecodeStep(uint64_t index, const wire::StepEntry& entry) const {
  StepSummary step;
  step.set_index(index);
  ReadTelemetry(step);
  step.set_time_ns(entry.time_ns);
  *step.mutable_clocks() = DecodeClocks(entry.clocks);
  if ((entry.flags & 1) != 0) step.set_loss(entry.loss);
  step.set_ops_seen(entry.ops_seen);
  step.set_tensors_checked(entry.tensors_checked);
  step.set_bytes_checked(entry.bytes_checked);
  step.set_values_bad(entry.values_bad);
  step.set_flags(entry.flags);
  step.set_optimizer(entry.optimizer);
  return step;
}

void SegmentReader::Impl::ReadSteps(RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kSteps);
  std::optional<wire::StepReader> reader =
      wire::StepReader::Open(section.data, section.bytes, done.cursor.steps);
  if (!reader) return;
  const uint64_t entries_max = section.bytes / sizeof(wire::StepEntry);
  wire::StepEntry entry;
  for (uint64_t i = 0; i < entries_max && reader->Read(entry); ++i) {
    batch.steps.push_back(DecodeStep(reader->cursor() - 1, entry));
  }
  pending.cursor.steps = reader->cursor();
  pending.cursor.steps_lost += reader->lost();
}

// One lap of the ring at most, as steps.
void SegmentReader::Impl::ReadStats(RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kStats);
  std::optional<wire::StatsReader> reader =
      wire::StatsReader::Open(section.data, section.bytes, done.cursor.stats);
  if (!reader) return;
  uint64_t left = section.bytes / sizeof(wire::StatsEntry);
  wire::StatsCopy copy;
  while (left > 0 && reader->Read(copy)) {
    left -= std::min<uint64_t>(left, 1 + copy.parameters.size() + copy.layers.size());
    batch.stats.push_back(DecodeStats(copy, names));
  }
  pending.cursor.stats = reader->cursor();
  pending.cursor.stats_lost += reader->lost();
}

// A snapshot takes at most a quarter of the ring: the newest begins in the last half.
std::optional<StatsSnapshot> SegmentReader::Impl::NewestStats() const {
  const SegmentFile::Section& section = file.section(SectionType::kStats);
  const uint64_t half = section.bytes / sizeof(wire::StatsEntry) / 2;
  const uint64_t written = Written(SectionType::kStats);
  std::optional<wire::StatsReader> reader =
      wire::StatsReader::Open(section.data, section.bytes, written - std::min(written, half));
  wire::StatsCopy copy;
  bool any = false;
  for (uint64_t left = half; reader && left > 0 && reader->Read(copy); --left) any = true;
  return any ? std::optional(DecodeStats(copy, names)) : std::nullopt;
}

void SegmentReader::Impl::ReadLive(RunState& state) const {
  const wire::LiveCopy copy = wire::ReadLive(live());
  state.set_heartbeat_ns(copy.heartbeat_ns);
  state.set_ops_seen(copy.facts.ops_seen);
  state.set_tensors_checked(copy.facts.tensors_checked);
  state.set_bytes_checked(copy.facts.bytes_checked);
  state.set_values_bad(copy.facts.values_bad);
  state.set_records_dropped(std::max(copy.values_dropped, Look().dropped));
  state.set_names_dropped(copy.names_dropped);
  state.set_sites_dropped(copy.sites_dropped);
  state.set_own_cycles(copy.facts.own_cycles);
  state.set_step_cycles(copy.facts.step_cycles);
  for (const uint64_t count : copy.facts.unchecked) state.add_unchecked(count);
  state.set_gpus(copy.facts.gpus);
  for (const uint64_t steps : copy.facts.steps_watched) state.add_steps_watched(steps);
  state.set_live_state(static_cast<uint32_t>(copy.facts.state));
  state.set_level(static_cast<uint32_t>(copy.facts.level));
  state.set_tickets(copy.tickets);
  *state.mutable_clocks() = DecodeClocks(copy.facts.clocks);
  if (copy.facts.loss_known) state.set_loss(copy.facts.loss);
}

// Read once: the job wrote it before the file got its name.
void SegmentReader::Impl::ReadIgnore() {
  const SegmentFile::Section& section = file.section(SectionType::kBlobs);
  if (section.bytes < sizeof(wire::IgnoreSection)) return;
  const auto copy = std::make_unique<wire::IgnoreSection>();
  std::memcpy(copy.get(), section.data, sizeof *copy);
  DecodeIgnore(*copy, run);
}

void SegmentReader::Impl::ReleaseUpTo(uint64_t cursor) const {
  const SegmentFile::Section& ring = file.section(SectionType::kFindings);
  if (access != Access::kConsume || ring.bytes < sizeof(wire::RingHeader)) return;
  wire::ReleaseSlots(*reinterpret_cast<wire::RingHeader*>(ring.data), cursor);
}

// ---- SegmentReader
// ------------------------------------------------------------------------------------

SegmentReader::SegmentReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SegmentReader::SegmentReader(SegmentReader&&) noexcept = default;
SegmentReader& SegmentReader::operator=(SegmentReader&&) noexcept = default;
SegmentReader::~SegmentReader() = default;

Result<SegmentReader> SegmentReader::Open(const std::string& path, Access access) {
  Result<SegmentFile> file = SegmentFile::Open(path, access == Access::kConsume);
  if (!file.ok()) return file.status().WithContext(path);
  return SegmentReader(std::make_unique<Impl>(*std::move(file), access));
}

const Run& SegmentReader::run() const { return impl_->run; }
const std::string& SegmentReader::run_id() const { return impl_->run_id; }
const std::string& SegmentReader::path() const { return impl_->file.path(); }
const wire::SegmentHeader& SegmentReader::header() const { return impl_->file.header(); }
bool SegmentReader::IsUnlinked() const { return impl_->file.LinkCount() == 0; }

uint64_t SegmentReader::inode() const { return impl_->file.inode(); }

void SegmentReader::Resume(const SegmentCursor& cursor) {
  const Published now = impl_->Look();
  if (cursor.ring > now.reserved || cursor.steps > now.steps || cursor.stats > now.stats) return;
  const uint64_t released = impl_->done.cursor.ring;
  impl_->done.cursor = cursor;
  impl_->done.cursor.ring = std::max(cursor.ring, released);
  impl_->ReleaseUpTo(impl_->done.cursor.ring);
}

Result<RunBatch> SegmentReader::Read(bool to_end, const Clock& clock) {
  Impl& impl = *impl_;
  if (impl.file.IsCutShort())
    return Status(ErrorKind::kCorrupt, "was cut short while it was in use");
  RunBatch batch;
  batch.run_id = impl.run_id;
  batch.run = impl.run;
  impl.pending = impl.done;
  impl.published_pending = impl.Look();  // before the rest: what comes during it is news again
  impl.tickets.clear();
  impl.sites_pending.clear();
  impl.ReadRing(batch, to_end, clock.monotonic_ns());
  impl.ReadFirstFindings(batch);
  impl.ReadReach(batch);
  impl.ReadSites(batch);
  impl.ReadSteps(batch);
  impl.ReadTrails(batch);
  impl.ReadStats(batch);
  impl.ReadLive(batch.state);
  batch.cursor = impl.pending.cursor;
  batch.state.set_holes(batch.cursor.holes);
  batch.state.set_records_malformed(batch.cursor.malformed);
  batch.state.set_steps_lost(batch.cursor.steps_lost);
  batch.state.set_stats_lost(batch.cursor.stats_lost);
  return batch;
}

Status SegmentReader::Acknowledge(const RunBatch& batch) {
  Impl& impl = *impl_;
  impl.done = impl.pending;
  for (const auto& [id, count] : impl.sites_pending) impl.sites_done[id] = count;
  impl.published_done = impl.published_pending;
  impl.read_once = true;
  impl.ReleaseUpTo(batch.cursor.ring);
  return Status();
}

bool SegmentReader::HasNews() const {
  return !impl_->read_once || impl_->hole_since_ns != 0 || impl_->Look() != impl_->published_done;
}

bool SegmentReader::HasUrgentNews() const {
  if (!impl_->read_once || impl_->hole_since_ns != 0) return true;
  const Published now = impl_->Look();
  const Published& then = impl_->published_done;
  const uint64_t steps_max =
      impl_->file.section(SectionType::kSteps).bytes / sizeof(wire::StepEntry);
  const uint64_t stats_max =
      impl_->file.section(SectionType::kStats).bytes / sizeof(wire::StatsEntry);
  return now.reserved != then.reserved || now.dropped != then.dropped || now.sites != then.sites ||
         now.trails != then.trails || now.values_bad != then.values_bad ||
         now.values_dropped != then.values_dropped || now.steps - then.steps > steps_max / 4 ||
         now.stats - then.stats > stats_max / 4;
}

RunGlance SegmentReader::Glance(uint64_t steps_max) const {
  RunGlance glance;
  impl_->ReadLive(glance.state);
  const SegmentFile::Section& section = impl_->file.section(SectionType::kSteps);
  const uint64_t written = impl_->Look().steps;
  std::optional<wire::StepReader> reader =
      wire::StepReader::Open(section.data, section.bytes, written - std::min(written, steps_max));
  wire::StepEntry entry;
  for (uint64_t i = 0; reader && i < steps_max && reader->Read(entry); ++i) {
    glance.last_steps.push_back(impl_->DecodeStep(reader->cursor() - 1, entry));
  }
  glance.last_stats = impl_->NewestStats();
  return glance;
}

namespace {

bool IsPassedOn(wire::FindingClass finding_class) {
  return finding_class == wire::FindingClass::kPropagate ||
         finding_class == wire::FindingClass::kKilled;
}

}  // namespace

std::vector<Site> SegmentReader::NewestSites(size_t count_max) const {
  const SegmentFile::Section& section = impl_->file.section(SectionType::kSites);
  const std::optional<wire::SiteReader> reader =
      wire::SiteReader::Open(section.data, section.bytes);
  if (!reader) return {};
  std::vector<std::tuple<bool, uint64_t, uint32_t>> newest;  // not passed on, ticket, id
  const uint32_t count = std::min(reader->Count(), kSitesMax);
  for (uint32_t id = 1; id <= count; ++id) {
    const std::optional<wire::Site> site = reader->Get(id);
    if (!site || site->count == 0) continue;
    newest.emplace_back(!IsPassedOn(site->key.finding_class), site->last_ticket, id);
  }
  const size_t kept = std::min(count_max, newest.size());
  std::partial_sort(newest.begin(), newest.begin() + static_cast<ptrdiff_t>(kept), newest.end(),
                    std::greater<>());
  std::vector<Site> sites;
  for (size_t i = 0; i < kept; ++i) {
    const uint32_t id = std::get<2>(newest[i]);
    const std::optional<wire::Site> site = reader->Get(id);
    if (site) sites.push_back(DecodeSite(id, *site, impl_->names));
  }
  return sites;
}

bool SegmentReader::WriterLives(const Clock& clock) {
  const uint64_t heartbeat = impl_->live().heartbeat_ns.load(std::memory_order_relaxed);
  return impl_->liveness.Lives(impl_->file.fd(), impl_->file.header(), heartbeat,
                               clock.monotonic_ns());
}

Result<RunFacts> ReadWhole(const std::string& path, const Clock& clock) {
  Result<SegmentReader> reader = SegmentReader::Open(path, SegmentReader::Access::kLook);
  if (!reader.ok()) return reader.status();
  const bool ended = !reader->WriterLives(clock);
  Result<RunBatch> batch = reader->Read(/*to_end=*/ended, clock);
  if (!batch.ok()) return batch.status();
  RunFacts facts;
  MergeInto(facts, *batch);
  facts.mutable_state()->set_ended(ended);
  return facts;
}

}  // namespace nanwatch
