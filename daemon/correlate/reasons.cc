// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/reasons.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "daemon/correlate/chain.h"
#include "daemon/correlate/finding.h"
#include "daemon/correlate/origin_finding.h"
#include "daemon/correlate/reason_words.h"
#include "daemon/correlate/wire_facts.h"
#include "daemon/correlate/wire_names.h"

namespace nanwatch {
namespace {

using wire::Reach;

// Incidents and inputs that are not the origin: no more than a person reads.
constexpr size_t kOthersShown = 3;

class ReasonWriter {
 public:
  ReasonWriter(const IncidentDraft& draft, const Incident& incident, Explanation& explanation)
      : draft_(draft), lineage_(*draft.lineage), incident_(incident), explanation_(explanation) {}

  void AddOrigin() {
    const Finding& origin = incident_.origin();
    Add("origin", origin,
        NameOf(origin) + " is the origin: " + OriginText(lineage_, *draft_.origin, origin.param()));
  }

  // Why none of what went before is to blame.
  void AddEarlier(const Drafts& all) {
    const std::set<uint64_t> inputs = AddInputsOfOrigin();
    size_t shown = 0;
    for (const auto& [key, other] : all) {
      const bool earlier = &other != &draft_ && other.lineage == draft_.lineage &&
                           other.origin->ticket < draft_.origin->ticket &&
                           !inputs.contains(other.origin->ticket);
      if (!earlier || shown++ >= kOthersShown) continue;
      const Finding finding = DescribeOrigin(lineage_, *other.origin);
      Add("earlier", finding,
          NameOf(finding) +
              " ran earlier but belongs to another incident: " + ApartText(*other.origin));
    }
    if (shown > kOthersShown) {
      Add("earlier", Finding(),
          "and " + std::to_string(shown - kOthersShown) +
              " more earlier values that belong to other incidents");
    }
  }

  void AddClass() {
    const Finding& origin = incident_.origin();
    Add("class", origin,
        NameOf(origin) + " has class " + origin.class_() + ": " +
            ClassText(*draft_.origin, origin));
  }

  void AddChain() {
    for (int i = 1; i < incident_.chain_size(); ++i) {
      const Finding& link = incident_.chain(i);
      Add("link", link, NameOf(link) + " is bad because " + LinkText(link.ticket()));
    }
  }

  void AddReach() {
    for (const Reach reach : draft_.reach) {
      const std::string name = ReachName(static_cast<uint32_t>(reach));
      if (reach == Reach::kActivation) {
        Add("reach", incident_.origin(),
            "the bad value reached activations: " + std::to_string(draft_.count) +
                (draft_.count == 1 ? " op call" : " op calls") +
                " wrote a value that comes from it, first " + NameOf(incident_.origin()));
        continue;
      }
      const ReachEvent* event = FirstOf(draft_, reach);
      if (event != nullptr) {
        const Finding at = WhatReached(*event);
        Add("reach", at,
            "the bad value reached " + ReachTitle(name) + ": " + EventText(*event, at));
      } else {
        Add("reach", Finding(),
            "the bad value reached " + ReachTitle(name) + " in another process of the job");
      }
    }
  }

  void AddSeverity() {
    Add("severity", incident_.origin(),
        NameOf(incident_.origin()) + " causes an incident of severity " + incident_.severity() +
            ": " + SeverityText(draft_, incident_));
  }

 private:
  void Add(const char* about, const Finding& finding, std::string text) {
    ExplanationStep& step = *explanation_.add_steps();
    step.set_about(about);
    step.set_text(std::move(text));
    step.set_ticket(finding.ticket());
    step.set_op(finding.op());
    step.set_layer(finding.layer());
    step.set_step(finding.ticket() == 0 ? -1 : finding.step());
    step.set_run(finding.run());
  }

  [[nodiscard]] const ValueNode* NodeAt(int index) const {
    return index < 0 ? nullptr : &lineage_.nodes()[static_cast<size_t>(index)];
  }

  [[nodiscard]] const ValueNode* NodeOf(uint64_t ticket) const {
    const auto& nodes = lineage_.nodes();
    const auto found = std::find_if(nodes.begin(), nodes.end(), [ticket](const ValueNode& node) {
      return node.ticket == ticket && node.record != nullptr;
    });
    if (found != nodes.end()) return &*found;
    const auto any = std::find_if(nodes.begin(), nodes.end(), [ticket](const ValueNode& node) {
      return node.ticket == ticket;
    });
    return any == nodes.end() ? nullptr : &*any;
  }

  [[nodiscard]] std::string NameOfNode(const ValueNode& node) const {
    return NameOf(DescribeNode(lineage_, node));
  }

  // Returns the tickets of the inputs that it added.
  std::set<uint64_t> AddInputsOfOrigin() {
    std::set<uint64_t> shown;
    const ValueNode* node = NodeAt(draft_.origin->node);
    if (node == nullptr || node->record == nullptr || !node->record->has_value()) return shown;
    for (const RecordSource& source : node->record->value().sources()) {
      if (source.kind() != static_cast<uint32_t>(wire::SourceKind::kValue)) continue;
      const ValueNode* input = NodeOf(source.value());
      if (input == nullptr || input->origin < 0 || shown.size() >= kOthersShown) continue;
      shown.insert(input->ticket);
      const Finding finding = DescribeNode(lineage_, *input);
      Add("earlier", finding,
          NameOf(finding) + " was one of its inputs and held " + KindsText(input->kinds) +
              ", but is not the origin: " +
              WeaknessText(lineage_.origins()[static_cast<size_t>(input->origin)]));
    }
    return shown;
  }

  [[nodiscard]] std::string LinkText(uint64_t ticket) const {
    const ValueNode* node = NodeOf(ticket);
    if (node == nullptr) return "the job recorded it so; no record says how the value got there";
    const ValueNode* via = NodeAt(node->via);
    const std::string from = via == nullptr ? "" : NameOfNode(*via);
    switch (node->because) {
      case Because::kFromSource:
        if (via != nullptr) return "its input from " + from + " was bad";
        return "its input came from " + SourceText(*node) + ", which the same origin had made bad";
      case Because::kPoisoned:
        return "a parameter was already bad when it ran; its inputs were not checked";
      case Because::kUnderBadRoot:
        return "its backward pass started from a loss that was already bad" +
               (via == nullptr ? "" : ", " + from) + ", so none of the gradients is usable";
      case Because::kTwin:
        return "it comes from the same site as an earlier value in this chain; its own record was "
               "not kept";
      case Because::kNanOfMask:
        return "it turned a mask into NaN" + (via == nullptr ? "" : "; the mask came from " + from);
      default:
        return "it belongs to the same incident" +
               (via == nullptr ? "" : "; its input came from " + from);
    }
  }

  // The value that got there; without one the moment itself.
  [[nodiscard]] Finding WhatReached(const ReachEvent& event) const {
    const ValueNode* node = NodeAt(event.node);
    if (node != nullptr) return DescribeNode(lineage_, *node);
    ValueNode moment;
    moment.ticket = event.ticket;
    moment.clocks = event.clocks;
    return DescribeNode(lineage_, moment);
  }

  [[nodiscard]] std::string EventText(const ReachEvent& event, const Finding& value) const {
    std::string record = "record " + std::to_string(event.ticket);
    const std::string by =
        event.node < 0 ? "the path to it is not recorded" : "made by " + NameOf(value);
    const std::string name = event.name.empty() ? "" : " (" + event.name + ")";
    const std::string step = ", step " + std::to_string(value.step());
    switch (event.how) {
      case ReachEvent::How::kRoot:
        return record + step + " says that a backward pass started from a bad value, " + by +
               JudgementText(event);
      case ReachEvent::How::kLeaf:
        return record + step + " says that the backward pass wrote a bad gradient" + name + ", " +
               by + OthersText(event.count, "leaf", "leaves") + JudgementText(event);
      case ReachEvent::How::kUpdate:
        return record + step + " says that an update left it bad" + name + ", " + by +
               OthersText(event.count, "parameter", "parameters") + JudgementText(event);
      case ReachEvent::How::kWrite:
        return NameOf(value) + " wrote it itself" + name + JudgementText(event);
      case ReachEvent::How::kEscape:
        return record + step +
               " says that the program read or compared a bad number that was computed where it "
               "computes its losses, " +
               by + JudgementText(event);
      case ReachEvent::How::kRead:
        return record + step +
               " says that the program read a NaN that was computed without gradients, " + by +
               JudgementText(event);
      case ReachEvent::How::kDead:
        return "the loss was not finite in the steps that ran with these bad parameters";
      case ReachEvent::How::kHeld:
        return "the parameter" + name + " holds it, and the program only runs the model" +
               JudgementText(event);
      case ReachEvent::How::kFirstReach:
        return "the list of first reaches, from which nothing is ever dropped, names " + record +
               name + ", " + by + JudgementText(event);
    }
    return record;
  }

  const IncidentDraft& draft_;
  const Lineage& lineage_;
  const Incident& incident_;
  Explanation& explanation_;
};

std::string PlaceOf(const Finding& finding) {
  if (IsOutsideModules(finding)) return "outside any module";
  // The outermost module has no path of its own.
  return finding.layer().empty() ? "the whole model (" + finding.layer_type() + ")"
                                 : finding.layer();
}

}  // namespace

std::string NameOf(const Finding& finding) {
  std::string what;
  const auto add = [&what](const std::string& part) {
    if (!part.empty()) what += (what.empty() ? "" : ", ") + part;
  };
  add(finding.op());
  add(finding.param());
  add(PlaceOf(finding));
  add(finding.phase());
  add(finding.step() < 0 ? "step unknown" : "step " + std::to_string(finding.step()));
  return "record " + std::to_string(finding.ticket()) + " (" + what + ")";
}

void AddReasons(const IncidentDraft& draft, const Incident& incident, const Drafts& all,
                Explanation& explanation) {
  ReasonWriter writer(draft, incident, explanation);
  writer.AddOrigin();
  writer.AddEarlier(all);
  writer.AddClass();
  writer.AddChain();
  writer.AddReach();
  writer.AddSeverity();
}

}  // namespace nanwatch
