// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/incident_key.h"

#include <string_view>

#include "daemon/correlate/origin_finding.h"
#include "daemon/correlate/wire_names.h"

namespace nanwatch {
namespace {

IncidentKey PlaceOf(const Origin& origin) {
  IncidentKey key(OriginKind(origin));
  const auto add = [&key](std::string_view part) { key.append("\n").append(part); };
  if (origin.IsReceived()) {
    add("received");
    if (origin.site != nullptr) add(origin.site->op());
    return key;
  }
  const std::string parameter = OriginParameter(origin);
  if (origin.IsExternal() && !parameter.empty()) {
    add(parameter);
    return key;
  }
  if (origin.site == nullptr) {
    add(parameter);
    return key;
  }
  const Site& site = *origin.site;
  // What makes one parameter of an update bad (a rate that is NaN) makes them all so, and is one
  // thing.
  if (key == "optimizer" && origin.clocks != nullptr) {
    add(site.op());
    add(site.source());
    add(std::to_string(origin.clocks->optimizer_ranges()));
    return key;
  }
  const bool recompute = (site.flags() & wire::ValueRecord::kRecompute) != 0;
  add(site.op());
  add(site.layer());
  add(site.root());
  add(recompute ? "" : site.node());
  add(std::to_string(site.phase()));
  // A call that spoils its result and the buffers that it writes (batch norm's) is one thing.
  const bool wrote_buffer = (site.flags() & wire::ValueRecord::kWroteBuffer) != 0 &&
                            site.phase() == static_cast<uint32_t>(wire::Phase::kForward);
  const bool by_name = !parameter.empty() && (!wrote_buffer || site.source().empty());
  add(by_name ? parameter : site.source());
  return key;
}

}  // namespace

IncidentKey KeyOf(const Origin& origin) {
  IncidentKey key = PlaceOf(origin);
  if (origin.expected_by != nullptr) key += "\nexpected by " + *origin.expected_by;
  return key;
}

std::string ExcuseKeyOf(const Origin& origin) {
  const bool known = origin.finding_class != wire::FindingClass::kUnknown || origin.site == nullptr;
  const uint32_t finding_class =
      known ? static_cast<uint32_t>(origin.finding_class) : origin.site->finding_class();
  return PlaceOf(origin) + "\n" + FindingClassName(finding_class);
}

}  // namespace nanwatch
