// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_hosts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace nanwatch {
namespace {

HostIncident IncidentOf(const std::string& host, const std::string& launch, int64_t step,
                        const std::string& its_class = "produce",
                        const std::string& op = "aten::log") {
  HostIncident one = {.host = host, .launch = launch};
  one.incident.set_severity("error");
  Finding& origin = *one.incident.mutable_origin();
  origin.set_run(launch + "/" + host);
  origin.set_op(op);
  origin.set_layer("encoder.0");
  origin.set_step(step);
  origin.set_class_(its_class);
  return one;
}

std::vector<std::string> NamesOf(const std::vector<FleetHost>& hosts) {
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const FleetHost& host : hosts) names.push_back(host.host);
  return names;
}

TEST(FleetHosts, WhoBeganSeveralLaunchesStandsOut) {
  const std::vector<FleetHost> hosts = HostsThatStandOut(
      {IncidentOf("a", "train", 5), IncidentOf("a", "tune", 9), IncidentOf("a", "tune", 9),
       IncidentOf("a", "third", 1, "produce", "aten::div"), IncidentOf("b", "fourth", 1),
       IncidentOf("b", "fifth", 2), IncidentOf("c", "sixth", 3)});
  ASSERT_EQ(NamesOf(hosts), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(hosts[0].launches, 3);
  EXPECT_EQ(hosts[0].incidents, 3) << "one that was concluded twice counts once";
  EXPECT_EQ(hosts[0].op, "aten::log");
  EXPECT_EQ(hosts[0].layer, "encoder.0");
}

TEST(FleetHosts, WhoReceivedItOrHadItLaterBeganNothing) {
  const std::vector<FleetHost> hosts = HostsThatStandOut(
      {IncidentOf("a", "train", 5), IncidentOf("a", "tune", 9),
       IncidentOf("b", "train", 5, "received"), IncidentOf("b", "tune", 9, "received"),
       IncidentOf("c", "train", 6), IncidentOf("c", "tune", 10)});
  EXPECT_EQ(NamesOf(hosts), (std::vector<std::string>{"a"}));
}

TEST(FleetHosts, OnlyTheNewestConclusionOfAnIncidentCounts) {
  std::vector<HostIncident> incidents;
  for (const char* launch : {"train", "tune"}) {
    HostIncident newest = IncidentOf("a", launch, 5, "received");
    newest.sequence = 2;
    HostIncident first = IncidentOf("a", launch, 5);
    first.sequence = 1;
    incidents.insert(incidents.end(), {newest, first});
  }
  EXPECT_TRUE(HostsThatStandOut(incidents).empty());
  std::reverse(incidents.begin(), incidents.end());
  EXPECT_TRUE(HostsThatStandOut(incidents).empty()) << "in whatever order they come";
  for (HostIncident& one : incidents) one.incident.mutable_origin()->set_ticket(one.sequence);
  EXPECT_EQ(NamesOf(HostsThatStandOut(incidents)), (std::vector<std::string>{"a"}))
      << "two incidents";
}

TEST(FleetHosts, HarmlessIncidentsAndUnknownStepsNameNobody) {
  HostIncident harmless = IncidentOf("a", "train", 1);
  harmless.incident.set_severity("info");
  HostIncident other = harmless;
  other.launch = "tune";
  EXPECT_TRUE(HostsThatStandOut(
                  {harmless, other, IncidentOf("b", "train", -1), IncidentOf("b", "tune", -1)})
                  .empty());
}

}  // namespace
}  // namespace nanwatch
