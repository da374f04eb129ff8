// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/live_section.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "daemon/ingest/published.h"
#include "daemon/ingest/record_decoder.h"
#include "proto/wire/live_block.h"

namespace nanwatch {
namespace {

// The three figures are read one by one while the job may be writing them, and may be anything.
void SetOverhead(const wire::Overhead& overhead, RunState& state) {
  state.set_steps_off(overhead.steps_off);
  state.set_off_now(overhead.off_now);
  const bool in_order = overhead.low <= overhead.percent && overhead.percent <= overhead.high;
  if (overhead.pairs == 0 || !in_order || !std::isfinite(overhead.low) ||
      !std::isfinite(overhead.high)) {
    return;
  }
  state.set_overhead_percent(overhead.percent);
  state.set_overhead_low(overhead.low);
  state.set_overhead_high(overhead.high);
}

}  // namespace

void ReadLive(const SegmentFile& file, RunState& state) {
  const wire::LiveCopy copy = wire::ReadLive(LiveBlockOf(file));
  state.set_heartbeat_ns(copy.heartbeat_ns);
  state.set_ops_seen(copy.facts.ops_seen);
  state.set_tensors_checked(copy.facts.tensors_checked);
  state.set_bytes_checked(copy.facts.bytes_checked);
  state.set_values_bad(copy.facts.values_bad);
  state.set_records_dropped(std::max(copy.values_dropped, LookAt(file).dropped));
  state.set_names_dropped(copy.names_dropped);
  state.set_sites_dropped(copy.sites_dropped);
  for (const uint64_t count : copy.facts.unchecked) state.add_unchecked(count);
  state.set_gpus(copy.facts.gpus);
  for (const uint64_t steps : copy.facts.steps_watched) state.add_steps_watched(steps);
  SetOverhead(copy.facts.overhead, state);
  state.set_live_state(static_cast<uint32_t>(copy.facts.state));
  state.set_level(static_cast<uint32_t>(copy.facts.level));
  state.set_tickets(copy.tickets);
  *state.mutable_clocks() = DecodeClocks(copy.facts.clocks);
  if (copy.facts.loss_known) state.set_loss(copy.facts.loss);
}

}  // namespace nanwatch
