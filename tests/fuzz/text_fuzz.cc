// SPDX-License-Identifier: Apache-2.0
// Whatever text comes from outside, it is read without harm: exit files, rules, patterns of rules,
// command lines, names, books of patterns, addresses and headers. A libFuzzer target; the first byte
// says which.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/explain/glob.h"
#include "daemon/explain/ignore_rules.h"
#include "daemon/explain/pattern_book.h"
#include "daemon/http/http_access.h"
#include "daemon/http/listen_address.h"
#include "daemon/ingest/exit_file.h"
#include "daemon/ingest/secret_words.h"
#include "proto/wire/text.h"
#include "tests/fuzz/expect.h"
#include "verdict.pb.h"

namespace nanwatch {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Incident SomeIncident() {
  Incident incident;
  Finding& origin = *incident.mutable_origin();
  origin.set_kind("op");
  origin.set_op("aten::log");
  origin.set_layer("encoder.0");
  origin.set_phase("forward");
  origin.add_outputs()->set_nan(3);
  origin.add_inputs()->set_role("self");
  incident.add_reach("loss");
  return incident;
}

void TryOne(uint8_t which, std::string_view text) {
  switch (which % 7) {
    case 0:
      (void)ParseJobExit(text);
      break;
    case 1: {
      const IgnoreRules rules = ParseIgnoreRules(text);
      (void)FindRule(rules.rules, SomeIncident());
      break;
    }
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
    case 4: {
      std::vector<std::string> problems;
      const PatternBook book = PatternBook::Parse(text, &problems);
      (void)book.Find(SomeIncident());
      (void)book.WhyItFits(SomeIncident());
      break;
    }
    case 5: {
      const std::vector<std::string> parts = Split(text, '\n');
      (void)ParseListen(parts.front());
      (void)IsOwnHost(parts.front(), {parts.back()});
      (void)HasToken(parts.front(), parts.back());
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
