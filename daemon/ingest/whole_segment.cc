// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/whole_segment.h"

#include "daemon/ingest/segment_reader.h"

namespace nanwatch {
namespace {

// What an honest job leaves takes one or two; so much is kept in memory at once.
constexpr int kReadsOfWholeMax = 4;

}  // namespace

Result<SegmentFacts> ReadWhole(const std::string& path, const Clock& clock) {
  Result<SegmentReader> reader = SegmentReader::Open(path, SegmentReader::Access::kLook);
  if (!reader.ok()) return reader.status();
  const bool ended = !reader->WriterLives(clock);
  SegmentFacts whole;
  for (int reads = 1; reads == 1 || (!whole.is_whole && reads <= kReadsOfWholeMax); ++reads) {
    const Result<RunBatch> batch = reader->Read(/*to_end=*/ended, clock);
    if (!batch.ok()) return batch.status();
    if (Status kept = reader->Acknowledge(*batch); !kept.ok()) return kept;
    MergeInto(whole.facts, *batch);
    whole.is_whole = !batch->more;
  }
  RunState& state = *whole.facts.mutable_state();
  state.set_ended(ended);
  if (ended && !whole.is_whole) state.set_records_dropped(state.records_dropped() + 1);
  return whole;
}

}  // namespace nanwatch
