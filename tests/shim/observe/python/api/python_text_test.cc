// SPDX-License-Identifier: Apache-2.0
// Strings laid out as CPython lays them out, without a Python.
#include "shim/observe/python/api/python_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace nanwatch {
namespace {

// How a str of 3.10 to 3.14 lies in memory: the head, then the length, the hash and the state;
// characters follow at `ascii` or `compact`.
struct StrLayout {
  size_t ascii;
  size_t compact;
};
constexpr StrLayout kUpTo311 = {48, 72};
constexpr StrLayout kFrom312 = {40, 56};

StrLayout made_layout;  // of what the functions below make
int strings_alive = 0;

std::vector<uint32_t> Decode(const char* utf8) {
  std::vector<uint32_t> characters;
  for (const auto* at = reinterpret_cast<const unsigned char*>(utf8); *at != 0;) {
    const int length = *at < 0x80 ? 1 : *at < 0xE0 ? 2 : *at < 0xF0 ? 3 : 4;
    uint32_t character = length == 1 ? *at : *at & (0xFFu >> (length + 1));
    for (int i = 1; i < length; ++i) character = character << 6 | (at[i] & 0x3Fu);
    characters.push_back(character);
    at += length;
  }
  return characters;
}

// Owned by the caller, as a new reference is.
PyObj* MakeStr(const char* utf8) {
  const std::vector<uint32_t> characters = Decode(utf8);
  uint32_t widest = 0;
  for (const uint32_t character : characters) widest = std::max(widest, character);
  const bool ascii = widest < 0x80;
  const uint32_t kind = widest < 0x100 ? 1 : widest < 0x10000 ? 2 : 4;
  const size_t offset = ascii ? made_layout.ascii : made_layout.compact;
  auto* memory = static_cast<unsigned char*>(calloc(1, 256));
  const auto length = static_cast<intptr_t>(characters.size());
  const uint32_t state = kind << 2 | 1u << 5 | (ascii ? 1u << 6 : 0);
  memcpy(memory + 16, &length, sizeof length);
  memcpy(memory + 32, &state, sizeof state);
  for (size_t i = 0; i < characters.size(); ++i) {
    memcpy(memory + offset + i * kind, &characters[i], kind);
  }
  ++strings_alive;
  return reinterpret_cast<PyObj*>(memory);
}

class PythonTextTest : public testing::Test {
 protected:
  void SetUp() override {
    made_layout = kFrom312;
    strings_alive = 0;
    api_.minor = 12;
    api_.PyUnicode_FromString = &MakeStr;
    api_.Py_DecRef = [](PyObj* object) {
      --strings_alive;
      free(object);
    };
    api_.PyErr_Clear = [] {};
  }
  // What is copied of it into so much room, and that this is what the length says.
  std::string Copied(const char* utf8, size_t room = 64) {
    PyObj* text = MakeStr(utf8);
    char out[64];
    memset(out, '?', sizeof out);
    const size_t length = text_.Copy(text, out, room);
    api_.Py_DecRef(text);
    EXPECT_EQ(length, strlen(out));
    if (room < sizeof out) {
      EXPECT_EQ(out[room], '?') << "written beyond its room";
    }
    return out;
  }

  PythonApi api_;
  PythonText text_;
};

TEST_F(PythonTextTest, ReadsNothingBeforeTheLayoutIsProven) { EXPECT_EQ(Copied("model.py"), ""); }

TEST_F(PythonTextTest, KnowsTheLayoutOfEachVersion) {
  for (const int minor : {10, 11, 12, 13, 14}) {
    api_.minor = minor;
    made_layout = minor <= 11 ? kUpTo311 : kFrom312;
    ASSERT_TRUE(text_.Prove(api_)) << minor;
    EXPECT_EQ(Copied("train.py"), "train.py");
    EXPECT_EQ(Copied("caf\xC3\xA9"), "caf\xC3\xA9");
  }
}

TEST_F(PythonTextTest, ReadsNothingOfAPythonThatIsLaidOutOtherwise) {
  made_layout = kUpTo311;  // and says that it is 3.12
  EXPECT_FALSE(text_.Prove(api_));
  EXPECT_EQ(Copied("model.py"), "");
}

TEST_F(PythonTextTest, ReadsNothingAnyMoreOnceAProofHasFailed) {
  ASSERT_TRUE(text_.Prove(api_));
  made_layout = kUpTo311;
  EXPECT_FALSE(text_.Prove(api_));
  made_layout = kFrom312;
  EXPECT_EQ(Copied("model.py"), "");
}

TEST_F(PythonTextTest, OneWrongWidthIsEnoughToFailTheProof) {
  made_layout.compact = 64;  // ASCII is as it should be
  EXPECT_FALSE(text_.Prove(api_));
  EXPECT_EQ(Copied("model.py"), "");
}

TEST_F(PythonTextTest, LetsGoOfTheStringsThatItWasProvenWith) {
  ASSERT_TRUE(text_.Prove(api_));
  EXPECT_EQ(strings_alive, 0);
}

TEST_F(PythonTextTest, WithoutMemoryForAStringNothingIsProven) {
  api_.PyUnicode_FromString = [](const char*) -> PyObj* { return nullptr; };
  EXPECT_FALSE(text_.Prove(api_));
  EXPECT_EQ(strings_alive, 0);
}

TEST_F(PythonTextTest, WritesEachWidthAsUtf8) {
  ASSERT_TRUE(text_.Prove(api_));
  for (const char* sample :
       {"", "a", "\x7F", "\xC2\x80", "\xC3\xBF", "\xC4\x80", "\xDF\xBF", "\xE0\xA0\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "a\xF0\x9F\xA6\x86\xC3\xA9z"}) {
    EXPECT_EQ(Copied(sample), sample);
  }
}

TEST_F(PythonTextTest, CutsAtACharactersBorder) {
  ASSERT_TRUE(text_.Prove(api_));
  const char* text = "a\xE6\xA8\xA1z";
  EXPECT_EQ(Copied(text, 6), text) << "it fits with its end";
  EXPECT_EQ(Copied(text, 5), "a\xE6\xA8\xA1");
  EXPECT_EQ(Copied(text, 4), "a");
  EXPECT_EQ(Copied(text, 2), "a");
  EXPECT_EQ(Copied(text, 1), "");
}

TEST_F(PythonTextTest, WritesNothingWhereThereIsNoRoom) {
  ASSERT_TRUE(text_.Prove(api_));
  PyObj* text = MakeStr("model.py");
  char out = '?';
  EXPECT_EQ(text_.Copy(text, &out, 0), 0u);
  EXPECT_EQ(out, '?');
  api_.Py_DecRef(text);
}

TEST_F(PythonTextTest, ReadsNoStringThatKeepsItsCharactersElsewhere) {
  ASSERT_TRUE(text_.Prove(api_));
  PyObj* text = MakeStr("model.py");
  auto* state = reinterpret_cast<uint32_t*>(reinterpret_cast<unsigned char*>(text) + 32);
  const uint32_t compact = *state;
  char out[16];
  ASSERT_EQ(text_.Copy(text, out, sizeof out), 8u);
  *state = compact & ~(1u << 5);
  EXPECT_EQ(text_.Copy(text, out, sizeof out), 0u);
  EXPECT_STREQ(out, "");
  *state = (compact & ~(7u << 2)) | 3u << 2;
  EXPECT_EQ(text_.Copy(text, out, sizeof out), 0u) << "no width of a character";
  api_.Py_DecRef(text);
}

TEST_F(PythonTextTest, OfNothingReadsNothing) {
  ASSERT_TRUE(text_.Prove(api_));
  char out[4] = "abc";
  EXPECT_EQ(text_.Copy(nullptr, out, sizeof out), 0u);
  EXPECT_STREQ(out, "");
}

}  // namespace
}  // namespace nanwatch
