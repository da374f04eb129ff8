// SPDX-License-Identifier: Apache-2.0
// The one way from the job into its segment. What goes through here is published: it survives the
// process's SIGKILL.
//
// Any thread, at any time; nothing throws, allocates, makes a system call (but KeepSegment), or
// waits for another process. Turns that the threads of this process take among themselves are
// private and short; only KeepSegment may keep them waiting for the milliseconds in which a lost
// file is made anew.
//
// A forked child never touches its parent's Emitter, not even to destroy it; if it trains, it makes
// a Segment and an Emitter of its own. Leak it: threads may still emit while exit handlers run.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>

#include "proto/wire/first_findings.h"
#include "proto/wire/live_block.h"
#include "proto/wire/name_table.h"
#include "proto/wire/record.h"
#include "proto/wire/ring.h"
#include "proto/wire/segment.h"
#include "proto/wire/site_table.h"
#include "proto/wire/stats_ring.h"
#include "proto/wire/step_ring.h"
#include "shim/emit/write_gate.h"
#include "shim/host/segment_file.h"

namespace nanwatch {

using wire::LiveFacts;
using wire::SiteKey;

// The user's own line, "model.py:41 in forward", ended by a NUL; "" when it is not known. As long
// as a name may be, for those who want its callers too.
struct SourceLine {
  char text[512];
};

class Emitter {
 public:
  // `segment` must be new and outlives this object. Allocates its private indices here, once (about
  // 0.6 MiB, and 1.4 MiB of addresses for copies of names and places as they come).
  explicit Emitter(Segment& segment) noexcept;
  Emitter(const Emitter&) = delete;
  Emitter& operator=(const Emitter&) = delete;

  // The next number of the process-wide order, from 1.
  uint64_t DrawTicket() noexcept;

  // The id of `name` (cut to 512 bytes); 0 for "", and when the table is full, which is counted.
  uint32_t Intern(std::string_view name) noexcept;

  // The text of a name's id, for messages, cut to `size` with the 0 at its end; "" when there is
  // none. No std::string: an observer for a torch of the old string ABI has another one.
  void TextOf(uint32_t id, char* out, size_t size) const noexcept;

  // The id of the place `key`; 0 when the table is full, which is counted. `make_source(context)`
  // is called only if the place is new, without any lock held; it may call back. Two threads that
  // meet the same new place at once may both call it. `*is_new` is true for the one call that made
  // the entry. `make_source` may be nullptr.
  uint32_t InternSite(const SiteKey& key, SourceLine (*make_source)(void*), void* context,
                      bool* is_new) noexcept;

  // Counts one more at a site; gives the new count (stays at UINT32_MAX). Site 0 counts here, and
  // nowhere in the segment.
  uint32_t CountSite(uint32_t site, uint64_t ticket, const wire::Clocks& clocks) noexcept;

  // What was counted at `site` gets no record. Its site says that it was there; without a site (0)
  // it is lost, and counted as a dropped record.
  void SkipRecord(uint32_t site) noexcept;

  // Publishes a record that lies in memory behind its header, header.bytes long, kind set. False
  // when the ring had no room, which is counted.
  bool Emit(const wire::RecordHeader& record) noexcept;

  // Keeps the record among the first distinct findings while there are places. Call it once for
  // each new site; those that differ from a kept one in neither op, layer, class nor phase take no
  // further place.
  void KeepFirst(const wire::ValueRecord& record) noexcept;

  // Notes that a bad value got this far. Only the first time for each kind; cheap afterwards.
  void RecordReach(wire::Reach reach, uint64_t value, uint64_t ticket, uint32_t name,
                   const wire::Clocks& clocks) noexcept;

  // One entry of each of the two step rings; `sequence` is ignored. Calls come one after another.
  // Adds what the live block last said of the checks' cost.
  void PublishStep(const wire::StepEntry& plain, wire::TelemetryEntry& telemetry) noexcept;

  // The ops before a finding; `sequence` is ignored.
  void PublishTrail(const wire::TrailEntry& trail) noexcept;
  // A snapshot of an optimizer's parameters, at most stats_parameters_max() of them, and of as many
  // layers as there is room for beside them.
  void PublishStats(const wire::StatsHead& head, std::span<const wire::StatsParameter> parameters,
                    std::span<const wire::StatsLayer> layers, uint64_t time_ns) noexcept;
  [[nodiscard]] uint32_t stats_parameters_max() const noexcept { return stats_.parameters_max(); }

  // The run's id.
  [[nodiscard]] uint64_t run() const noexcept { return segment_.header().nonce; }
  // Of the machine's run, "" where it is not known.
  [[nodiscard]] const char* boot_id() const noexcept { return segment_.header().boot_id; }
  // What the tools ask for.
  [[nodiscard]] const wire::ControlBlock& control() const noexcept { return segment_.control(); }

  // Overwrites the live block and its heartbeat.
  void PublishLive(const LiveFacts& facts) noexcept;

  // The process leaves: an end record, and the live block's state. `failed`: by an exception.
  void End(wire::EndRecord::How how,
           wire::EndRecord::Failed failed = wire::EndRecord::Failed::kNot) noexcept;

  // After End: removes the segment where nobody waits for it and it holds nothing to tell.
  void Retire() noexcept;

  // Looks whether the segment's file is still there and whole, and makes it anew if not; what was
  // lost with it of names, places, totals and first findings is written again. To be called at
  // steps: it looks at most once a second and otherwise costs a clock read. True unless the file is
  // gone and could not be made anew (`report` says why, once per failed attempt; tried again after
  // a minute).
  bool KeepSegment(SegmentReport& report) noexcept;

 private:
  bool IsKept(const SiteKey& key) noexcept;
  void Restore() noexcept;
  [[nodiscard]] bool HasSomethingToTell() const noexcept;

  Segment& segment_;
  wire::LiveBlock& live_;
  WriteGate gate_;
  wire::RingWriter ring_;
  wire::NameWriter names_;
  wire::SiteWriter sites_;
  wire::StepWriter steps_;
  wire::TelemetryWriter telemetry_;
  wire::TrailWriter trails_;
  wire::StatsWriter stats_;
  wire::FirstWriter first_;
  wire::LiveWriter live_writer_;

  std::mutex kept_mutex_;
  SiteKey kept_[wire::kFirstFindingsMax];
  int kept_count_ = 0;

  // What the live block counts, where nobody else can write.
  std::atomic<uint64_t> tickets_{0};
  std::atomic<uint64_t> values_dropped_{0};
  std::atomic<uint64_t> names_dropped_{0};
  std::atomic<uint64_t> sites_dropped_{0};
  // Findings that the full table of sites had no place for. They count as one site's, so that a
  // storm of them is as cheap as one of a single site.
  std::atomic<uint64_t> without_site_{0};

  std::mutex clocks_mutex_;
  wire::Clocks last_clocks_{};  // as published last, for the end record
  LiveFacts last_facts_{};

  std::atomic<uint64_t> next_look_ns_{0};
};

}  // namespace nanwatch
