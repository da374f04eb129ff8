// SPDX-License-Identifier: Apache-2.0
// The record of a bad value in the making: its place in the table of sites, its head, and what
// becomes of it. The first values of a site are written out at once, with all that is known; later
// ones are kept, and written when something comes of them. Those that may be an origin are kept
// with the figures of their tensors.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "proto/wire/loader_samples.h"
#include "shim/classify/recent_values.h"
#include "shim/emit/emitter.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {

class PythonBridge;

// A site's first values are written out with everything known; later ones only when they turn out
// to matter.
inline constexpr uint32_t kFullRecordsPerSite = 2;

// Of what one place has found `seen` times: often at first, because it may be excused for a while
// (a scaler's skips), then ever more rarely, because it may be so by design.
[[nodiscard]] constexpr bool IsEarlyOrRare(uint64_t seen) noexcept {
  constexpr uint64_t kAlwaysMax = 16;
  return seen <= kAlwaysMax || std::has_single_bit(seen);
}

// One record in the making.
struct Draft {
  wire::ValueRecord value{};
  // Outputs, then inputs, then, with kHasSamples, what a wire::LoaderSamples takes of it.
  wire::TensorStats tensors[wire::kOutputsMax + wire::kInputsMax];
  // How many of `tensors` are in use.
  [[nodiscard]] int TensorsUsed() const noexcept {
    const bool samples = (value.flags & wire::ValueRecord::kHasSamples) != 0;
    return value.n_outputs + value.n_inputs + (samples ? wire::kTensorsOfSamples : 0);
  }
};
static_assert(sizeof(Draft) == wire::kRecordBytesMax);

// Of ValueRecord: on which GPU the tensor lies.
inline uint32_t GpuFlag(const PlainTensor& tensor) noexcept {
  return static_cast<uint32_t>(tensor.gpu + 1) << wire::ValueRecord::kGpuShift;
}

// Threads: any; one object per process.
class FindingRecords {
 public:
  // All outlive it.
  FindingRecords(const ProcessSegment& segment, RecentValues& recent, const PythonBridge& python,
                 StepClock& clock) noexcept
      : segment_(segment), recent_(recent), python_(python), clock_(clock) {}

  [[nodiscard]] SiteKey MakeKey(const ThreadState* thread, Emitter& emitter, const Location& place,
                                uint32_t op, wire::FindingClass finding_class, uint8_t kinds,
                                uint8_t outputs, uint32_t flags, uint32_t param) const noexcept;
  // The site's number. Where it is new the user's line is asked for.
  uint32_t InternSite(ThreadState* thread, Emitter& emitter, const SiteKey& key,
                      bool* is_new) const noexcept;

  // Fills kind, bytes, ticket, thread, time and clocks.
  [[nodiscard]] wire::RecordHeader MakeHeader(ThreadState* thread, Emitter& emitter,
                                              wire::RecordKind kind, size_t bytes) const noexcept;

  // How the op's schema calls its argument number `argument`, and what the tensor is in the
  // training.
  void NameInput(const Frame& frame, Emitter& emitter, size_t argument, const c10::TensorImpl* impl,
                 const c10::StorageImpl* storage, wire::TensorStats* stats) const noexcept;

  // Emits, or keeps for later, and says where the value stands among the recent ones.
  ValueRef File(Emitter& emitter, Draft& draft, const Sources& sources, const SiteKey& key,
                bool write, bool is_new_site) noexcept;
  // What the value has reached by being written where it is.
  void RecordReachOf(Emitter& emitter, const wire::ValueRecord& record, ValueRef value) noexcept;

  // Writes out the records of `value` and of what it came from, as far as they were held back.
  void WriteAncestors(ValueRef value) noexcept;

 private:
  const ProcessSegment& segment_;
  RecentValues& recent_;
  const PythonBridge& python_;
  StepClock& clock_;
};

}  // namespace nanwatch
