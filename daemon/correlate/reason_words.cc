// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/reason_words.h"

#include <string_view>

#include "daemon/correlate/wire_names.h"

namespace nanwatch {
namespace {

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

}  // namespace

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

std::string OriginText(const Lineage& lineage, const Origin& origin, const std::string& parameter) {
  if (origin.IsReceived()) {
    return "a collective delivered it, and there are no records from the rank that sent it";
  }
  if (origin.IsExternal()) {
    return "its input was bad before any observed op wrote to it; the input is " +
           std::string(TargetText(origin.target)) +
           (parameter.empty() ? "" : " (" + parameter + ")") +
           ", and no earlier record says what made it bad";
  }
  if (origin.node < 0) return "no record says how the value was made";
  switch (lineage.nodes()[static_cast<size_t>(origin.node)].because) {
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

// Lineage starts an origin where no stronger one leads in. So another origin either does not lead
// here or is weaker.
std::string ApartText(const Origin& other) {
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

std::string WeaknessText(const Origin& behind) {
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

std::string ClassText(const Origin& source, const Finding& origin) {
  if (source.IsReceived()) return "the record names the collective that delivered it";
  if (source.IsExternal()) {
    return "its input held " + KindsText(source.kinds) + ", and no record says what wrote it";
  }
  const bool restated = source.site != nullptr &&
                        static_cast<uint32_t>(source.finding_class) != source.site->finding_class();
  if (restated)
    return "the job recorded that it passed on a mask, but the NaN in its output is new";
  std::string text = "the job recorded this class";
  text += origin.inputs_seen()      ? " after checking its inputs"
          : origin.inputs().empty() ? " without checking its inputs"
                                    : " after checking the inputs that autograd had kept";
  if (source.kinds != 0) text += "; the op wrote " + KindsText(source.kinds);
  return text;
}

std::string SourceText(const ValueNode& node) {
  if (node.record == nullptr || !node.record->has_value()) return "a source that was not recorded";
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
std::string ReachTitle(const std::string& reach) {
  if (reach == "optimizer_state") return "the optimizer's state";
  if (reach == "loss") return "the loss";
  return "a " + reach;
}

std::string OthersText(uint32_t count, std::string_view one, std::string_view many) {
  if (count < 2) return "";
  return ", and " + std::to_string(count) + " " + std::string(count == 1 ? one : many) +
         " in all were bad at that point";
}

std::string JudgementText(const ReachEvent& event) {
  if (event.deliberate) return "; the program wrote this constant on purpose, so it is harmless";
  if (event.excused) return "; a GradScaler found it and skipped the update, so it is harmless";
  if (event.unapplied) {
    return "; the training went on and no update used it";
  }
  return "";
}

std::string SeverityText(const IncidentDraft& draft, const Incident& incident) {
  if (!incident.expected_by().empty()) {
    return "one of your ignore rules calls it expected, whatever it reached";
  }
  if (!draft.anomalous) {
    const bool no_further = draft.reach.size() <= 1;
    return no_further ? "no record leads from it to a loss, a gradient, a parameter or a buffer, "
                        "and a bad value that reaches none of them is harmless"
                      : "everything it reached was written on purpose, skipped by a GradScaler, "
                        "or never applied";
  }
  if (incident.ended_job()) {
    return "the job ended with an error in the same step before anything used the value, so the "
           "value may be the reason for the error";
  }
  if (incident.severity() == "critical") {
    return "it stays in parameters, a buffer or the optimizer's state, so later steps are wrong "
           "too";
  }
  if (incident.severity() == "warning") {
    return "the program read it as a number, but the training did not use it";
  }
  return "it reached the loss or gradients, but nothing that outlasts the step";
}

}  // namespace nanwatch
