// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/segment_reader.h"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "daemon/ingest/live_section.h"
#include "daemon/ingest/name_cache.h"
#include "daemon/ingest/published.h"
#include "daemon/ingest/read_limits.h"
#include "daemon/ingest/record_decoder.h"
#include "daemon/ingest/run_decoder.h"
#include "daemon/ingest/segment_file.h"
#include "daemon/ingest/site_section.h"
#include "daemon/ingest/stats_section.h"
#include "daemon/ingest/step_section.h"
#include "daemon/ingest/writer_liveness.h"
#include "proto/wire/first_findings.h"
#include "proto/wire/ring.h"
#include "proto/wire/step_ring.h"

namespace nanwatch {
namespace {

using wire::SectionType;

// A record that a thread of a living job reserved and did not complete in time. It was passed over,
// but its slots are not released: the thread may go on and store to them, so they must not be given
// to another record before its process is dead.
struct OpenHole {
  uint64_t slot;
  uint64_t slots;
};

// Of a job that leaves more, the oldest are released.
constexpr size_t kOpenHolesMax = 256;

// What a batch leaves behind once it is acknowledged.
struct Progress {
  SegmentCursor cursor;
  std::vector<OpenHole> holes;
  std::bitset<wire::kFirstFindingsMax> firsts;
  std::bitset<wire::kReachKinds> reaches;
  uint64_t trails = 0;
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

  [[nodiscard]] std::optional<wire::RingReader> OpenRing(std::optional<uint64_t> cursor) const {
    const SegmentFile::Section& section = file.section(SectionType::kFindings);
    return wire::RingReader::Open(section.data, section.bytes, cursor);
  }

  void ReadRing(RunBatch& batch, bool to_end, uint64_t now_ns, ReadBudget& budget);
  void ReadFirstFindings(RunBatch& batch);
  void ReadReach(RunBatch& batch);
  void ReadTrails(RunBatch& batch);
  void ReadIgnore();
  void ReleaseUpTo(uint64_t cursor) const;
  void ReadLateRecords(RunBatch& batch);
  bool ReadLateRecordsOf(OpenHole& hole, RunBatch& batch);
  void FindOpenHoles(uint64_t begin, const IsStored& is_stored);
  void HoldOpen(const OpenHole& hole, Progress& progress) const;
  [[nodiscard]] uint64_t Releasable() const {
    return done.holes.empty() ? done.cursor.ring
                              : std::min(done.cursor.ring, done.holes.front().slot);
  }
  // False when it is malformed or in the batch already.
  bool AddRecord(RunBatch& batch, const unsigned char* bytes, size_t size);

  SegmentFile file;
  Access access;
  NameCache names;
  WriterLiveness liveness;
  Run run;
  std::string run_id;

  Progress done;     // acknowledged
  Progress pending;  // after the latest Read
  SiteChanges sites;
  Published published_done;
  Published published_pending;
  bool read_once = false;
  bool more = false;                     // than the acknowledged read took
  std::unordered_set<uint64_t> tickets;  // of the batch under construction

  uint64_t hole_slot = 0;      // where reading waits for a record to be completed,
  uint64_t hole_since_ns = 0;  // and since when; 0: nowhere
};

bool SegmentReader::Impl::AddRecord(RunBatch& batch, const unsigned char* bytes, size_t size) {
  std::optional<Record> record = DecodeRecord(bytes, size, names);
  if (!record) ++pending.cursor.malformed;
  if (!record || !tickets.insert(record->ticket()).second) return false;
  batch.records.push_back(*std::move(record));
  return true;
}

void SegmentReader::Impl::ReadRing(RunBatch& batch, bool to_end, uint64_t now_ns,
                                   ReadBudget& budget) {
  std::optional<wire::RingReader> ring = OpenRing(done.cursor.ring);
  if (!ring) return;
  // A thread that was stopped in the middle of a record, while others went on, is waited for, not
  // for ever.
  const bool waited = hole_since_ns != 0 && now_ns - hole_since_ns >= kHoleWaitNs;
  wire::Holes holes = to_end ? wire::Holes::kSkip : wire::Holes::kWait;
  wire::RecordCopy copy;
  LapLimit lap(ring->capacity(), ring->cursor());
  while (true) {
    const uint64_t at = ring->cursor();
    batch.more = lap.IsReached(at) || budget.is_spent();
    if (batch.more) break;
    wire::RingRead read = ring->Read(copy, holes);
    if (read == wire::RingRead::kPending) {
      if (hole_since_ns == 0 || hole_slot != at) {
        hole_slot = at;
        hole_since_ns = now_ns;
        break;
      }
      if (!waited) break;
      const uint64_t passed = ring->hole_slots();
      read = ring->Read(copy, wire::Holes::kSkip);
      HoldOpen({at, ring->hole_slots() - passed}, pending);
      hole_since_ns = 0;
    }
    if (read == wire::RingRead::kEmpty) break;
    if (read == wire::RingRead::kRecord && AddRecord(batch, copy.bytes, copy.header().bytes))
      budget.Take(batch.records.back());
  }
  pending.cursor.ring = ring->cursor();
  pending.cursor.holes += ring->hole_slots();
  pending.cursor.malformed += ring->malformed();
  if (ring->cursor() != hole_slot) hole_since_ns = 0;
}

void SegmentReader::Impl::HoldOpen(const OpenHole& hole, Progress& progress) const {
  progress.holes.push_back(hole);
  if (progress.holes.size() > kOpenHolesMax) progress.holes.erase(progress.holes.begin());
}

// Of what was passed over, what has been completed meanwhile.
void SegmentReader::Impl::ReadLateRecords(RunBatch& batch) {
  std::erase_if(pending.holes, [&](OpenHole& hole) { return ReadLateRecordsOf(hole, batch); });
}

// Several threads may have been stopped one behind the other. False while slots of it are open.
bool SegmentReader::Impl::ReadLateRecordsOf(OpenHole& hole, RunBatch& batch) {
  std::optional<wire::RingReader> ring = OpenRing(hole.slot);
  if (!ring) return true;
  wire::RecordCopy copy;
  while (hole.slots > 0) {
    const wire::RingRead read = ring->Read(copy, wire::Holes::kWait);
    if (read == wire::RingRead::kPending) return false;
    if (read != wire::RingRead::kRecord) return true;
    const uint64_t slots = std::min(hole.slots, ring->cursor() - hole.slot);
    if (AddRecord(batch, copy.bytes, copy.header().bytes))
      pending.cursor.holes -= std::min(pending.cursor.holes, slots);
    hole.slot += slots;
    hole.slots -= slots;
  }
  return true;
}

// An earlier daemon has read beyond them, and not released them. One that was completed meanwhile
// looks as those that were read: it is the one that is not stored.
void SegmentReader::Impl::FindOpenHoles(uint64_t begin, const IsStored& is_stored) {
  std::optional<wire::RingReader> ring = OpenRing(begin);
  if (!ring) return;
  wire::RecordCopy copy;
  LapLimit lap(ring->capacity(), begin);
  while (ring->cursor() < done.cursor.ring && !lap.IsReached(ring->cursor())) {
    const uint64_t at = ring->cursor();
    wire::RingRead read = ring->Read(copy, wire::Holes::kWait);
    if (read == wire::RingRead::kPending) {
      const uint64_t passed = ring->hole_slots();
      read = ring->Read(copy, wire::Holes::kSkip);
      const uint64_t slots = std::min(ring->hole_slots() - passed, done.cursor.ring - at);
      HoldOpen({at, slots}, done);
      ring = OpenRing(at + slots);  // what it has read behind the hole is looked at next
      if (!ring) return;
    } else if (read == wire::RingRead::kRecord && done.cursor.holes > 0 && is_stored) {
      const std::optional<Record> record = DecodeRecord(copy.bytes, copy.header().bytes, names);
      if (record && !is_stored(record->ticket())) HoldOpen({at, ring->cursor() - at}, done);
    }
    if (read == wire::RingRead::kEmpty) break;
  }
}

// Records among the first findings that may not have fit into the ring. Slots are used in order:
// the first free one ends the search; one that is being written is read next time.
void SegmentReader::Impl::ReadFirstFindings(RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kFirst);
  const size_t count =
      std::min<size_t>(wire::kFirstFindingsMax, section.bytes / sizeof(wire::FirstFinding));
  const auto* places = reinterpret_cast<const wire::FirstFinding*>(section.data);
  for (size_t i = 0; i < count; ++i) {
    if (done.firsts[i]) continue;
    const uint32_t state = places[i].state.load(std::memory_order_acquire);
    if (state == wire::kEntryFree) break;
    if (state == wire::kEntryBeingWritten) continue;
    pending.firsts[i] = true;
    wire::RecordCopy copy;
    if (wire::ReadFirstFinding(places[i], copy)) {
      (void)AddRecord(batch, copy.bytes, copy.header().bytes);
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

// Those that still stand; what a daemon before this one has read is known by its ticket.
void SegmentReader::Impl::ReadTrails(RunBatch& batch) {
  const SegmentFile::Section& section = file.section(SectionType::kTrail);
  std::optional<wire::TrailReader> reader =
      wire::TrailReader::Open(section.data, section.bytes, done.trails);
  if (!reader) return;
  const auto entry = std::make_unique<wire::TrailEntry>();
  LapLimit lap(reader->capacity(), reader->cursor());
  for (int i = 0; i < wire::kTrails && !lap.IsReached(reader->cursor()) && reader->Read(*entry);
       ++i) {
    if (!tickets.insert(entry->ticket).second) continue;
    batch.records.push_back(DecodeTrail(*entry, names));
  }
  pending.trails = reader->cursor();
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

void SegmentReader::Resume(const SegmentCursor& cursor, const IsStored& is_stored) {
  const Published now = LookAt(impl_->file);
  if (cursor.ring > now.reserved || cursor.steps > now.steps || cursor.stats > now.stats) return;
  const uint64_t released = impl_->done.cursor.ring;
  impl_->done.cursor = cursor;
  impl_->done.cursor.ring = std::max(cursor.ring, released);
  impl_->FindOpenHoles(released, is_stored);
  impl_->ReleaseUpTo(impl_->Releasable());
}

Result<RunBatch> SegmentReader::Read(bool to_end, const Clock& clock, Counts counts) {
  Impl& impl = *impl_;
  if (impl.file.IsCutShort())
    return Status(ErrorKind::kCorrupt, "was cut short while it was in use");
  RunBatch batch;
  batch.run_id = impl.run_id;
  batch.run = impl.run;
  impl.pending = impl.done;
  impl.published_pending =
      LookAt(impl.file);  // before the rest: what comes during it is news again
  impl.tickets.clear();
  ReadBudget budget(kReadBytesMax);
  impl.ReadLateRecords(batch);
  impl.ReadRing(batch, to_end, clock.monotonic_ns(), budget);
  impl.ReadFirstFindings(batch);
  impl.ReadReach(batch);
  impl.sites.Read(impl.file, impl.names, counts == Counts::kAll, budget, batch);
  ReadSteps(impl.file, impl.names, budget, impl.pending.cursor, batch);
  impl.ReadTrails(batch);
  ReadStats(impl.file, impl.names, budget, impl.pending.cursor, batch);
  ReadLive(impl.file, batch.state);
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
  impl.sites.Acknowledge();
  impl.published_done = impl.published_pending;
  impl.read_once = true;
  impl.more = batch.more;
  impl.ReleaseUpTo(impl.Releasable());
  return Status();
}

bool SegmentReader::HasNews() const {
  return !impl_->read_once || impl_->hole_since_ns != 0 || impl_->sites.has_unread() ||
         impl_->more || !impl_->done.holes.empty() || LookAt(impl_->file) != impl_->published_done;
}

bool SegmentReader::HasUrgentNews() const {
  if (!impl_->read_once || impl_->hole_since_ns != 0 || impl_->more) return true;
  return IsUrgent(impl_->file, impl_->published_done, LookAt(impl_->file));
}

uint64_t SegmentReader::FindingsPublished() const {
  const Published now = LookAt(impl_->file);
  return now.reserved + now.dropped + now.sites + now.trails + now.values_bad + now.values_dropped;
}

RunGlance SegmentReader::Glance(uint64_t steps_max) const {
  RunGlance glance;
  ReadLive(impl_->file, glance.state);
  glance.last_steps = ReadLastSteps(impl_->file, impl_->names, steps_max);
  glance.last_stats = ReadNewestStats(impl_->file, impl_->names);
  return glance;
}

std::vector<Site> SegmentReader::NewestSites(size_t count_max) const {
  return ReadNewestSites(impl_->file, impl_->names, count_max);
}

bool SegmentReader::WriterLives(const Clock& clock) {
  const uint64_t heartbeat = LiveBlockOf(impl_->file).heartbeat_ns.load(std::memory_order_relaxed);
  return impl_->liveness.Lives(impl_->file.fd(), impl_->file.header(), heartbeat,
                               clock.monotonic_ns());
}

}  // namespace nanwatch
