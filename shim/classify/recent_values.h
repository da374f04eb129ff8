// SPDX-License-Identifier: Apache-2.0
// The latest bad values of this process, in short form: enough to write a value's record after the
// fact.
//
// A site that fires at every step (a mask) is written out only for the first times. When a later
// value of it turns out to matter, because something that descends from it reached the loss, a
// gradient or a parameter, its record is made from here. Of values that may be an origin the
// figures of their tensors are kept, too: the tensors themselves are gone by then.
//
// Threads: every function locks; only called while something bad is alive.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"

namespace nanwatch {

class RecentValues {
 public:
  // A value's record without its tensors, and where its sources stand among the recent values.
  struct Kept {
    wire::ValueRecord record;
    uint64_t source_index[wire::kSourcesMax];
    uint64_t index;
    uint32_t op;  // name ids of the op and the layer that made it
    uint32_t layer;
    wire::FindingClass finding_class;
    bool of_one_number;  // its bad output has one element
    bool written;        // its record has been emitted
    bool traced;         // so have those of what it came from
  };

  // Keeps the newest kCapacity values; fills in `kept.index`. Returns the reference by which it is
  // found again.
  ValueRef Add(Kept kept) noexcept;

  // Copies the value as it was and marks it as written and traced; false if it has been overwritten
  // by newer values.
  bool Trace(ValueRef ref, Kept* before) noexcept;

  // Copies the value; false if it has been overwritten by newer values.
  bool Look(ValueRef ref, Kept* kept) noexcept;

  // Whether the value itself came in from outside. False also where it has been overwritten by
  // newer values.
  bool CameIn(ValueRef ref) noexcept;

  // Whether no op made the value: behind it stand only constants that were asked for and, if those
  // count, values that came in from outside; the ops between passed them on. False where a part of
  // the way is not known any more.
  bool WasGiven(ValueRef ref, bool external_counts) noexcept;

  // Keeps the tensors of a value whose record is not written yet: its outputs, then its inputs,
  // then what else follows them in the record, at most kTensorsMax. The newest kDescribed values
  // have theirs.
  static constexpr int kTensorsMax = wire::kOutputsMax + wire::kInputsMax;
  void KeepTensors(uint64_t ticket, const wire::TensorStats* tensors, int count) noexcept;
  // Copies `count` tensors of the value; false if they were never kept or are overwritten.
  bool CopyTensors(uint64_t ticket, wire::TensorStats* tensors, int count) noexcept;

  static constexpr uint64_t kCapacity = 8192;
  static constexpr uint64_t kDescribed = 256;

 private:
  struct Tensors {
    uint64_t ticket;
    wire::TensorStats list[kTensorsMax];
  };

  std::mutex mutex_;
  std::unique_ptr<Kept[]> kept_;  // made on first use
  uint64_t next_ = 1;
  std::unique_ptr<Tensors[]> tensors_;  // made on first use
  uint64_t tensors_next_ = 0;
};

}  // namespace nanwatch
