// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/chain.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/correlate/finding.h"
#include "daemon/correlate/op_traits.h"
#include "daemon/correlate/wire_names.h"

namespace nanwatch {
namespace {

using wire::Reach;

struct Link {
  const ValueNode* node = nullptr;    // null: what got there is not known
  const ReachEvent* event = nullptr;  // null: a step between
  bool inf_to_nan = false;
};

// The path from the origin to `node`, both included, origin first. Descent only points back, so it
// ends.
std::vector<const ValueNode*> PathTo(const Lineage& lineage, int node) {
  std::vector<const ValueNode*> path;
  for (size_t left = lineage.nodes().size(); node >= 0 && left > 0; --left) {
    path.push_back(&lineage.nodes()[static_cast<size_t>(node)]);
    node = path.back()->via;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

// Links by ticket; a link at which something was reached stands for the step between at the same
// value.
std::map<uint64_t, Link> CollectLinks(const IncidentDraft& draft) {
  std::map<uint64_t, Link> links;
  const Lineage& lineage = *draft.lineage;
  for (const Reach reach : {Reach::kLoss, Reach::kGradient, Reach::kParameter,
                            Reach::kOptimizerState, Reach::kBuffer, Reach::kMetric}) {
    const ReachEvent* event = FirstOf(draft, reach);
    if (event == nullptr) continue;
    for (const ValueNode* node : PathTo(lineage, event->node)) {
      Link& link = links[node->ticket];
      link.node = node;
      link.inf_to_nan =
          node->site != nullptr &&
          node->site->finding_class() == static_cast<uint32_t>(wire::FindingClass::kInfToNan);
    }
    const ValueNode* node =
        event->node < 0 ? nullptr : &lineage.nodes()[static_cast<size_t>(event->node)];
    Link& link = links[node == nullptr ? event->ticket : node->ticket];
    if (node != nullptr) link.node = node;
    if (link.event == nullptr) link.event = event;
  }
  return links;
}

// Keeps what was reached and where Inf became NaN; of the steps between the earliest.
std::vector<Link> Choose(const std::map<uint64_t, Link>& links, uint64_t origin_ticket) {
  std::vector<Link> chosen;
  size_t must = 0;
  bool first_nan = true;
  std::map<uint64_t, bool> keep;
  for (const auto& [ticket, link] : links) {
    if (ticket <= origin_ticket && link.event == nullptr) continue;
    keep[ticket] = link.event != nullptr || (link.inf_to_nan && std::exchange(first_nan, false));
    must += keep[ticket] ? 1 : 0;
  }
  size_t room = kChainLinksMax - 1 - std::min(must, kChainLinksMax - 1);
  for (const auto& [ticket, kept] : keep) {
    if (!kept && room == 0) continue;
    if (!kept) --room;
    if (chosen.size() < kChainLinksMax - 1) chosen.push_back(links.at(ticket));
  }
  return chosen;
}

Finding DescribeLink(const Lineage& lineage, const Link& link) {
  Finding finding;
  if (link.node != nullptr) {
    finding = DescribeNode(lineage, *link.node);
  } else {
    ValueNode unknown;
    unknown.ticket = link.event->ticket;
    unknown.clocks = link.event->clocks;
    finding = DescribeNode(lineage, unknown);
    finding.set_kind("unknown");
    finding.set_exact(false);
  }
  if (link.event == nullptr) return finding;
  finding.set_reach(ReachName(static_cast<uint32_t>(link.event->reach)));
  if (finding.param().empty()) finding.set_param(link.event->name);
  return finding;
}

}  // namespace

const ReachEvent* FirstOf(const IncidentDraft& draft, Reach reach) {
  const ReachEvent* first = nullptr;
  for (const ReachEvent* event : draft.events) {
    if (event->reach != reach) continue;
    if (IsAnomalous(*event) == draft.anomalous) return event;
    if (first == nullptr) first = event;
  }
  return first;
}

void AddChain(const IncidentDraft& draft, Incident& incident) {
  const std::map<uint64_t, Link> links = CollectLinks(draft);
  Finding& origin = *incident.mutable_origin();
  const auto own = links.find(origin.ticket());
  const bool origin_reached = own != links.end() && own->second.event != nullptr &&
                              own->second.node != nullptr &&
                              own->second.node->ticket == origin.ticket();
  if (origin_reached) {
    origin.set_reach(ReachName(static_cast<uint32_t>(own->second.event->reach)));
    if (origin.kind() == "optimizer" && origin.param().empty()) {
      origin.set_param(own->second.event->name);
      if (origin.layer().empty()) origin.set_layer(std::string(ModuleOfParameter(origin.param())));
    }
  }
  *incident.add_chain() = origin;
  for (const Link& link : Choose(links, origin.ticket())) {
    if (link.node != nullptr && link.node->ticket == origin.ticket()) continue;
    *incident.add_chain() = DescribeLink(*draft.lineage, link);
  }
}

bool Reaches(const Incident& incident, std::string_view reach) {
  return std::find(incident.reach().begin(), incident.reach().end(), reach) !=
         incident.reach().end();
}

const Finding* LinkThatReached(const Incident& incident, std::string_view reach) {
  for (const Finding& link : incident.chain()) {
    if (link.reach() == reach && link.step() >= 0) return &link;
  }
  return nullptr;
}

}  // namespace nanwatch
