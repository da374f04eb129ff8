// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_hosts.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace nanwatch {
namespace {

using OriginKey =
    std::tuple<std::string, uint64_t, std::string, std::string>;  // run, ticket, op, layer

OriginKey KeyOf(const Finding& origin) {
  return {origin.run(), origin.ticket(), origin.op(), origin.layer()};
}

// Whether its host may have begun what went wrong. Of an unknown step that is not known.
bool MayBegin(const Incident& incident) {
  return incident.severity() != "info" && incident.origin().class_() != "received" &&
         incident.origin().step() >= 0;
}

// What an incident stays the same by, as its daemon has it (daemon/store/outbox.cc): daemon, run and
// ticket, or without one op, layer and step.
using Subject = std::tuple<std::string, std::string, uint64_t, std::string, std::string, int64_t>;

Subject SubjectOf(const HostIncident& one) {
  const Finding& origin = one.incident.origin();
  if (origin.ticket() != 0) return {one.daemon, origin.run(), origin.ticket(), "", "", 0};
  return {one.daemon, origin.run(), 0, origin.op(), origin.layer(), origin.step()};
}

struct Began {
  std::set<std::string> launches;
  std::set<OriginKey> places;
};

FleetHost Summary(const std::string& host, const Began& began) {
  std::map<std::string, int> ops;
  for (const auto& [run, ticket, op, layer] : began.places) ++ops[op];
  const auto most = std::max_element(
      ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  FleetHost summary = {.host = host,
                       .launches = static_cast<int>(began.launches.size()),
                       .incidents = static_cast<int>(began.places.size()),
                       .op = most->first};
  for (const auto& [run, ticket, op, layer] : began.places) {
    if (op == summary.op) summary.layer = layer;
  }
  return summary;
}

}  // namespace

// What a host thought before does not count.
std::vector<const HostIncident*> FirstOnTheirHosts(const std::vector<HostIncident>& incidents) {
  std::map<Subject, const HostIncident*> newest;
  for (const HostIncident& one : incidents) {
    const HostIncident*& known = newest[SubjectOf(one)];
    if (known == nullptr || one.sequence >= known->sequence) known = &one;
  }
  std::vector<const HostIncident*> kept;
  for (const auto& [subject, one] : newest) {
    if (MayBegin(one->incident)) kept.push_back(one);
  }
  return kept;
}

std::vector<FleetHost> HostsThatStandOut(const std::vector<HostIncident>& incidents) {
  const std::vector<const HostIncident*> newest = FirstOnTheirHosts(incidents);
  std::map<std::string, int64_t> first_steps;  // of launches
  for (const HostIncident* one : newest) {
    const int64_t step = one->incident.origin().step();
    const auto known = first_steps.try_emplace(one->launch, step).first;
    known->second = std::min(known->second, step);
  }
  std::map<std::string, Began> hosts;
  for (const HostIncident* one : newest) {
    if (one->incident.origin().step() != first_steps[one->launch]) continue;
    Began& began = hosts[one->host];
    began.launches.insert(one->launch);
    began.places.insert(KeyOf(one->incident.origin()));
  }
  std::vector<FleetHost> listed;
  for (const auto& [host, began] : hosts) {
    if (began.launches.size() >= kFleetHostLaunchesLeast) listed.push_back(Summary(host, began));
  }
  std::stable_sort(listed.begin(), listed.end(), [](const FleetHost& a, const FleetHost& b) {
    return std::pair(a.launches, a.incidents) > std::pair(b.launches, b.incidents);
  });
  return listed;
}

}  // namespace nanwatch
