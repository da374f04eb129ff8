// SPDX-License-Identifier: Apache-2.0
// seeded_jobs [--first SEED] [--count N] [--ranks-max N] [--write DIR]
//
// Does the fleet's verdict name the rank that began it, whatever arrives in whatever order? Each job
// (seeded_job.h) is given to the gatherer's own answers row by row. Asked in between, they may not
// be wrong and sure; asked at the end, they name a culprit where the facts decide it, and say that
// they do not know elsewhere. What is wrong is printed with its seed; exit status 1.
//
// With --write the requests of each job are written as hosts would send them, and what is right:
// tests/e2e/fleet/seeded_test.py sends them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/fleet/otlp_logs.h"
#include "daemon/gather/fleet_answers.h"
#include "fleet.pb.h"
#include "tests/fakes/fake_clock.h"
#include "tests/property/fleet/memory_fleet.h"
#include "tests/property/fleet/seeded_job.h"

namespace nanwatch {
namespace {

// Beyond, a job is asked about only at the end: each answer takes a second or so.
constexpr int32_t kRanksAskedOften = 1'000;
constexpr int kAskedInBetween = 4;
constexpr size_t kRowsPerRequest = 2'000;

struct Options {
  uint64_t first = 1;
  uint64_t count = 40;
  SeededJobLimits limits;
  std::string write;
};

// Of this process, so that it says something on a machine with other work, too.
double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

class Asker {
 public:
  explicit Asker(const MemoryFleet& fleet) : answers_(Readers(fleet), clock_) {}

  FleetVerdict Ask(const std::string& job) {
    clock_.AdvanceMs(10'000);  // what was answered before is too old
    const double began = ProcessorSeconds();
    const HttpAnswer answer =
        answers_.Answer({.path = "/api/v1/jobs/" + job + "/verdict", .accept = kOtlpType});
    seconds_ = ProcessorSeconds() - began;
    FleetVerdict fleet;
    if (answer.status != 200 || !fleet.ParseFromString(answer.body)) return {};
    return fleet;
  }
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  static std::vector<std::unique_ptr<FleetReader>> Readers(const MemoryFleet& fleet) {
    std::vector<std::unique_ptr<FleetReader>> readers;
    readers.push_back(std::make_unique<MemoryReader>(fleet));
    return readers;
  }

  FakeClock clock_;
  FleetAnswers answers_;
  double seconds_ = 0;
};

// The incident that ruined the training, as far as there is one.
const Incident* FirstOf(const FleetVerdict& fleet) {
  const Verdict& verdict = fleet.verdict();
  if (verdict.incidents().empty()) return nullptr;
  const std::string& severity = verdict.incidents(0).severity();
  return severity == "critical" || severity == "error" ? &verdict.incidents(0) : nullptr;
}

bool IsRight(const SeededJob& job, const Finding& origin) {
  const Culprit* culprit = job.FindCulprit(origin.rank());
  if (culprit == nullptr || origin.step() != culprit->step) return false;
  return culprit->op.empty() ? origin.kind() == "input_data"
                             : origin.op() == culprit->op && origin.layer() == culprit->layer;
}

std::string NameOfOrigin(const Finding& origin) {
  return fmt::format("rank {} {} {} at step {} ({}, {}{})", origin.rank(), origin.op(),
                     origin.layer(), origin.step(), origin.class_(),
                     origin.exact() ? "exact" : "not exact: ",
                     fmt::join(origin.unseen().begin(), origin.unseen().end(), " "));
}

// Wrong and sure, at any time; "": it is not.
std::string WhatIsSureAndWrong(const SeededJob& job, const FleetVerdict& fleet) {
  const std::string& word = fleet.verdict().verdict();
  if (!job.culprits.empty() && (word == "clean" || word == "expected")) return "said to be " + word;
  const Incident* first = FirstOf(fleet);
  if (first == nullptr || !first->origin().exact()) return "";
  if (job.culprits.empty()) return "made up: " + NameOfOrigin(first->origin());
  return IsRight(job, first->origin()) ? "" : "sure of " + NameOfOrigin(first->origin());
}

std::string WhatIsWrongAtTheEnd(const SeededJob& job, const FleetVerdict& fleet) {
  if (std::string sure = WhatIsSureAndWrong(job, fleet); !sure.empty()) return sure;
  const Incident* first = FirstOf(fleet);
  if (job.culprits.empty()) {
    if (first != nullptr) return "made up: " + NameOfOrigin(first->origin());
    const bool says_unknown = fleet.verdict().verdict() == "unknown";
    const bool is_anomaly = fleet.verdict().verdict() == "anomaly";  // metrics
    return is_anomaly || says_unknown == !job.silent.empty()
               ? ""
               : "a job that went well is " + fleet.verdict().verdict();
  }
  if (!job.is_decided()) {
    // `propagate`: an input was bad already, and what made it is not known.
    const std::string class_name = first == nullptr ? "" : first->origin().class_();
    return class_name.empty() || class_name == "received" || class_name == "propagate" ||
                   IsRight(job, first->origin())
               ? ""
               : "a guess: " + NameOfOrigin(first->origin());
  }
  if (first == nullptr) return "nothing was named";
  if (!IsRight(job, first->origin())) return "named " + NameOfOrigin(first->origin());
  if (job.silent.empty() && !first->origin().exact())
    return "not sure, though all is there: " + NameOfOrigin(first->origin());
  return "";
}

// ---- the same for a database

void Write(const Options& options, const SeededJob& job) {
  const auto file = [&](const std::string& end) {
    return std::ofstream(options.write + "/" + job.job + end, std::ios::binary);
  };
  int number = 0;
  for (size_t at = 0; at < job.delivered.size(); at += kRowsPerRequest) {
    const size_t count = std::min(kRowsPerRequest, job.delivered.size() - at);
    file(fmt::format(".{:05}.request", number++))
        << EncodeLogs(std::span(job.delivered).subspan(at, count), "seeded");
  }
  std::string culprits;
  for (const Culprit& culprit : job.culprits)
    culprits += fmt::format("{}{{\"rank\": {}, \"op\": \"{}\", \"layer\": \"{}\", \"step\": {}}}",
                            culprits.empty() ? "" : ", ", culprit.rank, culprit.op, culprit.layer,
                            culprit.step);
  file(".json") << fmt::format(
      "{{\"job\": \"{}\", \"story\": \"{}\", \"ranks\": {}, \"silent\": {}, \"is_decided\": {}, "
      "\"culprits\": [{}]}}\n",
      job.job, job.story, job.ranks, job.silent.size(), job.is_decided(), culprits);
}

// ---- all of them

struct Outcome {
  std::vector<double> seconds;
  int wrong = 0;
  int decided = 0;
  int undecided = 0;
  int without_fault = 0;
};

void Try(const Options& options, uint64_t seed, Outcome& outcome) {
  const SeededJob job = MakeSeededJob(seed, options.limits);
  if (!options.write.empty()) Write(options, job);
  MemoryFleet fleet;
  Asker asker(fleet);
  const auto complain = [&](const std::string& wrong, size_t rows) {
    if (wrong.empty()) return;
    ++outcome.wrong;
    std::printf("seed %llu: %s, %d ranks, %zu silent, after %zu of %zu rows: %s\n",
                static_cast<unsigned long long>(seed), job.story.c_str(), job.ranks,
                job.silent.size(), rows, job.delivered.size(), wrong.c_str());
  };
  const size_t every = job.delivered.size() / (kAskedInBetween + 1) + 1;
  for (size_t i = 0; i < job.delivered.size(); ++i) {
    fleet.Take(job.delivered[i]);
    if (job.ranks <= kRanksAskedOften && (i + 1) % every == 0)
      complain(WhatIsSureAndWrong(job, asker.Ask(job.job)), i + 1);
  }
  complain(WhatIsWrongAtTheEnd(job, asker.Ask(job.job)), job.delivered.size());
  outcome.seconds.push_back(asker.seconds());
  ++(job.culprits.empty() ? outcome.without_fault
     : job.is_decided()   ? outcome.decided
                          : outcome.undecided);
}

int TryAll(const Options& options) {
  Outcome outcome;
  for (uint64_t seed = options.first; seed < options.first + options.count; ++seed)
    Try(options, seed, outcome);
  std::sort(outcome.seconds.begin(), outcome.seconds.end());
  const auto at = [&](size_t percent) {
    return outcome
        .seconds[std::min(outcome.seconds.size() - 1, outcome.seconds.size() * percent / 100)];
  };
  std::printf(
      "seeds %llu to %llu, %d to %d ranks: %d wrong; %d decided, %d not, %d without a fault; an "
      "answer takes %.3f s of a processor, p99 %.3f s\n",
      static_cast<unsigned long long>(options.first),
      static_cast<unsigned long long>(options.first + options.count - 1), options.limits.ranks_min,
      options.limits.ranks_max, outcome.wrong, outcome.decided, outcome.undecided,
      outcome.without_fault, at(50), at(99));
  return outcome.wrong == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--first") options.first = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--count") options.count = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--ranks-max") options.limits.ranks_max = std::atoi(argv[i + 1]);
    if (name == "--ranks-min") options.limits.ranks_min = std::atoi(argv[i + 1]);
    if (name == "--write") options.write = argv[i + 1];
  }
  if (options.count == 0 || options.limits.ranks_max < options.limits.ranks_min) return 2;
  return TryAll(options);
}

}  // namespace
}  // namespace nanwatch

int main(int argc, char** argv) { return nanwatch::Main(argc, argv); }
