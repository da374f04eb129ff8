// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/checkpoint_decoder.h"

#include "daemon/ingest/wire_bytes.h"
#include "proto/wire/checkpoint_record.h"

namespace nanwatch {

bool DecodeCheckpoint(CheckpointFact& out, const unsigned char* record, size_t bytes) {
  using wire::CheckpointRecord;
  const auto from = Take<CheckpointRecord>(record, bytes);
  if (!from || from->bad > from->read) return false;
  out.set_file(TextIn(from->file));
  out.set_first_bad(TextIn(from->first_bad));
  out.set_read(from->read);
  out.set_bad(from->bad);
  out.set_unread(from->unread);
  out.set_bytes(from->bytes);
  out.set_kinds(from->kinds & 7);
  out.set_failed((from->flags & CheckpointRecord::kFailed) != 0);
  out.set_on_gpu((from->flags & CheckpointRecord::kOnGpu) != 0);
  out.set_left_out((from->flags & CheckpointRecord::kLeftOut) != 0);
  return true;
}

}  // namespace nanwatch
