// SPDX-License-Identifier: Apache-2.0
// What is bad when an update ends, as a record: parameters, and the state that the optimizer keeps.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BadValues;
class FindingRecords;
class ProcessSegment;
class PythonBridge;

struct EndedUpdate {
  uint32_t range;                // number of the optimizer range that is open, or was last
  uint32_t optimizer;            // its number
  uint32_t class_name;           // the id of its name
  const void* open;              // the torch.optim.Optimizer, where it can be read; else null
  std::atomic<uint32_t>* named;  // updates whose bad state was looked up in it
};
// Nothing is written where nothing is bad that this range has written.
void RecordUpdate(ProcessSegment& segment, FindingRecords& records, BadValues& bad_values,
                  PythonBridge& python, ThreadState* thread, const EndedUpdate& update) noexcept;

}  // namespace nanwatch
