// SPDX-License-Identifier: Apache-2.0
// Whatever a host sends to a gatherer, it is taken as rows or refused, and rows that were taken can
// be judged. A libFuzzer target: the first byte says whether the rest is a request as it arrives, or
// the bodies of rows.
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/fleet/fleet_row.h"
#include "daemon/fleet/otlp_logs.h"
#include "daemon/gather/fleet_verdict.h"
#include "tests/fuzz/expect.h"
#include "verdict.pb.h"
#ifdef NANWATCH_LIBFUZZER
#include "tests/fuzz/message_mutator.h"
#endif

namespace nanwatch {
namespace {

void Judge(const std::vector<FleetRow>& rows) {
  std::vector<FleetRun> runs;
  FindingsByRun findings;
  for (const FleetRow& row : rows) {
    if (row.kind == FleetKind::kFindings) findings[row.run].push_back(row.body);
    if (row.kind != FleetKind::kRun || runs.size() == 4) continue;
    FleetRun& run = runs.emplace_back();
    run.daemon = row.daemon;
    run.run = row.run;
    run.launch = row.launch;
    run.sequence = row.sequence;
    Expect(run.facts.ParseFromString(row.body));
  }
  AddFindings(findings, /*is_whole=*/true, runs, 64);
  (void)JudgeFleet(runs);
}

void TryRequest(std::string_view body) {
  const Result<DecodedLogs> logs = DecodeLogs(body);
  if (!logs.ok()) return;
  for (const FleetRow& row : logs->rows) Expect(WhatIsWrong(row).empty());
  Judge(logs->rows);
}

// Two rows with these bodies.
void TryBodies(uint8_t kind, std::string_view bodies) {
  std::vector<FleetRow> rows(2);
  for (size_t i = 0; i < rows.size(); ++i) {
    FleetRow& row = rows[i];
    row.daemon = "01234567-89ab-cdef-0123-456789abcdef";
    row.sequence = i + 1;
    row.kind = i == 0 ? FleetKind::kRun : static_cast<FleetKind>(1 + kind % kFleetKinds.size());
    row.job = "job";
    row.run = "0123456789abcdef";
    row.body = i == 0 ? bodies.substr(0, bodies.size() / 2) : bodies.substr(bodies.size() / 2);
  }
  const Result<DecodedLogs> logs = DecodeLogs(EncodeLogs(rows, "host"));
  Expect(logs.ok() && logs->rows.size() + logs->rejected == rows.size());
  Judge(logs->rows);
}

}  // namespace
}  // namespace nanwatch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    nanwatch::TryRequest(rest);
  } else {
    nanwatch::TryBodies(data[0] / 2, rest);
  }
  return 0;
}

#ifdef NANWATCH_LIBFUZZER

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

// Both bodies are facts of a run, or a body and what is left of it.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  std::mt19937_64 random(seed);
  if (size == 0 || data[0] % 2 == 0 || random() % 4 == 0)
    return LLVMFuzzerMutate(data, size, size_max);
  nanwatch::RunFacts facts;
  (void)facts.ParsePartialFromArray(data + 1, static_cast<int>((size - 1) / 2));
  nanwatch::MutateMessage(facts, random);
  const std::string body = facts.SerializePartialAsString();
  if (1 + 2 * body.size() > size_max) return size;
  for (const size_t at : {size_t{1}, 1 + body.size()})
    body.copy(reinterpret_cast<char*>(data) + at, body.size());
  return 1 + 2 * body.size();
}

#endif
