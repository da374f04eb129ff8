// SPDX-License-Identifier: Apache-2.0
#include "tests/property/fleet/seeded_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "daemon/ingest/run_batch.h"
#include "proto/wire/segment.h"
#include "tests/daemon/correlate/run_builder.h"
#include "verdict.pb.h"

namespace nanwatch {
namespace {

constexpr int32_t kRanksPerHost = 8;
constexpr uint64_t kBeganNs = 1'790'000'000'000'000'000;
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int64_t kClockOffSecondsMax = 600;
constexpr double kSilentShare = 0.05;
constexpr double kTwiceShare = 0.1;
constexpr char kWorld[] = "0";
constexpr char kParam[] = "enc.0.weight";

enum class Story { kClean, kAllReduce, kTwoHops, kPipeline, kBadBatch, kTwoAtOnce };
constexpr std::array kStories = {
    std::pair(Story::kClean, "clean"),        std::pair(Story::kAllReduce, "all_reduce"),
    std::pair(Story::kTwoHops, "two_hops"),   std::pair(Story::kPipeline, "pipeline"),
    std::pair(Story::kBadBatch, "bad_batch"), std::pair(Story::kTwoAtOnce, "two_at_once"),
};

struct Fault {
  std::string op;
  std::string layer;
};
const std::array<Fault, 4> kFaults = {{{"aten::div", "ratio"},
                                       {"aten::sqrt", "enc.3.norm"},
                                       {"aten::log", "loss"},
                                       {"aten::exp", "dec.1.gate"}}};

// One rank while its facts are written: tickets count on.
class Teller {
 public:
  Teller(int32_t rank, int32_t ranks, uint32_t step) : step_(step) {
    run_.Rank(rank, ranks).Step(step);
  }
  // A mask: the constant was asked for, and the softmax takes it away.
  void Mask() {
    run_.Value(++ticket_).Scalar("aten::masked_fill").At("enc.0.attn").NegInf();
    run_.Kill(ticket_ + 1, "aten::_softmax", ticket_);
    ++ticket_;
  }
  // A validation loss, some steps before: read as a number, and no gradient follows.
  void BadMetric(uint32_t step) {
    run_.Step(step);
    run_.Value(++ticket_).Produce("aten::log").At("metric").WithoutGradients().Nan();
    run_.Value(ticket_ + 1).Propagate("aten::mean").From(ticket_).WithoutGradients().Nan();
    run_.Read(ticket_ + 2, ticket_ + 1);
    ticket_ += 2;
    run_.Step(step_);
  }
  void Make(const Fault& fault) {
    run_.Value(++ticket_).Produce(fault.op).At(fault.layer).NeedsGradient().Nan();
    value_ = ticket_;
  }
  void MeetBadBatch() {
    run_.Value(++ticket_)
        .Propagate("aten::addmm")
        .At("enc.0")
        .FromOutside(wire::Target::kInputData, "")
        .NeedsGradient()
        .Nan();
    value_ = ticket_;
  }
  void Receive(const char* op, const std::string& group, uint64_t sequence) {
    run_.CollectiveOut(ticket_ + 1, group, sequence, ticket_ + 2);
    ++ticket_;
    run_.Value(++ticket_).Received(op).FromCollective(group, sequence).Nan();
    value_ = ticket_;
  }
  void Give(const std::string& group, uint64_t sequence) {
    run_.CollectiveIn(++ticket_, group, sequence, value_);
  }
  void GoBackward() {
    const uint64_t root = value_;
    run_.Value(++ticket_).Propagate("aten::mm").Backward("MmBackward0").From(root).Nan();
    value_ = ticket_;
    run_.Pass(++ticket_).Root(root).Leaf(kParam, value_);
  }
  void Update() {
    run_.Value(++ticket_).Propagate("aten::add_").Optimizer(kParam).From(value_).Nan();
    run_.Update(ticket_ + 1).Parameter(kParam, ticket_);
    ++ticket_;
  }
  void GoOn(uint32_t steps) {
    for (uint32_t i = 1; i <= steps; ++i) {
      run_.Value(++ticket_)
          .Propagate("aten::addmm")
          .At("enc.0")
          .Step(step_ + i)
          .FromOutside(wire::Target::kParameter, kParam)
          .Nan();
    }
  }
  [[nodiscard]] RunFacts Build() const { return run_.Build(); }

 private:
  RunBuilder run_;
  uint32_t step_;
  uint64_t ticket_ = 0;
  uint64_t value_ = 0;  // the bad one that goes on
};

class Generator {
 public:
  Generator(uint64_t seed, const SeededJobLimits& limits) : random_(seed), seed_(seed) {
    const double low = std::log(limits.ranks_min), high = std::log(limits.ranks_max);
    job_.ranks = static_cast<int32_t>(std::lround(std::exp(low + (high - low) * Fraction())));
    job_.ranks = job_.ranks / kRanksPerHost * kRanksPerHost;
    job_.job = fmt::format("seed-{}", seed);
    const auto& [story, name] = kStories[Below(kStories.size())];
    story_ = story;
    job_.story = name;
    step_ = static_cast<uint32_t>(5 + Below(1'000));
    sequence_ = 10 + Below(100'000);
    knows_launch_ = Fraction() < 0.5;
    sums_norm_ = Fraction() < 0.5;
    metric_step_ = step_ - static_cast<uint32_t>(Below(4));
  }

  SeededJob Make() {
    ChooseCulprits();
    for (int32_t host = 0; host < job_.ranks / kRanksPerHost; ++host) AddHost(host);
    for (Culprit& culprit : job_.culprits)
      culprit.has_arrived = !job_.silent.contains(culprit.rank);
    // What a stage gave on harms nobody by itself: only the last one's gradients do.
    if (story_ == Story::kPipeline)
      job_.has_whole_chain = std::none_of(stages_.begin(), stages_.end(), [this](int32_t rank) {
        return job_.silent.contains(rank);
      });
    Deliver();
    return std::move(job_);
  }

 private:
  uint64_t Below(uint64_t count) {
    return std::uniform_int_distribution<uint64_t>(0, count - 1)(random_);
  }
  double Fraction() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  int32_t AnyRank() { return static_cast<int32_t>(Below(static_cast<uint64_t>(job_.ranks))); }

  void ChooseCulprits() {
    if (story_ == Story::kClean) {
      is_all_there_ = Fraction() < 0.5;
      return;
    }
    std::set<int32_t> ranks = {AnyRank()};
    if (story_ == Story::kTwoAtOnce) {
      while (ranks.size() < 2) ranks.insert(AnyRank());
    }
    fault_ = kFaults[Below(kFaults.size())];
    // Two ranks that fail at one place in one step are one incident.
    for (const int32_t rank : ranks) {
      const bool is_batch = story_ == Story::kBadBatch;
      job_.culprits.push_back({.rank = rank,
                               .op = is_batch ? "" : fault_.op,
                               .layer = is_batch ? "" : fault_.layer,
                               .step = step_});
    }
    is_all_there_ = Fraction() < 0.25;
    culprits_silent_ = !is_all_there_ && Fraction() < 0.25;
    // Stages on other hosts, as far as there are some.
    for (int32_t stage = 0; stage < 4; ++stage)
      stages_.push_back((job_.culprits[0].rank + stage * kRanksPerHost) % job_.ranks);
  }

  bool IsSilent(int32_t rank) {
    if (is_all_there_) return false;
    if (job_.FindCulprit(rank) != nullptr) return culprits_silent_;
    return Fraction() < kSilentShare;
  }

  // ---- what happens

  void TellAllReduce(int32_t rank, Teller& teller) {
    if (job_.FindCulprit(rank) != nullptr) {
      if (story_ == Story::kBadBatch) {
        teller.MeetBadBatch();
      } else {
        teller.Make(fault_);
      }
      teller.GoBackward();
      teller.Give(kWorld, sequence_);
    }
    teller.Receive("c10d::allreduce_", kWorld, sequence_);
    if (!sums_norm_) return;
    // All give what they got, as the norm of their gradients, and get it back.
    teller.Give(kWorld, sequence_ + 1);
    teller.Receive("c10d::allreduce_", kWorld, sequence_ + 1);
  }
  // The culprit's host shares its activation; each of its ranks then gives gradients to those with
  // its place on other hosts.
  void TellTwoHops(int32_t rank, Teller& teller) {
    const int32_t host = job_.culprits[0].rank / kRanksPerHost;
    const std::string across = fmt::format("dp{}", rank % kRanksPerHost);
    if (rank / kRanksPerHost == host) {
      const std::string within = fmt::format("tp{}", host);
      if (rank == job_.culprits[0].rank) {
        teller.Make(fault_);
        teller.Give(within, sequence_);
      } else {
        teller.Receive("c10d::allreduce_", within, sequence_);
      }
      teller.GoBackward();
      teller.Give(across, sequence_ + 7);
    }
    teller.Receive("c10d::allreduce_", across, sequence_ + 7);
  }
  // From stage to stage, then back to all.
  void TellPipeline(int32_t rank, Teller& teller) {
    const auto stage = std::find(stages_.begin(), stages_.end(), rank);
    if (stage != stages_.end()) {
      const auto number = static_cast<uint64_t>(stage - stages_.begin());
      if (number == 0) {
        teller.Make(fault_);
      } else {
        teller.Receive("c10d::recv_", "pp", sequence_ + number);
      }
      if (number + 1 < stages_.size()) {
        teller.Give("pp", sequence_ + number + 1);
      } else {
        teller.GoBackward();
        teller.Give(kWorld, sequence_ + 50);
      }
    }
    teller.Receive("c10d::allreduce_", kWorld, sequence_ + 50);
  }

  RunFacts FactsOf(int32_t rank) {
    Teller teller(rank, job_.ranks, step_);
    // What was read as a number on its host may have come back as the batch.
    if (story_ != Story::kBadBatch && Fraction() < 0.1) teller.BadMetric(metric_step_);
    if (Fraction() < 0.2) teller.Mask();
    if (story_ != Story::kClean) {
      if (story_ == Story::kTwoHops) {
        TellTwoHops(rank, teller);
      } else if (story_ == Story::kPipeline) {
        TellPipeline(rank, teller);
      } else {
        TellAllReduce(rank, teller);
      }
      teller.Update();
      teller.GoOn(static_cast<uint32_t>(Below(4)));
    }
    return teller.Build();
  }

  // ---- what is reported of it

  void AddHost(int32_t host) {
    daemon_ = fmt::format("{:08x}-0000-4000-8000-{:012x}", static_cast<uint32_t>(seed_), host);
    host_ = fmt::format("host{}", host);
    sequence_of_daemon_ = 0;
    const auto off = static_cast<int64_t>(Below(2 * kClockOffSecondsMax + 1)) - kClockOffSecondsMax;
    clock_ns_ = kBeganNs + static_cast<uint64_t>(off * static_cast<int64_t>(kSecondNs));
    for (int32_t local = 0; local < kRanksPerHost; ++local) AddRank(host * kRanksPerHost + local);
  }

  void AddRank(int32_t rank) {
    RunFacts facts = FactsOf(rank);
    Run& run = *facts.mutable_run();
    run.set_nonce((seed_ << 20) + static_cast<uint64_t>(rank) + 1);
    run.set_job(job_.job);
    run.set_host(host_);
    run.set_boot_id(host_);
    run.set_level(static_cast<uint32_t>(wire::Level::kFull));
    run.set_started_real_ns(clock_ns_ + Below(20) * kSecondNs);
    RunState& state = *facts.mutable_state();
    state.set_level(run.level());
    for (const uint64_t steps : {0u, 0u, 0u, step_ + 10}) state.add_steps_watched(steps);
    std::vector<FleetRow> rows = RowsOf(facts);
    if (IsSilent(rank)) {
      job_.silent.insert(rank);
      // Nothing; the state alone; or all but the first findings.
      const uint64_t how = Below(3);
      if (how == 0) rows.clear();
      const auto is_missing = [&](const FleetRow& row) {
        return row.kind == FleetKind::kFindings && (how == 1 || row.sequence == first_findings_);
      };
      std::erase_if(rows, is_missing);
    }
    for (FleetRow& row : rows) job_.delivered.push_back(std::move(row));
  }

  FleetRow RowOf(const RunFacts& whole, FleetKind kind, const RunFacts& body) {
    clock_ns_ += Below(kSecondNs);
    return {
        .daemon = daemon_,
        .sequence = ++sequence_of_daemon_,
        .recorded_ns = clock_ns_,
        .kind = kind,
        .job = job_.job,
        .run = RunId(whole.run()),
        .rank = whole.run().rank(),
        .launch = kind == FleetKind::kRun && knows_launch_ ? "SLURM_JOB_START_TIME=1790000000" : "",
        .body = body.SerializeAsString()};
  }

  // As an outbox has them: a state, findings as they come, a state that says how many these were.
  std::vector<FleetRow> RowsOf(RunFacts& facts) {
    std::sort(facts.mutable_records()->begin(), facts.mutable_records()->end(),
              [](const Record& a, const Record& b) { return a.ticket() < b.ticket(); });
    std::vector<FleetRow> rows;
    RunFacts state;
    *state.mutable_run() = facts.run();
    *state.mutable_state() = facts.state();
    rows.push_back(RowOf(facts, FleetKind::kRun, state));
    const auto pieces = static_cast<int>(1 + Below(3));
    const int count = facts.records_size();
    first_findings_ = sequence_of_daemon_ + 1;
    uint64_t sent = 0;
    for (int piece = 0; piece < pieces; ++piece) {
      RunFacts some;
      if (piece == 0) *some.mutable_sites() = facts.sites();
      for (int i = count * piece / pieces; i < count * (piece + 1) / pieces; ++i)
        *some.add_records() = facts.records(i);
      if (some.records().empty() && some.sites().empty()) continue;
      rows.push_back(RowOf(facts, FleetKind::kFindings, some));
      ++sent;
    }
    *state.mutable_sites() = facts.sites();
    state.mutable_state()->set_ended(true);
    state.mutable_state()->set_ended_real_ns(clock_ns_ + kSecondNs);
    state.set_findings_sent(sent);
    rows.push_back(RowOf(facts, FleetKind::kRun, state));
    return rows;
  }

  void Deliver() {
    const size_t count = job_.delivered.size();
    for (size_t i = 0; i < count; ++i) {
      if (Fraction() < kTwiceShare) job_.delivered.push_back(job_.delivered[i]);
    }
    std::shuffle(job_.delivered.begin(), job_.delivered.end(), random_);
  }

  std::mt19937_64 random_;
  uint64_t seed_;
  Story story_ = Story::kClean;
  SeededJob job_;
  Fault fault_;
  std::vector<int32_t> stages_;
  uint32_t step_ = 0;
  uint32_t metric_step_ = 0;
  uint64_t sequence_ = 0;  // of a collective
  bool knows_launch_ = false;
  bool sums_norm_ = false;
  bool is_all_there_ = false;
  bool culprits_silent_ = false;

  std::string daemon_;
  std::string host_;
  uint64_t sequence_of_daemon_ = 0;
  uint64_t first_findings_ = 0;
  uint64_t clock_ns_ = 0;
};

}  // namespace

bool SeededJob::is_decided() const {
  return has_whole_chain && std::any_of(culprits.begin(), culprits.end(),
                                        [](const Culprit& culprit) { return culprit.has_arrived; });
}

const Culprit* SeededJob::FindCulprit(int32_t rank) const {
  const auto found = std::find_if(culprits.begin(), culprits.end(),
                                  [rank](const Culprit& culprit) { return culprit.rank == rank; });
  return found == culprits.end() ? nullptr : &*found;
}

SeededJob MakeSeededJob(uint64_t seed, const SeededJobLimits& limits) {
  return Generator(seed, limits).Make();
}

}  // namespace nanwatch
