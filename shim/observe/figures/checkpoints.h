// SPDX-License-Identifier: Apache-2.0
// Whether the checkpoints that the program saves are clean. A checkpoint is what holds a parameter
// of a model that was called, or a tensor under the name of one: a copy on the CPU, an average.
//
// What counts in it are parameters, the state of optimizers, and buffers. Infinities of a buffer
// are a mask or the start of a range, and -Inf in a parameter was asked for. Everything else that
// is saved along (a best loss, a history) says nothing of the weights.
//
// While the program's thread saves, one of ours reads the same memory, so that the save takes no
// longer where a processor is free. Storages are held until then, and no tensor: one that somebody
// holds cannot be swapped (torch.utils.swap_tensors). A tensor on a GPU is not read.
//
// Threads: Begin and End of one save on one thread, with the GIL held, and Wait between them,
// without it; other saves may be open.
#pragma once

#include <c10/core/Storage.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
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
  // Until all is read.
  void Wait(unsigned save) noexcept;
  // Records what was found; not where `thread` is null.
  void End(ThreadState* thread, unsigned save, const char* file, bool failed) noexcept;

 private:
  enum class Part : uint8_t { kParameter, kBuffer, kState, kOther };
  // A run of memory, of which the storage is held.
  struct Memory {
    c10::Storage storage;
    const void* data;  // of the storage, when the save began
    uint64_t byte_begin;
    uint64_t byte_end;
    wire::ElementType type;
    Part part;
    std::string name;
  };
  struct Save {
    pid_t pid = 0;  // a child that was forked meanwhile has no such thread
    bool is_checkpoint = false;
    std::vector<Memory> memory;
    std::thread reader;  // not joinable: it could not be started, and Wait reads
    wire::CheckpointRecord found{};
  };
  using Names = std::unordered_set<std::string_view>;

  [[nodiscard]] Part PartOf(const SavedTensor& saved, const Names& parameters) const;
  static void Add(const SavedTensor& saved, Part part, Save* save);
  static void Read(Save* save) noexcept;

  ProcessSegment& segment_;
  const FindingRecords& records_;
  const PythonNames& names_;
  std::array<Save, CheckpointCalls::kOpenMax> saves_;
};

}  // namespace nanwatch
