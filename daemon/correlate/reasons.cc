// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/reasons.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "daemon/correlate/chain.h"
#include "daemon/correlate/finding.h"
#include "daemon/correlate/wire_names.h"

namespace nanwatch {
namespace {

using wire::Reach;

// Incidents and inputs that are not the origin: no more than a person reads.
constexpr size_t kOthersShown = 3;

std::string KindsText(uint32_t kinds) {
  std::string text;
  const auto add = [&](uint32_t kind, std::string_view word) {
    if ((kinds & kind) != 0) text += (text.empty() ? "" : " and ") + std::string(word);
  };
  add(wire::kHasNan, "NaN");
  add(wire::kHasPosInf, "Inf");
  add(wire::kHasNegInf, "-Inf");
  return text.empty() ? "a non-finite value" : text;
}

std::string_view TargetText(uint32_t target) {
  switch (static_cast<wire::Target>(target)) {
    case wire::Target::kParameter:
      return "a parameter";
    case wire::Target::kBuffer:
      return "a buffer";
    case wire::Target::kGradient:
      return "a gradient";
    case wire::Target::kOptimizerState:
      return "the optimizer's state";
    case wire::Target::kInputData:
      return "the batch";
    case wire::Target::kUninitialised:
      return "uninitialized memory";
    default:
      return "memory that no observed op wrote";
  }
}

class ReasonWriter {
 public:
  ReasonWriter(const IncidentDraft& draft, const Incident& incident, Explanation& explanation)
      : draft_(draft), lineage_(*draft.lineage), incident_(incident), explanation_(explanation) {}

  void AddOrigin() {
    const Finding& origin = incident_.origin();
    Add("origin", origin, NameOf(origin) + " is the origin: " + OriginText());
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
    Add("class", origin, NameOf(origin) + " has class " + origin.class_() + ": " + ClassText());
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
        Add("reach", at, "the bad value reached " + Titled(name) + ": " + EventText(*event, at));
      } else {
        Add("reach", Finding(),
            "the bad value reached " + Titled(name) + " in another process of the job");
      }
    }
  }

  void AddSeverity() {
    Add("severity", incident_.origin(),
        NameOf(incident_.origin()) + " causes an incident of severity " + incident_.severity() +
            ": " + SeverityText());
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

  [[nodiscard]] std::string OriginText() const {
    const Origin& origin = *draft_.origin;
    if (origin.IsReceived()) {
      return "a collective delivered it, and there are no records from the rank that sent it";
    }
    if (origin.IsExternal()) {
      return "its input was bad before any observed op wrote to it; the input is " +
             std::string(TargetText(origin.target)) + NamedParameter() +
             ", and no earlier record says what made it bad";
    }
    const ValueNode* node = NodeAt(origin.node);
    if (node == nullptr) return "no record says how the value was made";
    switch (node->because) {
      case Because::kMadeOfFinite:
        return "all its tensor inputs were checked and were finite, so no earlier op can have made "
               "the value";
      case Because::kMadeAssumedFinite:
        return "its inputs were not checked, but no bad value existed when it ran, so they are "
               "assumed to have been finite";
      case Because::kHabit:
        return "it made only -Inf, and the same site did so in an earlier step; this is how masks "
               "are "
               "written";
      case Because::kConstant:
        return "the program wrote a non-finite constant here";
      case Because::kNanOfMask:
        return "its input was a mask, which is not an error; the NaN starts here";
      case Because::kInfToNanHere:
        return "it turned Inf into NaN, and no record says where the Inf came from";
      case Because::kTwin:
        return "its own record was not kept; an earlier value from the same site has this cause";
      default:
        return "the chain ends here because an input was not checked or its record was lost; the "
               "real origin may be earlier";
    }
  }

  [[nodiscard]] std::string NamedParameter() const {
    const std::string& name = incident_.origin().param();
    return name.empty() ? "" : " (" + name + ")";
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
              ", but is not the origin: " + WeaknessText(*input));
    }
    return shown;
  }

  // Lineage starts an origin where no stronger one leads in. So another origin either does not lead
  // here or is weaker.
  [[nodiscard]] static std::string ApartText(const Origin& other) {
    if (other.expected_by != nullptr) {
      return "an ignore rule calls it expected, and an expected value is blamed only if nothing "
             "else explains the origin";
    }
    if (other.IsMask()) return "it is a mask, which is not an error until an op turns it into NaN";
    if (other.strength == Origin::Strength::kMade) {
      return "no record leads from it to this origin";
    }
    return "no record says what made it, and a value whose op is known is the better explanation";
  }

  [[nodiscard]] std::string WeaknessText(const ValueNode& input) const {
    const Origin& behind = lineage_.origins()[static_cast<size_t>(input.origin)];
    switch (behind.strength) {
      case Origin::Strength::kAskedFor:
        return "it is a mask that the program wrote on purpose; a mask is not an error until an op "
               "turns it into NaN";
      case Origin::Strength::kUninitialised:
        return "it is memory that no observed op wrote, and reading that is not an error";
      case Origin::Strength::kUnseen:
        return "no record says where it came from, so it cannot be blamed";
      case Origin::Strength::kMade:
        break;
    }
    return behind.expected_by != nullptr
               ? "an ignore rule calls its origin expected"
               : "it has an origin of its own, which is reported as another incident";
  }

  [[nodiscard]] std::string ClassText() const {
    const Finding& origin = incident_.origin();
    const Origin& source = *draft_.origin;
    if (source.IsReceived()) return "the record names the collective that delivered it";
    if (source.IsExternal()) {
      return "its input held " + KindsText(source.kinds) + ", and no record says what wrote it";
    }
    const bool restated = source.site != nullptr && static_cast<uint32_t>(source.finding_class) !=
                                                        source.site->finding_class();
    if (restated)
      return "the job recorded that it passed on a mask, but the NaN in its output is new";
    std::string text = "the job recorded this class";
    text += origin.inputs_seen()      ? " after checking its inputs"
            : origin.inputs().empty() ? " without checking its inputs"
                                      : " after checking the inputs that autograd had kept";
    if (source.kinds != 0) text += "; the op wrote " + KindsText(source.kinds);
    return text;
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

  [[nodiscard]] static std::string SourceText(const ValueNode& node) {
    if (node.record == nullptr || !node.record->has_value())
      return "a source that was not recorded";
    for (const RecordSource& source : node.record->value().sources()) {
      if (source.kind() == static_cast<uint32_t>(wire::SourceKind::kExternal)) {
        return std::string(TargetText(source.target())) +
               (source.name().empty() ? "" : " (" + source.name() + ")");
      }
      if (source.kind() == static_cast<uint32_t>(wire::SourceKind::kCollective)) {
        return "a collective";
      }
    }
    return "a source that was not recorded";
  }

  // "the loss", "an optimizer state": what the rest of the sentence is about.
  [[nodiscard]] static std::string Titled(const std::string& reach) {
    if (reach == "optimizer_state") return "the optimizer's state";
    if (reach == "loss") return "the loss";
    return "a " + reach;
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
    const std::string record = "record " + std::to_string(event.ticket);
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
               by + Plural(event.count, "leaf", "leaves") + JudgementText(event);
      case ReachEvent::How::kUpdate:
        return record + step + " says that an update left it bad" + name + ", " + by +
               Plural(event.count, "parameter", "parameters") + JudgementText(event);
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
      case ReachEvent::How::kFirstReach:
        return "the list of first reaches, from which nothing is ever dropped, names " + record +
               name + ", " + by + JudgementText(event);
    }
    return record;
  }

  [[nodiscard]] static std::string Plural(uint32_t count, std::string_view one,
                                          std::string_view many) {
    if (count < 2) return "";
    return ", and " + std::to_string(count) + " " + std::string(count == 1 ? one : many) +
           " in all were bad at that point";
  }

  [[nodiscard]] static std::string JudgementText(const ReachEvent& event) {
    if (event.deliberate) return "; the program wrote this constant on purpose, so it is harmless";
    if (event.excused) return "; a GradScaler found it and skipped the update, so it is harmless";
    if (event.unapplied) {
      return "; the training went on and no update used it";
    }
    return "";
  }

  [[nodiscard]] std::string SeverityText() const {
    if (!incident_.expected_by().empty()) {
      return "one of your ignore rules calls it expected, whatever it reached";
    }
    if (!draft_.anomalous) {
      const bool no_further = draft_.reach.size() <= 1;
      return no_further ? "no record leads from it to a loss, a gradient, a parameter or a buffer, "
                          "and a bad value that reaches none of them is harmless"
                        : "everything it reached was written on purpose, skipped by a GradScaler, "
                          "or never applied";
    }
    if (incident_.ended_job()) {
      return "the job ended with an error in the same step before anything used the value, so the "
             "value may be the reason for the error";
    }
    if (incident_.severity() == "critical") {
      return "it stays in parameters, a buffer or the optimizer's state, so later steps are wrong "
             "too";
    }
    if (incident_.severity() == "warning") {
      return "the program read it as a number, but the training did not use it";
    }
    return "it reached the loss or gradients, but nothing that outlasts the step";
  }

  const IncidentDraft& draft_;
  const Lineage& lineage_;
  const Incident& incident_;
  Explanation& explanation_;
};

}  // namespace

std::string NameOf(const Finding& finding) {
  std::string what;
  const auto add = [&what](const std::string& part) {
    if (!part.empty()) what += (what.empty() ? "" : ", ") + part;
  };
  add(finding.op());
  add(finding.param());
  add(finding.layer().empty() ? "outside any module" : finding.layer());
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
