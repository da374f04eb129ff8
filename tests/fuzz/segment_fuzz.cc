// SPDX-License-Identifier: Apache-2.0
// Whatever stands in a segment, the daemon neither crashes nor hangs nor fills up.
//
// Built by itself it makes its own inputs: a valid segment, spoilt at random places, `segment_fuzz
// --rounds N --seed S`; a number that fails can be repeated alone with `--only I`. With
// -fsanitize=fuzzer and NANWATCH_LIBFUZZER it is a libFuzzer target; files given as arguments are
// read once each.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

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
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/segment_builder.h"
#include "tests/fakes/temporary_directory.h"

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
  const Result<RunFacts> facts = ReadWhole(path, clock);
  if (facts.ok()) {
    (void)Diagnose({*facts});
    (void)ReportStats({*facts}, "job");
  }
  ReadAsDaemon(path, clock);
}

}  // namespace
}  // namespace nanwatch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nanwatch::TryOne(data, size);
  return 0;
}

#ifndef NANWATCH_LIBFUZZER
namespace nanwatch {
namespace {

std::vector<uint8_t> ValidSegment() {
  const TemporaryDirectory directory;
  SegmentBuilder job(directory.path(), {.job = "fuzz"});
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

int Main(int argc, char** argv) {
  uint64_t rounds = 2'000;
  uint64_t seed = 1;
  uint64_t only = ~uint64_t{0};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
    if (word == "--rounds") {
      rounds = number();
    } else if (word == "--seed") {
      seed = number();
    } else if (word == "--only") {
      only = number();
    } else {
      std::ifstream file(word, std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(file)),
                                    std::istreambuf_iterator<char>());
      TryOne(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      return 0;
    }
  }
  const std::vector<uint8_t> valid = ValidSegment();
  TryOne(valid.data(), valid.size());
  for (uint64_t i = 0; i < rounds; ++i) {
    if (only != ~uint64_t{0} && i != only) continue;
    std::mt19937_64 random(seed * 1'000'003 + i);
    std::vector<uint8_t> bytes = valid;
    Spoil(bytes, random);
    TryOne(bytes.data(), bytes.size());
  }
  std::printf("%llu spoilt segments, seed %llu: none did harm\n",
              static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(seed));
  return 0;
}

}  // namespace
}  // namespace nanwatch

int main(int argc, char** argv) { return nanwatch::Main(argc, argv); }
#endif
