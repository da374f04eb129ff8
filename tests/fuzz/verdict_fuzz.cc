// SPDX-License-Identifier: Apache-2.0
// Whatever a stored verdict says, each form of it can be made, steers no terminal, and is JSON where
// it says so. A libFuzzer target: the bytes are a Verdict.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "daemon/explain/explain.h"
#include "daemon/report/incident_words.h"
#include "daemon/report/json_report.h"
#include "daemon/report/page/html_page.h"
#include "daemon/report/page/page_document.h"
#include "daemon/report/text_report.h"
#include "daemon/report/verdict_words.h"
#include "tests/fuzz/expect.h"
#include "verdict.pb.h"
#ifdef NANWATCH_LIBFUZZER
#include "tests/fuzz/message_mutator.h"
#endif

namespace nanwatch {
namespace {

// Lines end; nothing else is for a terminal to obey, which takes U+0080 to U+009F for controls, too.
void ExpectHarmless(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_control = (byte < ' ' && byte != '\n') || byte == 0x7f ||
                            (byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0);
    if (!is_control) continue;
    std::fprintf(stderr, "byte %zu is 0x%02x in: %s\n", i, byte, text.c_str());
    std::abort();
  }
}

void TryOne(Verdict verdict) {
  ExpectHarmless(TextReport(verdict, {}));
  ExpectHarmless(CoverageReport(verdict));
  (void)WordsOf(verdict);
  for (const Incident& incident : verdict.incidents()) {
    ExpectHarmless(IncidentLine(verdict, incident));
    (void)IncidentSummary(incident, 80);
  }
  Expect(nlohmann::json::accept(JsonReport(verdict)));
  PageFacts facts;
  facts.verdict = verdict;
  const std::string data = HtmlData(PageDocument(facts));
  Expect(nlohmann::json::accept(data) && data.find('<') == std::string::npos);
  Explain(verdict);
  ExpectHarmless(TextReport(verdict, {.width_columns = 40}));
}

}  // namespace
}  // namespace nanwatch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nanwatch::Verdict verdict;
  (void)verdict.ParsePartialFromArray(data, static_cast<int>(size));
  nanwatch::TryOne(verdict);
  return 0;
}

#ifdef NANWATCH_LIBFUZZER

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  std::mt19937_64 random(seed);
  if (random() % 16 == 0) return LLVMFuzzerMutate(data, size, size_max);
  nanwatch::Verdict verdict;
  (void)verdict.ParsePartialFromArray(data, static_cast<int>(size));
  nanwatch::MutateMessage(verdict, random);
  const std::string bytes = verdict.SerializePartialAsString();
  if (bytes.size() > size_max) return size;
  bytes.copy(reinterpret_cast<char*>(data), bytes.size());
  return bytes.size();
}

#endif
