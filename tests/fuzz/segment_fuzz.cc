// SPDX-License-Identifier: Apache-2.0
// Whatever stands in a segment, the daemon neither crashes nor hangs nor fills up.
//
// Built by itself it makes its own inputs: a valid segment, spoilt at random places, `segment_fuzz
// --rounds N --seed S`, with S 0 a new one; a number that fails can be repeated alone with `--only I`. With
// -fsanitize=fuzzer and NANWATCH_LIBFUZZER it is a libFuzzer target; files given as arguments are
// read once each.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "daemon/explain/explain.h"
#include "daemon/explain/parameter_reports.h"
#include "daemon/ingest/segment_reader.h"
#include "daemon/ingest/whole_segment.h"
#include "proto/wire/checkpoint_record.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/segment_builder.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/fuzz/rounds.h"

namespace nanwatch {
namespace {

// What one segment of this size may at most make of itself.
constexpr size_t kRecordsMax = 256 + wire::kFirstFindingsMax;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "segment_fuzz: %s\n", what);
  std::abort();
}

std::string PathFor(const uint8_t* data, size_t size) {
  static const TemporaryDirectory directory;
  const std::string path = directory / "nw-1-0.seg";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) Fail("cannot write the input");
  close(fd);
  return path;
}

// As the daemon goes through it: twice with a job that lives, once to its end.
void ReadAsDaemon(const std::string& path, FakeClock& clock) {
  Result<SegmentReader> reader = SegmentReader::Open(path, SegmentReader::Access::kConsume);
  if (!reader.ok()) return;
  (void)reader->WriterLives(clock);
  size_t records = 0;
  for (const bool to_end : {false, false, true}) {
    (void)reader->HasUrgentNews();
    Result<RunBatch> batch = reader->Read(to_end, clock);
    if (!batch.ok()) return;
    records += batch->records.size();
    if (batch->stats.size() > kSmallLayout.stats) Fail("more snapshots than the ring has entries");
    RunFacts facts;
    MergeInto(facts, *batch);
    std::string bytes;
    if (!facts.SerializeToString(&bytes)) Fail("what was read cannot be stored");
    if (!reader->Acknowledge(*batch).ok()) Fail("acknowledging failed");
    clock.Advance(2 * kHoleWaitNs);
  }
  if (records > 3 * kRecordsMax) Fail("more records than a segment of this size holds");
}

void TryOne(const uint8_t* data, size_t size) {
  FakeClock clock;
  const std::string path = PathFor(data, size);
  const Result<SegmentFacts> whole = ReadWhole(path, clock);
  if (whole.ok()) {
    (void)Diagnose({whole->facts});
    (void)ReportStats({whole->facts}, "job");
  }
  ReadAsDaemon(path, clock);
}

}  // namespace
}  // namespace nanwatch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nanwatch::TryOne(data, size);
  return 0;
}

namespace nanwatch {
namespace {

// Records that are valid as far as their kind and length go, some fields of which are numbers of
// names, sites and earlier records.
void WriteOneOfEachKind(SegmentBuilder& job) {
  wire::RingWriter ring(&job.ring(), reinterpret_cast<wire::Slot*>(&job.ring() + 1),
                        kSmallLayout.ring_slots);
  constexpr std::array<size_t, wire::kRecordKindMax> kBytes = {
      sizeof(wire::ValueRecord),      sizeof(wire::KillRecord),      sizeof(wire::PassRecord),
      sizeof(wire::UpdateRecord),     sizeof(wire::ScalerRecord),    sizeof(wire::EscapeRecord),
      sizeof(wire::CollectiveRecord), sizeof(wire::EndRecord),       sizeof(wire::LevelRecord),
      sizeof(wire::KernelsRecord),    sizeof(wire::CheckpointRecord)};
  for (uint16_t kind = 1; kind <= wire::kRecordKindMax; ++kind) {
    alignas(8) std::array<unsigned char, wire::kRecordBytesMax> record{};
    const size_t bytes = kBytes[kind - 1];
    for (size_t at = sizeof(wire::RecordHeader); at < bytes; at += 4) record[at] = at % 5;
    wire::RecordHeader header{};
    header.bytes = static_cast<decltype(header.bytes)>(bytes);
    header.kind = kind;
    header.ticket = 1'000u + kind;
    std::memcpy(record.data(), &header, sizeof header);
    (void)ring.Write(record.data(), bytes);
  }
}

std::vector<uint8_t> ValidSegment() {
  const TemporaryDirectory directory;
  SegmentBuilder job(directory.path(),
                     {.job = "fuzz", .ignore = "op=aten::log layer=a*; phase=forward"});
  for (int i = 0; i < 20; ++i)
    job.WriteValue("aten::op" + std::to_string(i % 7), "layer." + std::to_string(i));
  wire::LoaderSamples samples{};
  samples.of_batch = 8;
  samples.count = 2;
  samples.text_bytes = 8;
  std::memcpy(samples.text, "3\n'cat'\n", samples.text_bytes);
  job.WriteValueOfSamples("aten::div", samples);
  for (int i = 0; i < 80; ++i) job.WriteStep(i);
  for (int i = 0; i < 9; ++i) {
    wire::StatsParameter parameter{};
    parameter.numel = 64;
    parameter.dims = 2;
    parameter.flags = 0xffff;
    job.WriteStats({}, {parameter, parameter, parameter}, {"a.weight", "a.bias", "b"});
  }
  job.WriteTrail(1, {{"aten::mm", 3.0}, {"aten::exp", 1e30}});
  job.WriteKernels(2, {{"kernel<float>", 1'000}});
  WriteOneOfEachKind(job);
  job.LeaveHole(2);
  job.WriteReach(wire::Reach::kParameter, 3, "layer.3.weight");
  job.WriteEnd();
  job.Publish();
  return {job.bytes(), job.bytes() + job.size()};
}

// Places where a lie has consequences: the header with its directory, and the beginning of every
// section.
size_t PickPlace(const std::vector<uint8_t>& bytes, std::mt19937_64& random) {
  if (random() % 4 == 0) return random() % bytes.size();
  wire::SegmentHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const uint64_t section = random() % (header.section_count % wire::kSectionsMax + 1);
  const uint64_t base = section == 0 ? 0 : header.sections[section - 1].offset;
  return (base + random() % 768) % bytes.size();
}

void Spoil(std::vector<uint8_t>& bytes, std::mt19937_64& random) {
  constexpr std::array<uint64_t, 8> kNasty = {
      0, 1, 0x7f, 0xffff, 0x7fffffff, 0xffffffff, uint64_t{1} << 63, ~uint64_t{0}};
  for (uint64_t n = 1 + random() % 8; n > 0; --n) {
    const size_t at = PickPlace(bytes, random) / 4 * 4;
    const uint64_t value = random() % 2 == 0 ? kNasty[random() % kNasty.size()] : random();
    const size_t width = size_t{1} << (random() % 4);
    std::memcpy(bytes.data() + at, &value, std::min(width, bytes.size() - at));
  }
  if (random() % 16 == 0) bytes.resize(random() % bytes.size());
}

}  // namespace
}  // namespace nanwatch

#ifdef NANWATCH_LIBFUZZER

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

// A segment is mostly empty: what is changed is where something stands. `size_max` has room for one.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  static const std::vector<uint8_t> valid = nanwatch::ValidSegment();
  std::mt19937_64 random(seed);
  if (size < valid.size() && valid.size() <= size_max && random() % 8 != 0) {
    std::memcpy(data, valid.data(), valid.size());
    size = valid.size();
  }
  std::vector<uint8_t> bytes(data, data + size);
  if (bytes.size() < sizeof(nanwatch::wire::SegmentHeader)) {
    return LLVMFuzzerMutate(data, size, size_max);
  }
  if (random() % 2 == 0) {
    nanwatch::Spoil(bytes, random);
    std::memcpy(data, bytes.data(), bytes.size());
    return bytes.size();
  }
  constexpr size_t kWindow = 256;
  const size_t at = nanwatch::PickPlace(bytes, random);
  const size_t window = std::min(kWindow, size - at);
  LLVMFuzzerMutate(data + at, window, window);
  return size;
}

#else

namespace nanwatch {
namespace {

int Main(int argc, char** argv) {
  Rounds rounds{.count = 2'000};
  uint64_t only = ~uint64_t{0};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (rounds.Take(argc, argv, &i)) continue;
    if (word == "--only") {
      only = NumberBehind(argc, argv, &i);
    } else {
      std::ifstream file(word, std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(file)),
                                    std::istreambuf_iterator<char>());
      TryOne(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      return 0;
    }
  }
  rounds.Begin();
  const std::vector<uint8_t> valid = ValidSegment();
  TryOne(valid.data(), valid.size());
  for (uint64_t i = 0; i < rounds.count; ++i) {
    if (only != ~uint64_t{0} && i != only) continue;
    std::mt19937_64 random(rounds.seed * 1'000'003 + i);
    std::vector<uint8_t> bytes = valid;
    Spoil(bytes, random);
    TryOne(bytes.data(), bytes.size());
  }
  std::printf("%llu spoilt segments, seed %llu: none did harm\n",
              static_cast<unsigned long long>(rounds.count),
              static_cast<unsigned long long>(rounds.seed));
  return 0;
}

}  // namespace
}  // namespace nanwatch

int main(int argc, char** argv) { return nanwatch::Main(argc, argv); }
#endif
