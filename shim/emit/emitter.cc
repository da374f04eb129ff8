// SPDX-License-Identifier: Apache-2.0
#include "shim/emit/emitter.h"

#include <cstdio>
#include <cstring>
#include <new>
#include <optional>

#include "shim/host/monotonic_clock.h"

namespace nanwatch {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int kGateTries = 10'000;

bool IsSameFinding(const SiteKey& a, const SiteKey& b) noexcept {
  return a.op == b.op && a.layer == b.layer && a.finding_class == b.finding_class &&
         a.phase == b.phase;
}

void CountDrop(std::atomic<uint64_t>& known, std::atomic<uint64_t>& published) noexcept {
  known.fetch_add(1, std::memory_order_relaxed);
  published.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Emitter::Emitter(Segment& segment) noexcept
    : segment_(segment),
      live_(segment.live()),
      ring_(segment.ring(), segment.slots(), segment.layout().ring_slots,
            segment.room(Room::kRing)),
      names_(segment.names(), segment.layout().names, segment.layout().name_bytes,
             segment.room(Room::kNames), segment.room(Room::kNameText)),
      sites_(segment.sites(), segment.layout().sites, segment.room(Room::kSites)),
      steps_(segment.steps(), segment.layout().steps, segment.room(Room::kSteps)),
      telemetry_(segment.telemetry(), segment.layout().steps, segment.room(Room::kTelemetry)),
      trails_(segment.trails(), wire::kTrails, segment.room(Room::kTrails)),
      stats_(segment.stats(), segment.layout().stats, segment.room(Room::kStats)),
      first_(segment.first(), segment.reach()),
      live_writer_(&segment.live()) {}

uint64_t Emitter::DrawTicket() noexcept {
  const WriteGate::Pass pass(gate_);
  live_.tickets.fetch_add(1, std::memory_order_relaxed);
  return tickets_.fetch_add(1, std::memory_order_relaxed) + 1;
}

uint32_t Emitter::Intern(std::string_view name) noexcept {
  const WriteGate::Pass pass(gate_);
  const uint32_t id = names_.Intern(name);
  if (id == 0 && !name.empty()) CountDrop(names_dropped_, live_.names_dropped);
  return id;
}

void Emitter::TextOf(uint32_t id, char* out, size_t size) const noexcept try {
  std::snprintf(out, size, "%s", "");
  const SegmentLayout& layout = segment_.layout();
  const std::optional<wire::NameReader> names = wire::NameReader::Open(
      segment_.names(), wire::NameTableBytes(layout.names, layout.name_bytes));
  if (names && id != 0) std::snprintf(out, size, "%s", names->Get(id).c_str());
} catch (const std::bad_alloc&) {
}

uint32_t Emitter::InternSite(const SiteKey& key, SourceLine (*make_source)(void*), void* context,
                             bool* is_new) noexcept {
  const auto source = [&]() -> uint32_t {
    if (make_source == nullptr) return 0;
    gate_.Leave();  // it may take its time, and may emit: see SiteWriter::Intern
    const SourceLine line = make_source(context);
    const uint32_t id = Intern({line.text, strnlen(line.text, sizeof line.text)});
    gate_.Enter();
    return id;
  };
  const WriteGate::Pass pass(gate_);
  const uint32_t id = sites_.Intern(key, source, is_new);
  if (id == 0) CountDrop(sites_dropped_, live_.sites_dropped);
  return id;
}

uint32_t Emitter::CountSite(uint32_t site, uint64_t ticket, const wire::Clocks& clocks) noexcept {
  const WriteGate::Pass pass(gate_);
  const uint64_t count = site == 0 ? without_site_.fetch_add(1, std::memory_order_relaxed) + 1
                                   : sites_.Count(site, ticket, clocks);
  return count < UINT32_MAX ? static_cast<uint32_t>(count) : UINT32_MAX;
}

void Emitter::SkipRecord(uint32_t site) noexcept {
  if (site != 0) return;
  const WriteGate::Pass pass(gate_);
  CountDrop(values_dropped_, live_.values_dropped);
}

bool Emitter::Emit(const wire::RecordHeader& record) noexcept {
  const WriteGate::Pass pass(gate_);
  if (ring_.Write(&record, record.bytes)) return true;
  CountDrop(values_dropped_, live_.values_dropped);
  return false;
}

bool Emitter::IsKept(const SiteKey& key) noexcept {
  for (int i = 0; i < kept_count_; ++i) {
    if (IsSameFinding(kept_[i], key)) return true;
  }
  return false;
}

void Emitter::KeepFirst(const wire::ValueRecord& record) noexcept {
  const WriteGate::Pass pass(gate_);
  const std::lock_guard lock(kept_mutex_);
  if (kept_count_ == wire::kFirstFindingsMax) return;
  const SiteKey* key = sites_.Key(record.site);
  if (key != nullptr && IsKept(*key)) return;
  if (!first_.Keep(record.header)) return;
  // Findings without a site look alike: op 0 belongs to nobody.
  kept_[kept_count_++] = key != nullptr ? *key : SiteKey{};
}

void Emitter::RecordReach(wire::Reach reach, uint64_t value, uint64_t ticket, uint32_t name,
                          const wire::Clocks& clocks) noexcept {
  const WriteGate::Pass pass(gate_);
  first_.Reached(reach, value, ticket, name, clocks);
}

void Emitter::PublishStep(const wire::StepEntry& plain, wire::TelemetryEntry& telemetry) noexcept {
  const WriteGate::Pass pass(gate_);
  {
    const std::lock_guard lock(clocks_mutex_);
    const wire::Overhead& overhead = last_facts_.overhead;
    telemetry.overhead_percent = static_cast<float>(overhead.percent);
    if (overhead.pairs != 0) telemetry.known |= wire::TelemetryEntry::kOverhead;
  }
  // Its own first: whoever reads a step finds the rest of it there.
  telemetry_.Publish(telemetry);
  steps_.Publish(plain);
}

void Emitter::PublishTrail(const wire::TrailEntry& trail) noexcept {
  const WriteGate::Pass pass(gate_);
  trails_.Publish(trail);
}

void Emitter::PublishStats(const wire::StatsHead& head,
                           std::span<const wire::StatsParameter> parameters,
                           std::span<const wire::StatsLayer> layers, uint64_t time_ns) noexcept {
  const WriteGate::Pass pass(gate_);
  stats_.Publish(head, parameters, layers, time_ns);
}

void Emitter::PublishLive(const LiveFacts& facts) noexcept {
  const WriteGate::Pass pass(gate_);
  live_writer_.Publish(facts, MonotonicNs());
  const std::lock_guard lock(clocks_mutex_);
  last_clocks_ = facts.clocks;
  last_facts_ = facts;
}

void Emitter::End(wire::EndRecord::How how, wire::EndRecord::Failed failed) noexcept {
  // A file that was cut or removed since the last check is created again for those who read it
  // later.
  next_look_ns_.store(0, std::memory_order_relaxed);
  SegmentReport report;
  (void)KeepSegment(report);
  wire::EndRecord record{};
  record.header.kind = static_cast<uint16_t>(wire::RecordKind::kEnd);
  record.header.bytes = sizeof record;
  record.header.ticket = DrawTicket();
  record.header.time_ns = MonotonicNs();
  {
    const std::lock_guard lock(clocks_mutex_);
    record.header.clocks = last_clocks_;
  }
  record.how = static_cast<uint32_t>(how);
  record.failed = static_cast<uint32_t>(failed);
  Emit(record.header);
  const WriteGate::Pass pass(gate_);
  live_.state.store(static_cast<uint32_t>(wire::LiveState::kExited), std::memory_order_release);
  live_.heartbeat_ns.store(record.header.time_ns, std::memory_order_release);
}

bool Emitter::HasSomethingToTell() const noexcept {
  const bool clean = live_.values_bad.load(std::memory_order_relaxed) == 0 &&
                     values_dropped_.load(std::memory_order_relaxed) == 0 &&
                     sites_dropped_.load(std::memory_order_relaxed) == 0 &&
                     segment_.sites()->used.load(std::memory_order_relaxed) == 0;
  return !clean;
}

void Emitter::Retire() noexcept { (void)segment_.Retire(HasSomethingToTell()); }

// The memory is zeros but for the header and the capacities; the gate is closed.
void Emitter::Restore() noexcept {
  names_.Restore();
  sites_.Restore();
  first_.Restore();
  steps_.Restore();
  telemetry_.Restore();
  trails_.Restore();
  stats_.Restore();
  ring_.Restore();
  live_.tickets.store(tickets_.load(std::memory_order_relaxed));
  live_.values_dropped.store(values_dropped_.load(std::memory_order_relaxed));
  live_.names_dropped.store(names_dropped_.load(std::memory_order_relaxed));
  live_.sites_dropped.store(sites_dropped_.load(std::memory_order_relaxed));
  const std::lock_guard lock(clocks_mutex_);
  live_writer_.Publish(last_facts_, MonotonicNs());
}

bool Emitter::KeepSegment(SegmentReport& report) noexcept {
  report = {.ok = true};
  const uint64_t now = MonotonicNs();
  uint64_t next = next_look_ns_.load(std::memory_order_relaxed);
  if (now < next || !next_look_ns_.compare_exchange_strong(next, now + kSecondNs)) return true;
  if (segment_.StillThere()) return true;
  const bool closed = gate_.WhileClosed(kGateTries, [&] {
    report = segment_.Remake();
    if (report.ok && segment_.ContentIsLost()) Restore();
  });
  if (!closed) return true;  // a thread is writing all the time; the next check is a second away
  if (!report.ok) next_look_ns_.store(now + 60 * kSecondNs, std::memory_order_relaxed);
  return report.ok;
}

}  // namespace nanwatch
