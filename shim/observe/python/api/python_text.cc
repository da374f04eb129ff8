// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/api/python_text.h"

#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace nanwatch {
namespace {

// Before the characters: object head (16 bytes), length (8), hash (8), state (4, padded), and a
// pointer more up to 3.11. A string that is not ASCII adds the length and address of its UTF-8 form
// (and a length more up to 3.11).
constexpr int kLengthOffset = 16;
constexpr int kStateOffset = 32;
constexpr uint32_t kKindShift = 2;  // 1, 2 or 4 bytes a character
constexpr uint32_t kKindMask = 7;
constexpr uint32_t kCompactBit = 1U << 5;
constexpr uint32_t kAsciiBit = 1U << 6;

template <typename T>
T ReadAt(const void* base, ptrdiff_t offset) noexcept {
  T value;
  memcpy(&value, static_cast<const unsigned char*>(base) + offset, sizeof value);
  return value;
}

// Writes one character; the number of bytes, 0 when they do not fit.
size_t PutUtf8(uint32_t c, char* out, size_t room) noexcept {
  if (c < 0x80) {
    if (room < 1) return 0;
    out[0] = static_cast<char>(c);
    return 1;
  }
  const size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  if (room < length) return 0;
  for (size_t i = length - 1; i > 0; --i, c >>= 6) out[i] = static_cast<char>(0x80 | (c & 0x3F));
  static constexpr unsigned kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  out[0] = static_cast<char>(kLead[length] | c);
  return length;
}

uint32_t CharacterAt(const unsigned char* characters, uint32_t kind, size_t i) noexcept {
  if (kind == 1) return characters[i];
  if (kind == 2) return ReadAt<uint16_t>(characters, static_cast<ptrdiff_t>(2 * i));
  return ReadAt<uint32_t>(characters, static_cast<ptrdiff_t>(4 * i));
}

}  // namespace

bool PythonText::Prove(const PythonApi& api) noexcept {
  ascii_offset_ = api.minor <= 11 ? 48 : 40;
  compact_offset_ = api.minor <= 11 ? 72 : 56;
  for (const char* sample :
       {"model.py", "mod\xC3\xA8le.py", "\xE6\xA8\xA1\xE5\x9E\x8B.py", "\xF0\x9F\xA6\x86.py"}) {
    PyObj* text = api.PyUnicode_FromString(sample);
    char copy[32];
    const bool same = text != nullptr && Copy(text, copy, sizeof copy) == strlen(sample) &&
                      strcmp(copy, sample) == 0;
    if (text == nullptr) {
      api.PyErr_Clear();
    } else {
      api.Py_DecRef(text);
    }
    if (!same) {
      ascii_offset_ = compact_offset_ = -1;
      return false;
    }
  }
  return true;
}

size_t PythonText::Copy(const PyObj* text, char* out, size_t size) const noexcept {
  if (size == 0) return 0;
  out[0] = 0;
  if (text == nullptr || ascii_offset_ < 0) return 0;
  const uint32_t state = ReadAt<uint32_t>(text, kStateOffset);
  const uint32_t kind = (state >> kKindShift) & kKindMask;
  if ((state & kCompactBit) == 0 || (kind != 1 && kind != 2 && kind != 4)) return 0;
  const int offset = (state & kAsciiBit) != 0 ? ascii_offset_ : compact_offset_;
  const unsigned char* characters = reinterpret_cast<const unsigned char*>(text) + offset;
  const auto count = static_cast<size_t>(ReadAt<intptr_t>(text, kLengthOffset));
  size_t written = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t more =
        PutUtf8(CharacterAt(characters, kind, i), out + written, size - 1 - written);
    if (more == 0) break;
    written += more;
  }
  out[written] = 0;
  return written;
}

}  // namespace nanwatch
