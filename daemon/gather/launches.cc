// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nanwatch {
namespace {

using Group = std::pair<std::string, int32_t>;                // launch, attempt
using Place = std::tuple<std::string, int32_t, std::string>;  // daemon, rank, program

uint64_t BeganNs(const FleetRun& run) { return run.facts.run().started_real_ns(); }

// The same on every gatherer, and in every version. FNV-1a.
uint32_t Hash(const std::string& text) {
  uint32_t hash = 2'166'136'261;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619;
  return hash;
}

std::string NameOf(const Group& group, size_t ordinal) {
  return fmt::format("{:08x}", Hash(fmt::format("{}\n{}\n{}", group.first, group.second, ordinal)));
}

// When a run was known to be there last, by its host's clock.
uint64_t LastNs(const FleetRun& run) {
  const uint64_t ended_ns = run.facts.state().ended_real_ns();
  return std::max(BeganNs(run),
                  run.facts.state().ended() && ended_ns > 0 ? ended_ns : run.recorded_ns);
}

bool IsForked(const FleetRun& run) { return run.facts.run().forked_from() != 0; }
bool IsRanked(const FleetRun& run) { return !IsForked(run) && run.facts.run().world_size() > 1; }

// Whether each launch has words of its own. A port and a static rendezvous are often the same.
bool TellsLaunches(const std::string& launch) {
  constexpr char kRendezvous[] = "TORCHELASTIC_RUN_ID=";
  const size_t rendezvous = launch.find(kRendezvous);
  return launch.find("SLURM_JOB_START_TIME=") != std::string::npos ||
         (rendezvous != std::string::npos &&
          (launch + " ").compare(rendezvous + sizeof kRendezvous - 1, 5, "none ") != 0);
}

// Times of one host, or of several.
struct Span {
  uint64_t first_ns = UINT64_MAX;
  uint64_t last_ns = 0;

  void Add(const FleetRun& run) {
    first_ns = std::min(first_ns, BeganNs(run));
    last_ns = std::max(last_ns, LastNs(run));
  }
  [[nodiscard]] uint64_t DistanceTo(const FleetRun& run) const {
    if (BeganNs(run) > last_ns) return BeganNs(run) - last_ns;
    return first_ns > LastNs(run) ? first_ns - LastNs(run) : 0;
  }
};

// Runs of one group, none of which began long after all others, into launches.
//
// A lane has the runs of one program as one rank: of each launch one of them, or some at once. All
// lanes of ranks that have as many runs in turn as the longest make the launches, the first of one
// with the first of each other: for the order in a lane the clock of one host is enough. What is
// left goes where its own host took part at that time, and only then by the clocks of others.
class Splitter {
 public:
  explicit Splitter(bool has_words) : has_words_(has_words) {}

  std::vector<FleetLaunch> Split(std::vector<FleetRun> runs) {
    const bool has_ranks = std::any_of(runs.begin(), runs.end(), IsRanked);
    std::vector<FleetRun> others;
    for (FleetRun& run : runs) {
      if (has_ranks ? IsRanked(run) : !IsForked(run)) {
        AddToLane(std::move(run));
      } else {
        others.push_back(std::move(run));
      }
    }
    size_t longest = 1;
    for (const auto& [key, lane] : lanes_) longest = std::max(longest, lane.turns.size());
    launches_.resize(longest);
    spans_.resize(longest);
    for (auto& [key, lane] : lanes_) {
      const bool is_whole = lane.turns.size() == longest;
      for (size_t turn = 0; turn < lane.turns.size(); ++turn) {
        for (FleetRun& run : lane.turns[turn].runs) {
          if (is_whole) {
            Put(std::move(run), turn, IsByClocks(lane));
          } else {
            others.push_back(std::move(run));
          }
        }
      }
    }
    for (FleetRun& run : others) PutWhereItsHostWas(std::move(run));
    return std::move(launches_);
  }

 private:
  // Runs that were there at once, as far as is known.
  struct Turn {
    std::vector<FleetRun> runs;
    bool has_ended = true;
    uint64_t last_ns = 0;
  };
  struct Lane {
    std::vector<Turn> turns;
    std::string daemon;  // of the first
    bool is_on_several = false;
    bool has_ended = false;  // one of its runs
  };

  // Runs come in the order of their clocks.
  void AddToLane(FleetRun run) {
    const std::string host = IsRanked(run) ? "" : run.daemon;
    Lane& lane = lanes_[{host, run.facts.run().rank(), run.facts.run().program()}];
    if (lane.turns.empty()) lane.daemon = run.daemon;
    if (lane.turns.empty() ||
        (lane.turns.back().has_ended && lane.turns.back().last_ns < BeganNs(run)))
      lane.turns.emplace_back();
    Turn& turn = lane.turns.back();
    const bool has_ended = run.facts.state().ended();
    turn.has_ended = turn.has_ended && has_ended;
    turn.last_ns = std::max(turn.last_ns, LastNs(run));
    lane.has_ended = lane.has_ended || has_ended;
    lane.is_on_several = lane.is_on_several || run.daemon != lane.daemon;
    turn.runs.push_back(std::move(run));
  }

  // Runs that are all there now are so at once, whatever the clocks.
  [[nodiscard]] bool IsByClocks(const Lane& lane) const {
    return !has_words_ && lane.is_on_several && lane.has_ended;
  }

  void PutWhereItsHostWas(FleetRun run) {
    const std::optional<size_t> here = NearestOf(run, run.daemon);
    const size_t nearest = here.value_or(NearestOf(run, kAll).value_or(0));
    Put(std::move(run), nearest, !here && launches_.size() > 1);
  }
  [[nodiscard]] std::optional<size_t> NearestOf(const FleetRun& run,
                                                const std::string& daemon) const {
    uint64_t nearest_ns = UINT64_MAX;
    std::optional<size_t> nearest;
    for (size_t i = 0; i < launches_.size(); ++i) {
      const auto span = spans_[i].find(daemon);
      if (span == spans_[i].end() || span->second.DistanceTo(run) > nearest_ns) continue;
      nearest_ns = span->second.DistanceTo(run);
      nearest = i;
    }
    return nearest;
  }
  void Put(FleetRun run, size_t launch, bool is_by_clocks) {
    spans_[launch][run.daemon].Add(run);
    spans_[launch][kAll].Add(run);
    launches_[launch].is_by_clocks |= is_by_clocks;
    launches_[launch].runs.push_back(std::move(run));
  }

  static constexpr char kAll[] = "";  // in the place of a daemon

  const bool has_words_;
  std::map<Place, Lane> lanes_;
  std::vector<FleetLaunch> launches_;
  std::vector<std::map<std::string, Span>> spans_;  // of each launch, by daemon
};

// In the order in which they began; each part began long after all before it were heard of last.
std::vector<std::vector<FleetRun>> SplitByGaps(std::vector<FleetRun> runs) {
  std::vector<std::vector<FleetRun>> parts;
  uint64_t last_ns = 0;
  for (FleetRun& run : runs) {
    if (parts.empty() || BeganNs(run) > last_ns + kFleetLaunchGapNs) parts.emplace_back();
    last_ns = std::max(last_ns, LastNs(run));
    parts.back().push_back(std::move(run));
  }
  return parts;
}

// torchrun is a process of the job, too, and is started without what it gives to its ranks.
void JoinLaunchers(std::vector<FleetRun>& runs) {
  std::map<std::pair<std::string, int32_t>, Group> children;  // by daemon and parent
  for (const FleetRun& run : runs) {
    if (run.launch.empty()) continue;
    const Group group(run.launch, run.facts.run().attempt());
    Group& known = children[{run.daemon, run.facts.run().parent_pid()}];
    if (known.first.empty() || known.second < group.second) known = group;
  }
  for (FleetRun& run : runs) {
    const auto found = children.find({run.daemon, run.facts.run().pid()});
    if (!run.launch.empty() || found == children.end()) continue;
    run.launch = found->second.first;
    run.facts.mutable_run()->set_attempt(found->second.second);
  }
}

// A rank whose environment could not be read is of the launch that its siblings or its host are in,
// or of the only one that there is; where several are left, of the nearest by the clocks of hosts.
// These are given.
std::set<std::string> JoinUnknown(std::vector<FleetRun>& runs) {
  std::map<Group, std::map<std::string, Span>> known;  // by daemon; "": of all
  for (const FleetRun& run : runs) {
    if (run.launch.empty()) continue;
    std::map<std::string, Span>& spans = known[{run.launch, run.facts.run().attempt()}];
    spans[run.daemon].Add(run);
    spans[""].Add(run);
  }
  std::set<std::string> in_doubt;
  for (FleetRun& run : runs) {
    if (!run.launch.empty()) continue;
    const std::string* nearest = nullptr;
    uint64_t nearest_ns = UINT64_MAX;
    bool is_on_host = false;
    int candidates = 0;
    for (const auto& [group, spans] : known) {
      if (group.second != run.facts.run().attempt()) continue;
      ++candidates;
      const auto here = spans.find(run.daemon);
      if (is_on_host && here == spans.end()) continue;
      const uint64_t distance_ns =
          (here != spans.end() ? here->second : spans.at("")).DistanceTo(run);
      const bool is_better = here != spans.end() && !is_on_host;
      if (!is_better && nearest != nullptr && distance_ns >= nearest_ns) continue;
      is_on_host = here != spans.end();
      nearest = &group.first;
      nearest_ns = distance_ns;
    }
    if (nearest == nullptr) continue;
    run.launch = *nearest;
    if (!is_on_host && candidates > 1) in_doubt.insert(run.run);
  }
  return in_doubt;
}

}  // namespace

std::vector<FleetLaunch> SplitLaunches(std::vector<FleetRun> runs) {
  JoinLaunchers(runs);
  const std::set<std::string> in_doubt = JoinUnknown(runs);
  std::sort(runs.begin(), runs.end(), [](const FleetRun& a, const FleetRun& b) {
    return std::pair(BeganNs(a), a.run) < std::pair(BeganNs(b), b.run);
  });
  std::map<Group, std::vector<FleetRun>> groups;
  for (FleetRun& run : runs)
    groups[{run.launch, run.facts.run().attempt()}].push_back(std::move(run));
  std::vector<FleetLaunch> launches;
  for (auto& [group, of_group] : groups) {
    size_t ordinal = 0;
    for (std::vector<FleetRun>& part : SplitByGaps(std::move(of_group))) {
      for (FleetLaunch& launch : Splitter(TellsLaunches(group.first)).Split(std::move(part))) {
        launch.name = NameOf(group, ordinal++);
        launch.attempt = group.second;
        for (const FleetRun& run : launch.runs) {
          launch.began_ns = std::max(launch.began_ns, BeganNs(run));
          launch.is_by_clocks |= in_doubt.contains(run.run);
        }
        launches.push_back(std::move(launch));
      }
    }
  }
  std::sort(launches.begin(), launches.end(), [](const FleetLaunch& a, const FleetLaunch& b) {
    return std::tie(a.began_ns, a.attempt, a.name) < std::tie(b.began_ns, b.attempt, b.name);
  });
  return launches;
}

}  // namespace nanwatch
