// SPDX-License-Identifier: Apache-2.0
// Symbols and call slots of images: those of this program's own libraries, and of images that were
// made up, cut off, and filled with nonsense.
#include "tools/inject/elf_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "tests/tools/inject/false_memory.h"
#include "tools/inject/mapping.h"

namespace nanwatch {
namespace {

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
#else
constexpr uint16_t kMachine = EM_X86_64;
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
#endif

uint64_t Address(void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Where the library that holds `inside` begins in this process.
uint64_t BeginOf(void* inside) {
  Dl_info info;
  EXPECT_NE(dladdr(inside, &info), 0);
  return Address(info.dli_fbase);
}

class OwnImages : public ::testing::Test {
 protected:
  std::optional<ProcessMemory> memory_ = ProcessMemory::Open(getpid());
};

TEST_F(OwnImages, HaveTheFunctionsThatTheLoaderFinds) {
  ASSERT_TRUE(memory_.has_value());
  void* inside = dlsym(RTLD_DEFAULT, "getenv");
  const auto libc = ElfImage::At(*memory_, BeginOf(inside));
  ASSERT_TRUE(libc.has_value());
  for (const char* name : {"getenv", "open", "pthread_mutex_lock", "__errno_location", "qsort"}) {
    EXPECT_EQ(libc->Find(name), Address(dlsym(RTLD_DEFAULT, name))) << name;
  }
  EXPECT_EQ(libc->Find("no_such_function"), std::nullopt);
  EXPECT_EQ(libc->Find(""), std::nullopt);
  EXPECT_TRUE(libc->Holds(Address(inside)));
}

TEST_F(OwnImages, OfSeveralVersionsTheOneThatNewProgramsUse) {
  ASSERT_TRUE(memory_.has_value());
  void* wanted = dlsym(RTLD_DEFAULT, "pthread_cond_wait");  // two versions on x86-64
  const auto libc = ElfImage::At(*memory_, BeginOf(wanted));
  ASSERT_TRUE(libc.has_value());
  EXPECT_EQ(libc->Find("pthread_cond_wait"),
            Address(dlvsym(RTLD_DEFAULT, "pthread_cond_wait",
                           kMachine == EM_X86_64 ? "GLIBC_2.3.2" : "GLIBC_2.17")));
}

TEST_F(OwnImages, CallOthersThroughSlotsThatHoldTheirAddress) {
  ASSERT_TRUE(memory_.has_value());
  const auto self = ElfImage::At(*memory_, BeginOf(reinterpret_cast<void*>(&BeginOf)));
  ASSERT_TRUE(self.has_value());
  const std::vector<uint64_t> slots = self->SlotsOf("dlsym");
  ASSERT_FALSE(slots.empty());
  (void)dlsym(RTLD_DEFAULT, "getenv");  // resolved by now, however it is bound
  for (const uint64_t slot : slots)
    EXPECT_EQ(memory_->Get<uint64_t>(slot), Address(reinterpret_cast<void*>(&dlsym)));
  EXPECT_TRUE(self->SlotsOf("no_such_function").empty());
}

TEST_F(OwnImages, AreOnlyWhereOneIsMapped) {
  ASSERT_TRUE(memory_.has_value());
  EXPECT_FALSE(ElfImage::At(*memory_, 0).has_value());
  EXPECT_FALSE(ElfImage::At(*memory_, Address(&memory_)).has_value());
}

// A small library at 0x10000 with the function "found" and a slot for "called".
constexpr uint64_t kAt = 0x10000;
constexpr uint64_t kBytes = 0x1000;
constexpr uint64_t kDynamic = 0x200, kSymbols = 0x400, kStrings = 0x500, kHash = 0x600,
                   kJumps = 0x700, kSlot = 0x800, kFunction = 0x900;

FalseMemory MakeImage() {
  FalseMemory memory;
  memory.Add(kAt, kBytes);
  Elf64_Ehdr header = {};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = kMachine;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  EXPECT_TRUE(memory.Put(kAt, header));
  Elf64_Phdr load = {};
  load.p_type = PT_LOAD;
  load.p_memsz = kBytes;
  load.p_flags = PF_R | PF_X;
  Elf64_Phdr dynamic = {};
  dynamic.p_type = PT_DYNAMIC;
  dynamic.p_vaddr = kDynamic;
  dynamic.p_memsz = 0x100;
  EXPECT_TRUE(memory.Put(kAt + sizeof header, load));
  EXPECT_TRUE(memory.Put(kAt + sizeof header + sizeof load, dynamic));
  const std::pair<int64_t, uint64_t> entries[] = {
      {DT_SYMTAB, kSymbols}, {DT_STRTAB, kStrings}, {DT_STRSZ, 32},
      {DT_HASH, kHash},      {DT_JMPREL, kJumps},   {DT_PLTRELSZ, sizeof(Elf64_Rela)},
      {DT_PLTREL, DT_RELA},  {DT_NULL, 0}};
  for (size_t i = 0; i < std::size(entries); ++i) {
    EXPECT_TRUE(memory.Put(kAt + kDynamic + i * 16, entries[i].first));
    EXPECT_TRUE(memory.Put(kAt + kDynamic + i * 16 + 8, entries[i].second));
  }
  const char strings[] = "\0found\0called\0other";
  EXPECT_TRUE(memory.Write(kAt + kStrings, std::as_bytes(std::span(strings))));
  const Elf64_Sym found = {.st_name = 1,
                           .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                           .st_other = 0,
                           .st_shndx = 5,
                           .st_value = kFunction,
                           .st_size = 0};
  Elf64_Sym called = found;
  called.st_name = 7;
  called.st_shndx = SHN_UNDEF;
  EXPECT_TRUE(memory.Put(kAt + kSymbols + sizeof found, found));
  EXPECT_TRUE(memory.Put(kAt + kSymbols + 2 * sizeof found, called));
  // One bucket, which begins with 1; 1 goes on to 2.
  const uint32_t hash[] = {1, 3, 1, 0, 2, 0};
  EXPECT_TRUE(memory.Write(kAt + kHash, std::as_bytes(std::span(hash))));
  const Elf64_Rela jump = {
      .r_offset = kSlot, .r_info = ELF64_R_INFO(uint64_t{2}, kJumpSlot), .r_addend = 0};
  EXPECT_TRUE(memory.Put(kAt + kJumps, jump));
  return memory;
}

TEST(MadeUpImages, AreReadByTheOldHashToo) {
  const FalseMemory memory = MakeImage();
  const auto image = ElfImage::At(memory, kAt);
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(image->Find("found"), kAt + kFunction);
  EXPECT_EQ(image->Find("called"), std::nullopt) << "it is another's";
  EXPECT_EQ(image->SlotsOf("called"), std::vector<uint64_t>{kAt + kSlot});
  EXPECT_TRUE(image->SlotsOf("found").empty());
  ASSERT_EQ(image->segments().size(), 1u);
  EXPECT_TRUE(image->segments()[0].executable);
}

TEST(MadeUpImages, WithAChainThatRunsInACircleEnd) {
  FalseMemory memory = MakeImage();
  const uint32_t circle[] = {1, 3, 2, 0, 2, 2};
  ASSERT_TRUE(memory.Write(kAt + kHash, std::as_bytes(std::span(circle))));
  const auto image = ElfImage::At(memory, kAt);
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(image->Find("found"), std::nullopt);
}

TEST(MadeUpImages, NeverLeadOutOfThemselves) {
  FalseMemory memory = MakeImage();
  memory.Add(kAt + 0x100000, 0x1000);  // readable, and none of it
  Elf64_Sym symbol = *memory.Get<Elf64_Sym>(kAt + kSymbols + sizeof(Elf64_Sym));
  symbol.st_value = 0x100000;
  ASSERT_TRUE(memory.Put(kAt + kSymbols + sizeof symbol, symbol));
  Elf64_Rela jump = *memory.Get<Elf64_Rela>(kAt + kJumps);
  jump.r_offset = 0x100000;
  ASSERT_TRUE(memory.Put(kAt + kJumps, jump));
  const auto image = ElfImage::At(memory, kAt);
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(image->Find("found"), std::nullopt);
  EXPECT_TRUE(image->SlotsOf("called").empty());
}

TEST(MadeUpImages, OfAnotherProcessorOrClassAreNone) {
  FalseMemory memory = MakeImage();
  memory.piece(kAt)[EI_CLASS] = std::byte{ELFCLASS32};
  EXPECT_FALSE(ElfImage::At(memory, kAt).has_value());
  memory = MakeImage();
  memory.piece(kAt)[offsetof(Elf64_Ehdr, e_machine)] = std::byte{EM_SPARC};
  EXPECT_FALSE(ElfImage::At(memory, kAt).has_value());
}

// Asks for everything; that it comes back, without a fault, is all.
void Ask(const FalseMemory& memory) {
  const auto image = ElfImage::At(memory, kAt);
  if (!image) return;
  const auto found = image->Find("found");
  EXPECT_TRUE(!found || image->Holds(*found));
  for (const uint64_t slot : image->SlotsOf("called")) EXPECT_TRUE(image->Holds(slot));
}

TEST(MadeUpImages, CutOffAnywhereAreReadWithoutAFault) {
  const FalseMemory whole = MakeImage();
  for (size_t bytes = 0; bytes < 0xa00; bytes += 4) {
    FalseMemory memory = whole;
    memory.piece(kAt).resize(bytes);
    Ask(memory);
  }
}

TEST(MadeUpImages, WithNonsenseAnywhereAreReadWithoutAFault) {
  const FalseMemory whole = MakeImage();
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    FalseMemory memory = whole;
    for (int changes = 0; changes < 3; ++changes)
      memory.piece(kAt)[random() % 0xa00] =
          static_cast<std::byte>(random() % 4 == 0 ? 0xff : random());
    Ask(memory);
  }
}

}  // namespace
}  // namespace nanwatch
