// SPDX-License-Identifier: Apache-2.0
#include "tools/inject/elf_image.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace nanwatch {
namespace {

constexpr int kSegmentsMax = 64;
constexpr uint64_t kDynamicBytesMax = 1 << 16;
constexpr uint64_t kTableBytesMax = 64 << 20;
constexpr uint32_t kSymbolsMax = 1 << 22;
constexpr uint16_t kHiddenVersion = 0x8000;
constexpr uint64_t kReadAtOnce = 1 << 16;

uint32_t GnuHash(std::string_view name) {
  uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

uint32_t SystemVHash(std::string_view name) {
  uint32_t hash = 0;
  for (const char c : name) {
    hash = (hash << 4) + static_cast<unsigned char>(c);
    const uint32_t high = hash & 0xf0000000;
    hash = (hash ^ (high >> 24)) & ~high;
  }
  return hash;
}

// Whether the loader fills the place with the address of the function alone.
bool IsCallSlot(uint32_t type, uint16_t machine) {
  if (machine == EM_X86_64) return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
  return machine == EM_AARCH64 && (type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT);
}

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_X86_64;
#endif

}  // namespace

std::optional<ElfImage> ElfImage::At(const TargetMemory& memory, uint64_t at) {
  ElfImage image(memory);
  if (!image.ReadSegments(at) || !image.ReadDynamic()) return std::nullopt;
  return image;
}

bool ElfImage::ReadSegments(uint64_t at) {
  const auto header = memory_->Get<Elf64_Ehdr>(at);
  if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != kMachine) return false;
  if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > kSegmentsMax) return false;
  std::vector<Elf64_Phdr> parts(header->e_phnum);
  if (!memory_->Read(at + header->e_phoff, std::as_writable_bytes(std::span(parts)))) return false;
  const auto first = std::find_if(parts.begin(), parts.end(),
                                  [](const Elf64_Phdr& part) { return part.p_type == PT_LOAD; });
  if (first == parts.end()) return false;
  bias_ = at - (first->p_vaddr - first->p_offset);
  for (const Elf64_Phdr& part : parts) {
    const uint64_t begin = bias_ + part.p_vaddr;
    if (part.p_type == PT_LOAD && begin + part.p_memsz > begin) {
      segments_.push_back({.begin = begin,
                           .end = begin + part.p_memsz,
                           .writable = (part.p_flags & PF_W) != 0,
                           .executable = (part.p_flags & PF_X) != 0});
    } else if (part.p_type == PT_DYNAMIC) {
      dynamic_ = begin;
      dynamic_bytes_ = std::min(part.p_memsz, kDynamicBytesMax);
    }
  }
  return dynamic_ != 0;
}

bool ElfImage::ReadDynamic() {
  std::vector<Elf64_Dyn> entries(dynamic_bytes_ / sizeof(Elf64_Dyn));
  if (!memory_->Read(dynamic_, std::as_writable_bytes(std::span(entries)))) return false;
  // glibc replaces most addresses by those in memory, but not on every processor.
  const auto address = [this](uint64_t value) {
    return Holds(value) ? value : Holds(value + bias_) ? value + bias_ : 0;
  };
  using Member = std::pair<Elf64_Sxword, uint64_t ElfImage::*>;
  static constexpr Member kTables[] = {
      {DT_SYMTAB, &ElfImage::symbols_},  {DT_STRTAB, &ElfImage::strings_},
      {DT_VERSYM, &ElfImage::versions_}, {DT_GNU_HASH, &ElfImage::gnu_hash_},
      {DT_HASH, &ElfImage::hash_},       {DT_JMPREL, &ElfImage::jump_slots_},
      {DT_RELA, &ElfImage::relocations_}};
  static constexpr Member kSizes[] = {{DT_STRSZ, &ElfImage::strings_bytes_},
                                      {DT_PLTRELSZ, &ElfImage::jump_slots_bytes_},
                                      {DT_RELASZ, &ElfImage::relocations_bytes_}};
  bool adds_constants = true;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_NULL) break;
    const uint64_t value = entry.d_un.d_val;
    if (entry.d_tag == DT_PLTREL) adds_constants = value == DT_RELA;
    for (const auto& [tag, table] : kTables) {
      if (tag == entry.d_tag) this->*table = address(value);
    }
    for (const auto& [tag, bytes] : kSizes) {
      if (tag == entry.d_tag) this->*bytes = std::min(value, kTableBytesMax);
    }
  }
  return symbols_ != 0 && strings_ != 0 && adds_constants;
}

bool ElfImage::Holds(uint64_t address) const {
  return std::any_of(segments_.begin(), segments_.end(), [address](const ElfSegment& segment) {
    return address >= segment.begin && address < segment.end;
  });
}

bool ElfImage::IsNamed(uint32_t name, std::string_view wanted) const {
  if (name + uint64_t{wanted.size()} + 1 > strings_bytes_) return false;
  std::string text(wanted.size() + 1, '\1');
  return memory_->Read(strings_ + name, std::as_writable_bytes(std::span(text))) &&
         text.back() == '\0' && std::string_view(text).substr(0, wanted.size()) == wanted;
}

template <typename Take>
void ElfImage::EachOfHash(std::string_view name, const Take& take) const {
  if (gnu_hash_ != 0) {
    struct {
      uint32_t buckets, first, bloom_words, bloom_shift;
    } header;
    if (!memory_->Read(gnu_hash_, std::as_writable_bytes(std::span(&header, 1)))) return;
    if (header.buckets == 0) return;
    const uint32_t hash = GnuHash(name);
    const uint64_t buckets = gnu_hash_ + sizeof header + uint64_t{header.bloom_words} * 8;
    const uint64_t chains = buckets + uint64_t{header.buckets} * 4;
    const auto begin = memory_->Get<uint32_t>(buckets + uint64_t{hash % header.buckets} * 4);
    if (!begin || *begin < header.first) return;
    for (uint32_t index = *begin; index < kSymbolsMax; ++index) {
      const auto link = memory_->Get<uint32_t>(chains + uint64_t{index - header.first} * 4);
      if (!link || ((*link | 1) == (hash | 1) && take(index)) || (*link & 1) != 0) return;
    }
  } else if (hash_ != 0) {
    struct {
      uint32_t buckets, chains;
    } header;
    if (!memory_->Read(hash_, std::as_writable_bytes(std::span(&header, 1)))) return;
    if (header.buckets == 0) return;
    const uint64_t buckets = hash_ + sizeof header;
    const uint64_t chains = buckets + uint64_t{header.buckets} * 4;
    auto index = memory_->Get<uint32_t>(buckets + uint64_t{SystemVHash(name) % header.buckets} * 4);
    // A chain that runs in a circle ends too.
    for (uint32_t steps = 0; index && *index != 0 && steps < header.chains; ++steps) {
      if (*index >= kSymbolsMax || take(*index)) return;
      index = memory_->Get<uint32_t>(chains + uint64_t{*index} * 4);
    }
  }
}

std::optional<uint64_t> ElfImage::Find(std::string_view function) const {
  std::optional<uint64_t> found;
  EachOfHash(function, [&](uint32_t index) {
    const auto symbol = memory_->Get<Elf64_Sym>(symbols_ + uint64_t{index} * sizeof(Elf64_Sym));
    if (!symbol || symbol->st_shndx == SHN_UNDEF || !IsNamed(symbol->st_name, function))
      return !symbol;
    if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !Holds(bias_ + symbol->st_value))
      return false;
    found = bias_ + symbol->st_value;
    const auto version =
        versions_ == 0 ? 0 : memory_->Get<uint16_t>(versions_ + uint64_t{index} * 2).value_or(0);
    return (version & kHiddenVersion) == 0;
  });
  return found;
}

std::vector<uint64_t> ElfImage::SlotsOf(std::string_view function) const {
  std::vector<uint64_t> slots;
  AddSlots(jump_slots_, jump_slots_bytes_, function, slots);
  AddSlots(relocations_, relocations_bytes_, function, slots);
  // Some linkers count the one table to the other.
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

void ElfImage::AddSlots(uint64_t table, uint64_t bytes, std::string_view function,
                        std::vector<uint64_t>& slots) const {
  if (table == 0) return;
  std::vector<Elf64_Rela> some(kReadAtOnce / sizeof(Elf64_Rela));
  uint64_t left = bytes / sizeof(Elf64_Rela);
  while (left > 0) {
    some.resize(std::min<uint64_t>(some.size(), left));
    if (!memory_->Read(table, std::as_writable_bytes(std::span(some)))) return;
    table += some.size() * sizeof(Elf64_Rela);
    left -= some.size();
    for (const Elf64_Rela& entry : some) {
      const uint64_t slot = bias_ + entry.r_offset;
      if (!IsCallSlot(ELF64_R_TYPE(entry.r_info), kMachine) || slot % 8 != 0 || !Holds(slot))
        continue;
      const auto symbol = memory_->Get<Elf64_Sym>(symbols_ + uint64_t{ELF64_R_SYM(entry.r_info)} *
                                                                 sizeof(Elf64_Sym));
      if (symbol && IsNamed(symbol->st_name, function)) slots.push_back(slot);
    }
  }
}

}  // namespace nanwatch
