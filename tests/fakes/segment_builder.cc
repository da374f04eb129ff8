// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/segment_builder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "daemon/base/clock.h"
#include "daemon/ingest/writer_liveness.h"
#include "proto/wire/naming.h"
#include "shim/host/ignore_text.h"

namespace nanwatch {
namespace {

template <size_t N>
void Put(char (&field)[N], const std::string& text) {
  std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

[[noreturn]] void Stop(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

SegmentBuilder::SegmentBuilder(const std::string& directory, const SegmentBuilderOptions& options)
    : source_(options.source), map_(MapSegment(options.layout)) {
  const uint64_t ignore_offset = AppendIgnoreSection(map_);
  char file[64];
  std::snprintf(file, sizeof file, "%s%d-%016llx", wire::kSegmentPrefix,
                options.pid == 0 ? getpid() : options.pid,
                static_cast<unsigned long long>(options.nonce));
  path_ = directory + "/" + file + wire::kSegmentSuffix;
  const std::string unfinished = directory + "/" + file + wire::kSegmentTmpSuffix;
  const int fd = open(unfinished.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(map_.file_bytes)) != 0) Stop("segment file");
  void* memory = mmap(nullptr, map_.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) Stop("segment mapping");
  close(fd);
  bytes_ = static_cast<unsigned char*>(memory);
  WriteHeader(options);
  auto* ignore = At<wire::IgnoreSection>(ignore_offset);
  ignore->bytes = static_cast<uint32_t>(options.ignore.size());
  options.ignore.copy(ignore->text, sizeof ignore->text);
  auto* ring_header = At<wire::RingHeader>(map_.ring);
  ring_ = std::make_unique<wire::RingWriter>(
      ring_header, reinterpret_cast<wire::Slot*>(ring_header + 1), options.layout.ring_slots);
  names_ = std::make_unique<wire::NameWriter>(At<wire::NameTableHeader>(map_.names),
                                              options.layout.names, options.layout.name_bytes);
  sites_ = std::make_unique<wire::SiteWriter>(At<wire::SiteTableHeader>(map_.sites),
                                              options.layout.sites);
  steps_ = std::make_unique<wire::StepWriter>(At<wire::StepRingHeader>(map_.steps),
                                              options.layout.steps);
  telemetry_ = std::make_unique<wire::TelemetryWriter>(At<wire::StepRingHeader>(map_.telemetry),
                                                       options.layout.steps);
  trails_ =
      std::make_unique<wire::TrailWriter>(At<wire::StepRingHeader>(map_.trails), wire::kTrails);
  stats_ = std::make_unique<wire::StatsWriter>(At<wire::StepRingHeader>(map_.stats),
                                               options.layout.stats);
  first_ = std::make_unique<wire::FirstWriter>(At<wire::FirstFinding>(map_.first),
                                               At<wire::FirstReach>(map_.reach));
  live_ = std::make_unique<wire::LiveWriter>(At<wire::LiveBlock>(map_.live));
  facts_.state = wire::LiveState::kWatching;
  facts_.level = wire::Level::kFull;
  if (rename(unfinished.c_str(), path_.c_str()) != 0) Stop("segment name");
}

SegmentBuilder::~SegmentBuilder() { munmap(bytes_, map_.file_bytes); }

std::string SegmentBuilder::name() const { return path_.substr(path_.find_last_of('/') + 1); }

void SegmentBuilder::WriteHeader(const SegmentBuilderOptions& options) {
  const SystemClock clock;
  const HostIdentity host = HostIdentity::Current();
  wire::SegmentHeader& to = header();
  to.magic = wire::kSegmentMagic;
  to.wire_major = options.wire_major;
  to.wire_minor = wire::kWireMinor;
  to.header_bytes = sizeof to;
  to.file_bytes = map_.file_bytes;
  to.nonce = options.nonce;
  to.started_real_ns = clock.real_ns();
  to.started_monotonic_ns = clock.monotonic_ns();
  to.pid = options.pid == 0 ? getpid() : options.pid;
  to.pid_outer = to.pid;
  to.process_start_ticks = ProcessStartTicks(to.pid) + (options.dead ? 1 : 0);
  to.pid_namespace = host.pid_namespace;
  to.place = host.place;
  to.rank = options.rank;
  to.world_size = 1;
  to.level = static_cast<uint8_t>(wire::Level::kFull);
  to.section_count = map_.section_count;
  std::memcpy(to.sections, map_.sections, sizeof to.sections);
  Put(to.boot_id, host.boot_id);
  Put(to.job, options.job);
  Put(to.host, host.host);
  Put(to.torch_version, "2.11.0");
  Put(to.python_version, "3.11.2");
  Put(to.program, options.program);
  constexpr char kCommand[] = "python\0train.py\0--fast";
  std::memcpy(to.command, kCommand, sizeof kCommand);
  to.command_bytes = sizeof kCommand;
}

uint64_t SegmentBuilder::WriteValue(const std::string& op, const std::string& layer,
                                    wire::FindingClass finding_class) {
  return WriteValue(op, layer, finding_class, nullptr);
}

uint64_t SegmentBuilder::WriteValueOfSamples(const std::string& op,
                                             const wire::LoaderSamples& samples) {
  return WriteValue(op, "", wire::FindingClass::kProduce, &samples);
}

uint64_t SegmentBuilder::WriteValue(const std::string& op, const std::string& layer,
                                    wire::FindingClass finding_class,
                                    const wire::LoaderSamples* samples) {
  struct {
    wire::ValueRecord value{};
    wire::TensorStats output{};
    wire::LoaderSamples samples{};
  } record;
  const size_t bytes = samples != nullptr ? sizeof record : offsetof(decltype(record), samples);
  const uint64_t ticket = ++tickets_;
  wire::ValueRecord& value = record.value;
  value.header.kind = static_cast<uint16_t>(wire::RecordKind::kValue);
  value.header.bytes = static_cast<uint16_t>(bytes);
  value.header.thread = 1;
  value.header.ticket = ticket;
  value.header.time_ns = header().started_monotonic_ns + ticket;
  value.header.clocks = facts_.clocks;
  bool is_new = false;
  value.site = sites_->Intern(
      {.op = Intern(op),
       .layer = Intern(layer),
       .root = Intern("Model#0"),
       .phase = wire::Phase::kForward,
       .finding_class = finding_class,
       .kinds = wire::kHasNan,
       .outputs = 1},
      [&] { return Intern(source_); }, &is_new);
  sites_->Count(value.site, ticket, facts_.clocks);
  value.flags = wire::ValueRecord::kInputsSeen;
  if (samples != nullptr) {
    value.flags |= wire::ValueRecord::kHasSamples;
    record.samples = *samples;
  }
  value.n_outputs = 1;
  wire::TensorStats& output = record.output;
  output.element_type = static_cast<uint8_t>(wire::ElementType::kFloat32);
  output.ndim = 2;
  output.numel = 32;
  output.nan = 4;
  output.finite_min = -1.5;
  output.finite_max = 2.5;
  output.first_bad = 3;
  output.shape[0] = 4;
  output.shape[1] = 8;
  output.value = ticket;
  if (is_new) first_->Keep(value.header);
  (void)ring_->Write(&record, bytes);
  ++facts_.values_bad;
  return ticket;
}

void SegmentBuilder::WriteStep(double loss) {
  wire::StepEntry entry{};
  ++facts_.clocks.optimizer_ranges;
  ++facts_.clocks.optimizer_steps[0];
  entry.clocks = facts_.clocks;
  entry.loss = loss;
  entry.flags = 1;
  wire::TelemetryEntry telemetry{};
  telemetry.loss = loss;
  telemetry.known = wire::TelemetryEntry::kLoss;
  telemetry.level = static_cast<uint32_t>(facts_.level);
  WriteStep(entry, telemetry);
}

void SegmentBuilder::WriteStep(const wire::StepEntry& entry,
                               const wire::TelemetryEntry& telemetry) {
  telemetry_->Publish(telemetry);
  steps_->Publish(entry);
}

void SegmentBuilder::WriteTrail(uint64_t value,
                                const std::vector<std::pair<std::string, double>>& ops) {
  const auto entry = std::make_unique<wire::TrailEntry>();
  entry->ticket = ++tickets_;
  entry->value = value;
  for (const auto& [op, largest] : ops) {
    wire::TrailOp& to = entry->ops[entry->count++];
    to.op = Intern(op);
    to.largest = largest;
    to.known = wire::TrailOp::kExact;
    to.phase = static_cast<uint8_t>(wire::Phase::kForward);
    to.element_type = static_cast<uint8_t>(wire::ElementType::kFloat16);
  }
  trails_->Publish(*entry);
}

void SegmentBuilder::WriteKernels(uint64_t value,
                                  const std::vector<std::pair<std::string, uint64_t>>& kernels) {
  wire::KernelsRecord record{};
  record.header.kind = static_cast<uint16_t>(wire::RecordKind::kKernels);
  record.header.bytes = sizeof record;
  record.header.ticket = ++tickets_;
  record.value = value;
  for (const auto& [name, nanoseconds] : kernels) {
    record.kernels[record.n_kernels++] = {Intern(name), 1, nanoseconds};
  }
  (void)ring_->Write(&record, sizeof record);
}

void SegmentBuilder::WriteStats(const wire::StatsHead& head,
                                std::vector<wire::StatsParameter> parameters,
                                const std::vector<std::string>& names) {
  wire::StatsHead told = head;
  told.optimizer_class = Intern("AdamW");
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].position = static_cast<uint32_t>(i);
    parameters[i].name = Intern(names.at(i));
    parameters[i].root = Intern("Model#0");
  }
  stats_->Publish(told, parameters, {}, header().started_monotonic_ns + 1);
}

void SegmentBuilder::WriteReach(wire::Reach reach, uint64_t value, const std::string& name) {
  first_->Reached(reach, value, tickets_, Intern(name), facts_.clocks);
}

void SegmentBuilder::WriteEnd() {
  wire::EndRecord record{};
  record.header.kind = static_cast<uint16_t>(wire::RecordKind::kEnd);
  record.header.bytes = sizeof record;
  record.header.ticket = ++tickets_;
  record.how = static_cast<uint32_t>(wire::EndRecord::How::kExit);
  (void)ring_->Write(&record, sizeof record);
}

void SegmentBuilder::LeaveHole(uint64_t slots) { ring().reserved_slots.fetch_add(slots); }

void SegmentBuilder::Publish() {
  facts_.ops_seen += 100;
  At<wire::LiveBlock>(map_.live)->tickets.store(tickets_);
  live_->Publish(facts_, SystemClock().monotonic_ns());
}

int FillWithLongNames(SegmentBuilder& job, const SegmentLayout& layout) {
  job.WriteReach(wire::Reach::kLoss, 1, std::string(500, 'n'));
  wire::RingWriter ring(&job.ring(), reinterpret_cast<wire::Slot*>(&job.ring() + 1),
                        layout.ring_slots);
  wire::UpdateRecord record{};
  record.header.bytes = sizeof record;
  record.header.kind = static_cast<uint16_t>(wire::RecordKind::kUpdate);
  record.optimizer_class = 1;
  record.n_bad = wire::kSourcesMax;
  for (uint32_t& name : record.bad_names) name = 1;
  for (wire::Source& source : record.bad) source.name = 1;
  int written = 0;
  do {
    record.header.ticket = static_cast<uint64_t>(written) + 1;
  } while (ring.Write(&record, sizeof record) && ++written > 0);
  job.Publish();
  return written;
}

IdleProcess::IdleProcess() : pid_(fork()) {
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (true) pause();
}

void IdleProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

}  // namespace nanwatch
