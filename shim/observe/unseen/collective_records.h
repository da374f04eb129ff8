// SPDX-License-Identifier: Apache-2.0
// Records of collectives, by which the daemon finds the same collective on other ranks.
//
// Threads: any. Called only where something is bad.
#pragma once

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class FindingRecords;
class ProcessSegment;
class UnobservedWrites;
struct Layer;

class CollectiveRecords {
 public:
  // All outlive it.
  CollectiveRecords(ProcessSegment& segment, FindingRecords& records,
                    UnobservedWrites& writes) noexcept
      : segment_(segment), records_(records), writes_(writes) {}

  // The collective's record. `input`: the first bad tensor given in; null: none is known. `output`:
  // what came back bad.
  void Emit(ThreadState* thread, const CollectiveName& collective, const wire::Source* input,
            ValueRef output) noexcept;

  // Records that this tensor has come bad by the collective, which was begun in this layer.
  ValueRef ReportReceived(ThreadState* thread, const PlainTensor& tensor,
                          const CollectiveName& collective, const Layer* layer) noexcept;

 private:
  ProcessSegment& segment_;
  FindingRecords& records_;
  UnobservedWrites& writes_;
};

}  // namespace nanwatch
