// SPDX-License-Identifier: Apache-2.0
// Which bytes of a process are taken for ours, and which never are.
#include "tools/inject/room.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/tools/inject/false_memory.h"

namespace nanwatch {
namespace {

constexpr uint64_t kCode = 0x10000, kData = 0x20000;

// A library with a page of code, of which 0x900 bytes are used, and a page of data, of which 0x800.
class OneLibrary : public ::testing::Test {
 protected:
  OneLibrary() {
    page_ = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    memory_.Add(kCode, page_);
    memory_.Add(kData, page_);
    Elf64_Ehdr header = {};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
#if defined(__aarch64__)
    header.e_machine = EM_AARCH64;
#else
    header.e_machine = EM_X86_64;
#endif
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 3;
    EXPECT_TRUE(memory_.Put(kCode, header));
    const auto part = [](uint32_t type, uint32_t flags, uint64_t at, uint64_t bytes) {
      Elf64_Phdr phdr = {};
      phdr.p_type = type;
      phdr.p_flags = flags;
      phdr.p_vaddr = phdr.p_offset = at;
      phdr.p_memsz = bytes;
      return phdr;
    };
    const Elf64_Phdr parts[] = {part(PT_LOAD, PF_R | PF_X, 0, 0x900),
                                part(PT_LOAD, PF_R | PF_W, kData - kCode, 0x800),
                                part(PT_DYNAMIC, PF_R, 0x200, 0x40)};
    EXPECT_TRUE(memory_.Write(kCode + sizeof header, std::as_bytes(std::span(parts))));
    const uint64_t dynamic[] = {DT_SYMTAB, 0x300, DT_STRTAB, 0x400, DT_NULL, 0};
    EXPECT_TRUE(memory_.Write(kCode + 0x200, std::as_bytes(std::span(dynamic))));
    Mapping code;
    code.begin = kCode;
    code.end = kCode + page_;
    code.readable = code.executable = true;
    Mapping data;
    data.begin = kData;
    data.end = kData + page_;
    data.readable = data.writable = true;
    mappings_ = {code, data};
  }

  Room MakeRoom(bool may_hold_data = true) {
    const auto image = ElfImage::At(memory_, kCode);
    EXPECT_TRUE(image.has_value());
    Room room(memory_);
    room.Add(*image, mappings_, may_hold_data);
    return room;
  }

  uint64_t page_ = 0;
  FalseMemory memory_;
  Mappings mappings_;
};

TEST_F(OneLibrary, HasRoomBehindItsSegments) {
  Room room = MakeRoom();
  EXPECT_EQ(room.Take(100, Room::Use::kCode), kCode + 0x900);
  EXPECT_EQ(room.Take(100, Room::Use::kData), kData + 0x800);
  const auto text = room.Take(10, Room::Use::kText);
  ASSERT_TRUE(text.has_value());
  EXPECT_GT(*text, kCode + 0x900 + 100);
  EXPECT_LT(*text, kCode + page_);
}

TEST_F(OneLibrary, HasNoMoreThanThePage) {
  Room room = MakeRoom();
  EXPECT_EQ(room.Take(page_, Room::Use::kCode), std::nullopt);
  size_t pieces = 0;
  while (room.Take(64, Room::Use::kData)) ++pieces;
  EXPECT_GT(pieces, 0u);
  EXPECT_LE(pieces * 64, page_ - 0x800);
}

TEST_F(OneLibrary, KeepsWhatIsNotZero) {
  memory_.piece(kCode)[0xa07] = std::byte{1};
  EXPECT_EQ(MakeRoom().Take(100, Room::Use::kCode), kCode + 0xa10);
  memory_.piece(kCode)[page_ - 1] = std::byte{1};
  EXPECT_EQ(MakeRoom().Take(1, Room::Use::kCode), std::nullopt);
}

TEST_F(OneLibrary, GivesNoPieceToTheNextToolThatAnEarlierOneHasEvenWhenItIsAllZeros) {
  const auto first = MakeRoom().Take(100, Room::Use::kData);
  const auto second = MakeRoom().Take(100, Room::Use::kData);
  ASSERT_TRUE(first && second);
  EXPECT_GE(*second, *first + 100);
}

TEST_F(OneLibrary, FindsCodeOfAnEarlierTool) {
  constexpr uint64_t kMark = 0x1122334455667788;
  const uint64_t code[] = {kMark, 1, 2};
  const auto placed = MakeRoom().Place(std::as_bytes(std::span(code)), Room::Use::kCode);
  ASSERT_TRUE(placed.has_value());
  EXPECT_EQ(MakeRoom().Marked(kMark), std::vector<uint64_t>{*placed});
  EXPECT_TRUE(MakeRoom().Marked(kMark + 1).empty());
}

TEST_F(OneLibrary, HasNoDataWhereTheHeapOrTheLoaderMayBegin) {
  EXPECT_EQ(MakeRoom(false).Take(8, Room::Use::kData), std::nullopt);
  EXPECT_TRUE(MakeRoom(false).Take(8, Room::Use::kCode).has_value());
}

TEST_F(OneLibrary, HasNoDataWhereTheLoaderMadeItReadOnly) {
  mappings_[1].writable = false;
  EXPECT_EQ(MakeRoom().Take(8, Room::Use::kData), std::nullopt);
}

TEST_F(OneLibrary, HasNoRoomWhereNothingIsMapped) {
  mappings_.clear();
  EXPECT_EQ(MakeRoom().Take(8, Room::Use::kCode), std::nullopt);
}

}  // namespace
}  // namespace nanwatch
