// SPDX-License-Identifier: Apache-2.0
// Whatever stands in one section of a segment, its reader ends, stays inside, and gives what its
// contract says: ring, names, sites, steps, snapshots, first findings, live block. A libFuzzer
// target, much faster than segment_fuzz, which reads whole files.
//
// The first byte says which section, the second how much its writer writes; each further ten bytes
// are a place and the word that is written over it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/wire/first_findings.h"
#include "proto/wire/live_block.h"
#include "proto/wire/name_table.h"
#include "proto/wire/ring.h"
#include "proto/wire/site_table.h"
#include "proto/wire/stats_ring.h"
#include "proto/wire/step_ring.h"
#include "proto/wire/text.h"
#include "tests/fuzz/expect.h"

namespace nanwatch::wire {
namespace {

constexpr uint64_t kSlots = 16;
constexpr uint64_t kEntries = 8;
constexpr uint32_t kNames = 8;
constexpr uint32_t kNameBytes = 96;
constexpr uint32_t kSites = 6;

// Memory of exactly so many bytes, aligned as in a segment and zero: the sanitizer sees one more.
class Section {
 public:
  explicit Section(size_t bytes) : bytes_(bytes), memory_(Allocate(bytes)) {}
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;
  ~Section() { operator delete[](memory_, kAlign); }

  template <typename T>
  [[nodiscard]] T* As() const {
    return reinterpret_cast<T*>(memory_);
  }
  [[nodiscard]] size_t bytes() const { return bytes_; }

  void Spoil(std::span<const uint8_t> patches) {
    for (; patches.size() >= 10; patches = patches.subspan(10)) {
      uint16_t place = 0;
      std::memcpy(&place, patches.data(), sizeof place);
      const size_t at = place % bytes_ / 4 * 4;
      std::memcpy(memory_ + at, patches.data() + 2, std::min<size_t>(8, bytes_ - at));
    }
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  // Apart, or GCC warns of what the readers refuse to do.
  [[gnu::noinline]] static unsigned char* Allocate(size_t bytes) {
    return new (kAlign) unsigned char[bytes]();
  }
  size_t bytes_;
  unsigned char* memory_;
};

void TryRing(uint8_t writes, std::span<const uint8_t> patches) {
  Section section(sizeof(RingHeader) + kSlots * sizeof(Slot));
  auto* header = section.As<RingHeader>();
  RingWriter writer(header, reinterpret_cast<Slot*>(header + 1), kSlots);
  for (uint8_t i = 0; i < writes % 32; ++i) {
    alignas(8) std::array<unsigned char, kRecordBytesMax> record{};
    RecordHeader head{};
    head.bytes = static_cast<uint16_t>(sizeof head + i * 8 % 180);
    head.kind = static_cast<uint16_t>(1 + i % kRecordKindMax);
    std::memcpy(record.data(), &head, sizeof head);
    (void)writer.Write(record.data(), head.bytes);
    if (i % 3 == 0) ReleaseSlots(*header, header->reserved_slots.load() / 2);
  }
  section.Spoil(patches);
  for (const Holes holes : {Holes::kWait, Holes::kSkip}) {
    std::optional<RingReader> reader = RingReader::Open(header, section.bytes());
    if (!reader) return;
    Expect(reader->capacity() <= kSlots);
    RecordCopy copy;
    uint64_t reads = 0;
    for (RingRead read = reader->Read(copy, holes);
         read == RingRead::kRecord || read == RingRead::kMalformed;
         read = reader->Read(copy, holes)) {
      Expect(++reads <= 2 * kSlots + 2);
      if (read != RingRead::kRecord) continue;
      Expect(copy.header().bytes >= sizeof(RecordHeader));
      Expect(copy.header().bytes <= kRecordBytesMax);
      Expect(copy.header().kind != 0 && copy.header().kind <= kRecordKindMax);
    }
    ReleaseSlots(*header, reader->cursor());
  }
  (void)writer.Write(section.As<char>(), 40);  // a writer in memory that somebody else spoils
}

void TryNames(uint8_t writes, std::span<const uint8_t> patches) {
  Section section(sizeof(NameTableHeader) + kNames * sizeof(NameEntry) + kNameBytes);
  NameWriter writer(section.As<NameTableHeader>(), kNames, kNameBytes);
  for (uint8_t i = 0; i < writes % 16; ++i) (void)writer.Intern(std::string(1 + i % 9, 'a' + i));
  section.Spoil(patches);
  const auto reader = NameReader::Open(section.As<char>(), section.bytes());
  if (!reader) return;
  Expect(reader->Count() <= kNames + kNameBytes);
  for (uint32_t id = 0; id < 2 * kNames; ++id) {
    const std::string name = reader->Get(id);
    Expect(CleanText(name, name.size()) == name);
  }
  (void)reader->Get(0u - 1 - writes);
  (void)writer.Intern("after");
}

void TrySites(uint8_t writes, std::span<const uint8_t> patches) {
  Section section(sizeof(SiteTableHeader) + kSites * sizeof(SiteEntry));
  SiteWriter writer(section.As<SiteTableHeader>(), kSites);
  for (uint8_t i = 0; i < writes % 8; ++i) {
    bool is_new = false;
    const uint32_t site = writer.Intern(
        {.op = i}, [] { return 1u; }, &is_new);
    writer.Count(site, i, {});
  }
  section.Spoil(patches);
  const auto reader = SiteReader::Open(section.As<char>(), section.bytes());
  if (!reader) return;
  Expect(reader->Count() <= kSites);
  for (uint32_t id = 0; id < 2 * kSites; ++id) (void)reader->Get(id);
  (void)reader->Get(0u - 1 - writes);
  writer.Count(1 + writes % kSites, 1, {});
}

void TrySteps(uint8_t writes, std::span<const uint8_t> patches) {
  Section section(sizeof(StepRingHeader) + kEntries * sizeof(StepEntry));
  StepWriter writer(section.As<StepRingHeader>(), kEntries);
  for (uint8_t i = 0; i < writes % 32; ++i) writer.Publish(StepEntry{});
  section.Spoil(patches);
  std::optional<StepReader> reader =
      StepReader::Open(section.As<char>(), section.bytes(), writes / 32);
  if (!reader) return;
  StepEntry entry{};
  uint64_t reads = 0;
  while (reader->Read(entry)) Expect(++reads <= kEntries);
  (void)reader->ReadAt(~uint64_t{0}, entry);
}

void TryStats(uint8_t writes, std::span<const uint8_t> patches) {
  constexpr uint64_t kCapacity = 32;
  Section section(sizeof(StepRingHeader) + kCapacity * sizeof(StatsEntry));
  StatsWriter writer(section.As<StepRingHeader>(), kCapacity);
  for (uint8_t i = 0; i < writes % 12; ++i) {
    const std::vector<StatsParameter> parameters(i % 4);
    const std::vector<StatsLayer> layers(i % 3);
    writer.Publish({}, parameters, layers, i);
  }
  section.Spoil(patches);
  std::optional<StatsReader> reader = StatsReader::Open(section.As<char>(), section.bytes());
  if (!reader) return;
  StatsCopy copy;
  uint64_t reads = 0;
  while (reader->Read(copy)) {
    Expect(++reads <= kCapacity);
    Expect(copy.parameters.size() + copy.layers.size() <= kCapacity);
  }
}

void TryFirst(std::span<const uint8_t> patches) {
  Section findings(sizeof(FirstFinding));
  findings.As<FirstFinding>()->state.store(kEntryComplete);
  findings.Spoil(patches);
  RecordCopy copy;
  if (ReadFirstFinding(*findings.As<FirstFinding>(), copy))
    Expect(copy.header().bytes <= kRecordBytesMax);
  Section reach(sizeof(FirstReach));
  reach.As<FirstReach>()->state.store(kEntryComplete);
  reach.Spoil(patches);
  (void)ReadFirstReach(*reach.As<FirstReach>());
}

void TryLive(uint8_t writes, std::span<const uint8_t> patches) {
  Section section(sizeof(LiveBlock));
  LiveWriter writer(section.As<LiveBlock>());
  for (uint8_t i = 0; i < writes % 4; ++i) writer.Publish({}, i);
  section.Spoil(patches);
  (void)ReadLive(*section.As<LiveBlock>());
}

}  // namespace
}  // namespace nanwatch::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nanwatch::wire;
  if (size < 2) return 0;
  const uint8_t writes = data[1];
  const std::span<const uint8_t> patches(data + 2, size - 2);
  switch (data[0] % 7) {
    case 0:
      TryRing(writes, patches);
      break;
    case 1:
      TryNames(writes, patches);
      break;
    case 2:
      TrySites(writes, patches);
      break;
    case 3:
      TrySteps(writes, patches);
      break;
    case 4:
      TryStats(writes, patches);
      break;
    case 5:
      TryFirst(patches);
      break;
    default:
      TryLive(writes, patches);
  }
  return 0;
}
