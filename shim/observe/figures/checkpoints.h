// SPDX-License-Identifier: Apache-2.0
// Whether the checkpoints that the program saves are clean. A checkpoint is what holds a parameter
// of a model that was called, or a tensor under the name of one: a copy on the CPU, an average.
//
// While the program's thread saves, one of ours reads the same tensors, so that the save takes no
// longer where a processor is free. They are held until then. A tensor on a GPU is not read.
//
// Threads: Begin and End of one save on one thread, with the GIL held; other saves may be open.
#pragma once

#include <ATen/core/TensorBase.h>

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "proto/wire/checkpoint_record.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/python/calls/checkpoint_calls.h"
#include "shim/observe/python/names/python_names.h"

namespace nanwatch {

struct ThreadState;

class Checkpoints {
 public:
  // All outlive it.
  Checkpoints(ProcessSegment& segment, const FindingRecords& records,
              const PythonNames& names) noexcept
      : segment_(segment), records_(records), names_(names) {}

  void Begin(unsigned save, const SavedTensors& saved);
  // Waits until all is read, and records it; not where `thread` is null.
  void End(ThreadState* thread, unsigned save, const char* file, bool failed) noexcept;

 private:
  struct Saved {
    at::TensorBase tensor;
    std::string name;
  };
  struct Save {
    std::vector<Saved> tensors;  // empty: it is no checkpoint
    std::thread reader;          // not joinable: it could not be started, and End reads
    wire::CheckpointRecord found{};
  };

  [[nodiscard]] bool IsCheckpoint(const SavedTensors& saved) const;
  static void Read(Save* save) noexcept;

  ProcessSegment& segment_;
  const FindingRecords& records_;
  const PythonNames& names_;
  std::array<Save, CheckpointCalls::kOpenMax> saves_;
};

}  // namespace nanwatch
