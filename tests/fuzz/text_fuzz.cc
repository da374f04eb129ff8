// SPDX-License-Identifier: Apache-2.0
// Whatever text comes from outside, it is read without harm: exit files, rules, patterns of rules,
// command lines, names. A libFuzzer target; the first byte says which.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/explain/glob.h"
#include "daemon/explain/ignore_rules.h"
#include "daemon/ingest/exit_file.h"
#include "daemon/ingest/secret_words.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

void Expect(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

void TryOne(uint8_t which, std::string_view text) {
  switch (which % 5) {
    case 0:
      (void)ParseJobExit(text);
      break;
    case 1:
      (void)ParseIgnoreRules(text);
      break;
    case 2: {
      const std::vector<std::string> parts = Split(text.substr(0, 4'096), '\n');
      (void)MatchesGlob(parts.front(), parts.back());
      break;
    }
    case 3: {
      const std::vector<std::string> words = Split(text, '\0');
      const std::vector<std::string> masked = WithoutSecrets(words);
      Expect(masked.size() == words.size());
      Expect(WithoutSecrets(masked).size() == words.size());
      break;
    }
    default: {
      const std::string clean = wire::CleanText(text, 512);
      Expect(clean.size() <= 512);
      Expect(wire::CleanText(clean, 512) == clean);
    }
  }
}

}  // namespace
}  // namespace nanwatch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) nanwatch::TryOne(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
