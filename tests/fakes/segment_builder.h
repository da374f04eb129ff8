// SPDX-License-Identifier: Apache-2.0
// The language in which the daemon's tests tell what a job wrote: a real segment file, made with
// the job's halves of proto/wire.
//
//   SegmentBuilder job(directory, {.job = "j", .pid = process.pid()});
//   job.WriteValue("aten::log", "encoder.0");
//   job.Publish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/wire/first_findings.h"
#include "proto/wire/live_block.h"
#include "proto/wire/loader_samples.h"
#include "proto/wire/name_table.h"
#include "proto/wire/ring.h"
#include "proto/wire/segment.h"
#include "proto/wire/site_table.h"
#include "proto/wire/stats_ring.h"
#include "proto/wire/step_ring.h"
#include "shim/host/segment_layout.h"

namespace nanwatch {

inline constexpr SegmentLayout kSmallLayout{.ring_slots = 256,
                                            .steps = 64,
                                            .stats = 64,
                                            .sites = 128,
                                            .names = 256,
                                            .name_bytes = 16 * 1024};

constexpr SegmentLayout SmallLayoutWithRing(uint32_t slots) {
  SegmentLayout layout = kSmallLayout;
  layout.ring_slots = slots;
  return layout;
}

struct SegmentBuilderOptions {
  SegmentLayout layout = kSmallLayout;
  uint64_t nonce = 0x1111222233334444;
  std::string job = {};
  std::string program = "train.py";
  std::string ignore = {};                       // the user's rules
  std::string source = "train.py:7 in forward";  // of all places
  int32_t pid = 0;                               // 0: this process
  int32_t rank = 0;
  bool dead = false;  // as if the process had gone and its number been given to another
  uint16_t wire_major = wire::kWireMajor;
};

class SegmentBuilder {
 public:
  // The file gets its name when everything in the header stands, as a job's does.
  SegmentBuilder(const std::string& directory, const SegmentBuilderOptions& options);
  SegmentBuilder(const SegmentBuilder&) = delete;
  SegmentBuilder& operator=(const SegmentBuilder&) = delete;
  ~SegmentBuilder();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string name() const;  // of the file

  // A finding, of class produce if nothing else is said: its place counted, its record emitted, and
  // kept among the first if the place is new. Gives its ticket.
  uint64_t WriteValue(const std::string& op, const std::string& layer,
                      wire::FindingClass finding_class = wire::FindingClass::kProduce);
  // The same, found while a DataLoader fetched these samples.
  uint64_t WriteValueOfSamples(const std::string& op, const wire::LoaderSamples& samples);
  void WriteStep(double loss);
  void WriteStep(const wire::StepEntry& entry, const wire::TelemetryEntry& telemetry);
  // The ops before the finding `value`, each with the largest magnitude that it left.
  void WriteTrail(uint64_t value, const std::vector<std::pair<std::string, double>>& ops);
  // The kernels that the op of the finding `value` ran, each once, with its time.
  void WriteKernels(uint64_t value, const std::vector<std::pair<std::string, uint64_t>>& kernels);
  // A snapshot of an optimizer; see the reader of stats_ring.h. `names`: of the parameters, which
  // get ids for them, in a module Model#0.
  void WriteStats(const wire::StatsHead& head, std::vector<wire::StatsParameter> parameters,
                  const std::vector<std::string>& names);
  void WriteReach(wire::Reach reach, uint64_t value, const std::string& name);
  void WriteEnd();
  // Reserves slots and never completes them, as a killed thread does.
  void LeaveHole(uint64_t slots);
  // Overwrites the live block.
  void Publish();

  // The whole file, to be read or spoilt.
  [[nodiscard]] unsigned char* bytes() const { return bytes_; }
  [[nodiscard]] size_t size() const { return map_.file_bytes; }
  [[nodiscard]] wire::RingHeader& ring() const { return *At<wire::RingHeader>(map_.ring); }
  [[nodiscard]] wire::SegmentHeader& header() const { return *At<wire::SegmentHeader>(0); }
  [[nodiscard]] uint64_t dropped() const { return ring().records_dropped.load(); }

 private:
  template <typename T>
  [[nodiscard]] T* At(uint64_t offset) const {
    return reinterpret_cast<T*>(bytes_ + offset);
  }
  void WriteHeader(const SegmentBuilderOptions& options);
  uint32_t Intern(const std::string& text) { return names_->Intern(text); }
  uint64_t WriteValue(const std::string& op, const std::string& layer,
                      wire::FindingClass finding_class, const wire::LoaderSamples* samples);

  std::string source_;
  SegmentMap map_;
  std::string path_;
  unsigned char* bytes_ = nullptr;
  std::unique_ptr<wire::RingWriter> ring_;
  std::unique_ptr<wire::NameWriter> names_;
  std::unique_ptr<wire::SiteWriter> sites_;
  std::unique_ptr<wire::StepWriter> steps_;
  std::unique_ptr<wire::TelemetryWriter> telemetry_;
  std::unique_ptr<wire::TrailWriter> trails_;
  std::unique_ptr<wire::StatsWriter> stats_;
  std::unique_ptr<wire::FirstWriter> first_;
  std::unique_ptr<wire::LiveWriter> live_;
  wire::LiveFacts facts_;
  uint64_t tickets_ = 0;
};

// Fills the ring with records that each name ten names of the greatest length: a few bytes that
// decode to many. How many there are.
int FillWithLongNames(SegmentBuilder& job, const SegmentLayout& layout);

// A process that does nothing until it is killed: somebody whose number a segment can bear.
class IdleProcess {
 public:
  IdleProcess();
  IdleProcess(const IdleProcess&) = delete;
  IdleProcess& operator=(const IdleProcess&) = delete;
  ~IdleProcess() { Kill(); }

  [[nodiscard]] int32_t pid() const { return pid_; }
  // SIGKILL, and waited for.
  void Kill();

 private:
  int32_t pid_ = 0;
};

}  // namespace nanwatch
