// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

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

// Runs of one group, in the order in which they began, into launches.
class Splitter {
 public:
  explicit Splitter(Group group) : group_(std::move(group)) {}

  void Add(FleetRun run) {
    const bool again = !IsForked(run) && HasEndedBefore(run);
    const bool late = last_ns_ != 0 && BeganNs(run) > last_ns_ + kFleetLaunchGapNs;
    if (launches_.empty() || again || late) Begin();
    last_ns_ = std::max(last_ns_, LastNs(run));
    if (!IsForked(run)) {
      uint64_t& ended_ns = ended_ns_[PlaceOf(run)];
      ended_ns = run.facts.state().ended() ? std::max(ended_ns, LastNs(run)) : kNever;
    }
    launches_.back().began_ns = std::max(launches_.back().began_ns, BeganNs(run));
    launches_.back().runs.push_back(std::move(run));
  }

  std::vector<FleetLaunch> Take() { return std::move(launches_); }

 private:
  static constexpr uint64_t kNever = UINT64_MAX;

  // Workers come and go while their process lasts.
  static bool IsForked(const FleetRun& run) { return run.facts.run().forked_from() != 0; }
  static Place PlaceOf(const FleetRun& run) {
    return {run.daemon, run.facts.run().rank(), run.facts.run().program()};
  }
  [[nodiscard]] bool HasEndedBefore(const FleetRun& run) const {
    const auto before = ended_ns_.find(PlaceOf(run));
    return before != ended_ns_.end() && before->second < BeganNs(run);
  }
  void Begin() {
    launches_.push_back({.name = NameOf(group_, launches_.size()), .attempt = group_.second});
    ended_ns_.clear();
    last_ns_ = 0;
  }

  Group group_;
  std::vector<FleetLaunch> launches_;
  std::map<Place, uint64_t> ended_ns_;  // the last of the launch's there; kNever: one has not
  uint64_t last_ns_ = 0;
};

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

}  // namespace

std::vector<FleetLaunch> SplitLaunches(std::vector<FleetRun> runs) {
  JoinLaunchers(runs);
  std::sort(runs.begin(), runs.end(), [](const FleetRun& a, const FleetRun& b) {
    return std::pair(BeganNs(a), a.run) < std::pair(BeganNs(b), b.run);
  });
  std::map<Group, Splitter> groups;
  for (FleetRun& run : runs) {
    const Group group(run.launch, run.facts.run().attempt());
    groups.try_emplace(group, group).first->second.Add(std::move(run));
  }
  std::vector<FleetLaunch> launches;
  for (auto& [group, splitter] : groups) {
    for (FleetLaunch& launch : splitter.Take()) launches.push_back(std::move(launch));
  }
  std::sort(launches.begin(), launches.end(), [](const FleetLaunch& a, const FleetLaunch& b) {
    return std::tie(a.began_ns, a.attempt, a.name) < std::tie(b.began_ns, b.attempt, b.name);
  });
  return launches;
}

}  // namespace nanwatch
