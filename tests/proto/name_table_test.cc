// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/name_table.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

class NameTable : public testing::Test {
 protected:
  static constexpr uint32_t kNames = 100;
  static constexpr uint32_t kBytes = 1024;
  NameTableHeader* header() { return memory_.as<NameTableHeader>(); }
  NameEntry* entries() { return reinterpret_cast<NameEntry*>(header() + 1); }
  NameReader Reader() { return *NameReader::Open(header(), memory_.bytes()); }

  SharedMemory memory_{NameTableBytes(kNames, kBytes)};
  NameWriter writer_{header(), kNames, kBytes};
};

TEST_F(NameTable, GivesTheSameNumberForTheSameNameAndItsTextBack) {
  const uint32_t mm = writer_.Intern("aten::mm");
  const uint32_t add = writer_.Intern("aten::add");
  EXPECT_EQ(mm, 1u);
  EXPECT_EQ(add, 2u);
  EXPECT_EQ(writer_.Intern(std::string("aten::") + "mm"), mm);
  const NameReader reader = Reader();
  EXPECT_EQ(reader.Get(mm), "aten::mm");
  EXPECT_EQ(reader.Get(add), "aten::add");
  EXPECT_EQ(reader.Count(), 2u);
}

TEST_F(NameTable, HasNoNumberForTheEmptyNameAndNoTextForUnknownNumbers) {
  EXPECT_EQ(writer_.Intern(""), 0u);
  const NameReader reader = Reader();
  for (const uint32_t id : {0u, 1u, kNames, kNames + 1, ~0u}) EXPECT_EQ(reader.Get(id), "");
}

TEST_F(NameTable, TakesAsManyNamesAsItHasEntriesAndStillKnowsThemWhenFull) {
  for (uint32_t i = 0; i < kNames; ++i) {
    ASSERT_EQ(writer_.Intern("n" + std::to_string(i)), i + 1);
  }
  EXPECT_EQ(writer_.Intern("one too many"), 0u);
  EXPECT_EQ(writer_.Intern("n57"), 58u);
  EXPECT_EQ(Reader().Get(kNames), "n99");
  EXPECT_EQ(Reader().Count(), kNames);
}

TEST_F(NameTable, TakesNoMoreTextThanItHasRoomForButAShorterNameStillFits) {
  ASSERT_NE(writer_.Intern(std::string(512, 'a')), 0u);
  ASSERT_NE(writer_.Intern(std::string(500, 'b')), 0u);
  EXPECT_EQ(writer_.Intern(std::string(13, 'c')), 0u);
  const uint32_t last = writer_.Intern(std::string(12, 'd'));
  EXPECT_EQ(Reader().Get(last), std::string(12, 'd'));
  EXPECT_EQ(writer_.Intern("e"), 0u);
}

TEST_F(NameTable, CutsLongNamesBetweenCharacters) {
  const std::string long_name = std::string(511, 'x') + "ü and more";
  const uint32_t id = writer_.Intern(long_name);
  EXPECT_EQ(Reader().Get(id), std::string(511, 'x'));
  EXPECT_EQ(writer_.Intern(std::string(511, 'x')), id);
}

TEST_F(NameTable, ReaderCleansWhatItGives) {
  const uint32_t id = writer_.Intern("layer\x1b[31m\n\xff");
  EXPECT_EQ(Reader().Get(id), "layer\xef\xbf\xbd[31m\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_F(NameTable, ReaderGivesNothingForEntriesThatCannotBeTrue) {
  const uint32_t id = writer_.Intern("aten::mm");
  const NameReader reader = Reader();
  entries()[id - 1].offset = kBytes;
  EXPECT_EQ(reader.Get(id), "");
  entries()[id - 1].offset = ~0u;
  EXPECT_EQ(reader.Get(id), "");
  entries()[id - 1].offset = kBytes - 7;
  EXPECT_EQ(reader.Get(id), "");
  entries()[id - 1].offset = kBytes - 8;
  EXPECT_EQ(reader.Get(id).size(), 24u) << "eight zero bytes, each replaced";
  entries()[id - 1].offset = 0;
  entries()[id - 1].length_plus_one = ~0u;
  EXPECT_LE(reader.Get(id).size(), kTextBytesMax);
  header()->count = ~0u;
  EXPECT_EQ(reader.Count(), kNames);
}

TEST_F(NameTable, IsNotOpenedWhenItsHeaderDoesNotFitTheSection) {
  EXPECT_FALSE(NameReader::Open(header(), memory_.bytes() - 1).has_value());
  EXPECT_FALSE(NameReader::Open(header(), sizeof(NameTableHeader) - 1).has_value());
  header()->capacity = ~0u;
  EXPECT_FALSE(NameReader::Open(header(), memory_.bytes()).has_value());
  header()->capacity = kNames;
  header()->bytes_capacity = ~0u;
  EXPECT_FALSE(NameReader::Open(header(), memory_.bytes()).has_value());
}

TEST_F(NameTable, ThreadsThatMeetTheSameNamesAgreeOnTheirNumbers) {
  constexpr uint32_t kThreads = 4;
  uint32_t ids[kThreads][kNames];
  std::vector<std::thread> threads;
  for (auto& own : ids) {
    threads.emplace_back([this, &own, &ids] {
      for (uint32_t i = 0; i < kNames; ++i) {
        const uint32_t name = (i * 7 + static_cast<uint32_t>(&own - ids) * 13) % kNames;
        own[name] = writer_.Intern("name" + std::to_string(name));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 0; i < kNames; ++i) {
    for (const auto& own : ids) {
      ASSERT_EQ(own[i], ids[0][i]);
      EXPECT_EQ(Reader().Get(own[i]), "name" + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace nanwatch::wire
