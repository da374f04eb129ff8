// SPDX-License-Identifier: Apache-2.0
// Whatever rows a database holds, a verdict is made of them: facts of two runs, as messages, which
// no decoder of ours has seen. A libFuzzer target; the first four bytes say where the second begins.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "daemon/explain/explain.h"
#include "daemon/explain/parameter_reports.h"
#include "verdict.pb.h"
#ifdef NANWATCH_LIBFUZZER
#include "tests/fuzz/message_mutator.h"
#endif

namespace nanwatch {
namespace {

std::vector<RunFacts> Parse(const uint8_t* data, size_t size) {
  std::vector<RunFacts> runs(2);
  uint32_t first = 0;
  if (size < sizeof first) return runs;
  std::memcpy(&first, data, sizeof first);
  const char* text = reinterpret_cast<const char*>(data) + sizeof first;
  size -= sizeof first;
  const size_t length = std::min<size_t>(first, size);
  (void)runs[0].ParsePartialFromArray(text, static_cast<int>(length));
  (void)runs[1].ParsePartialFromArray(text + length, static_cast<int>(size - length));
  return runs;
}

}  // namespace
}  // namespace nanwatch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<nanwatch::RunFacts> runs = nanwatch::Parse(data, size);
  (void)nanwatch::Diagnose(runs);
  (void)nanwatch::DiagnoseAsked(runs, {.further_rules = "op=aten::log; layer=a*", .explained = 1});
  (void)nanwatch::ReportStats(runs, "job");
  return 0;
}

#ifdef NANWATCH_LIBFUZZER

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  std::mt19937_64 random(seed);
  if (random() % 16 == 0) return LLVMFuzzerMutate(data, size, size_max);
  std::vector<nanwatch::RunFacts> runs = nanwatch::Parse(data, size);
  nanwatch::MutateMessage(runs[random() % 2], random);
  const std::string first = runs[0].SerializePartialAsString();
  const std::string second = runs[1].SerializePartialAsString();
  const auto length = static_cast<uint32_t>(first.size());
  const size_t total = sizeof length + first.size() + second.size();
  if (total > size_max) return size;
  std::memcpy(data, &length, sizeof length);
  std::memcpy(data + sizeof length, first.data(), first.size());
  std::memcpy(data + sizeof length + first.size(), second.data(), second.size());
  return total;
}

#endif
