#include "daemon/report/incident_text.h"

#include <algorithm>

#include "daemon/correlate/finding.h"
#include "daemon/report/kernel_text.h"
#include "daemon/report/sample_text.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/trail_text.h"

namespace nanwatch {
namespace {

constexpr size_t kLayerColumnsMax = 56;
constexpr size_t kExpectedByColumnsMax = 120;
constexpr int kTensorsShownMax = 2;
constexpr int kOpsBeforeShownMax = 2;

bool Reaches(const Incident& incident, std::string_view reach) {
  return std::find(incident.reach().begin(), incident.reach().end(), reach) !=
         incident.reach().end();
}

// What it is by now: the furthest link that has numbers tells.
std::string BadWord(const google::protobuf::RepeatedPtrField<TensorStats>& tensors) {
  bool inf = false;
  for (const TensorStats& tensor : tensors) {
    if (tensor.nan() > 0) return "NaN";
    inf |= tensor.pos_inf() + tensor.neg_inf() > 0;
  }
  return inf ? "Inf" : "";
}

std::string BadWord(const Incident& incident) {
  for (int i = incident.chain_size() - 1; i >= 0; --i) {
    const std::string word = BadWord(incident.chain(i).outputs());
    if (!word.empty()) return word;
  }
  const std::string word = BadWord(incident.origin().outputs());
  return word.empty() ? "a non-finite value" : word;
}

std::string Place(const Finding& finding) {
  std::string place = Shorten(Printable(finding.layer()), kLayerColumnsMax);
  // The outermost module has no path of its own.
  if (place.empty() && !finding.layer_type().empty()) place = "the whole model";
  if (!finding.layer_type().empty()) place += " (" + Printable(finding.layer_type()) + ")";
  return place;
}

std::string StepText(const Finding& finding) {
  return finding.step() < 0 ? "step unknown"
                            : "step " + Grouped(static_cast<uint64_t>(finding.step()));
}

bool IsUnseen(const Finding& finding, std::string_view what) {
  return std::find(finding.unseen().begin(), finding.unseen().end(), what) !=
         finding.unseen().end();
}

// Whether another op may have been the first, and not only another step.
bool IsOpInDoubt(const Finding& origin) {
  return !origin.exact() && !(origin.unseen_size() == 1 && IsUnseen(origin, "turns"));
}

// The step, and how else its time is counted where that differs.
std::string StepInFull(const Finding& finding) {
  std::string text = StepText(finding);
  if (finding.step() < 0) return text;
  if (finding.iteration() > finding.step()) {
    text += " (iteration " + Grouped(static_cast<uint64_t>(finding.iteration())) +
            ", counting updates that the scaler skipped)";
  }
  if (finding.updates() > 0) {
    text +=
        " (after " + Counted(static_cast<uint64_t>(finding.updates()), "update") +
        " by several optimizers; a step is one update of the optimizer that updates least often)";
  }
  if (IsUnseen(finding, "turns")) {
    text +=
        " (counted by the optimizer at work then; too few updates show whether several optimizers "
        "take turns)";
  }
  return text;
}

std::string BufferName(const Incident& incident) {
  for (const Finding& link : incident.chain()) {
    if (link.reach() == "buffer" && !link.param().empty()) return Printable(link.param());
  }
  return "";
}

// ---- origin

std::string WhereText(const Finding& origin) {
  std::string where = StepInFull(origin) + ", ";
  if (origin.kind() == "input_data")
    return where + "the input batch" + (origin.layer().empty() ? "" : ", into " + Place(origin));
  const bool nameless = origin.op().empty() && !origin.param().empty();
  if (nameless) return where + "parameter " + Shorten(Printable(origin.param()), kLayerColumnsMax);
  if (origin.kind() == "parameter" || origin.kind() == "buffer" || origin.kind() == "optimizer") {
    where += origin.kind() == "optimizer" ? "optimizer" : origin.kind();
    if (origin.kind() == "optimizer" && !origin.param().empty()) where += ", parameter";
    if (!origin.param().empty())
      where += " " + Shorten(Printable(origin.param()), kLayerColumnsMax);
    if (!origin.layer_type().empty()) where += " (" + Printable(origin.layer_type()) + ")";
    return where;
  }
  where += origin.phase().empty() ? "other" : origin.phase();
  if (origin.recompute()) where += " (recomputed)";
  const std::string place = Place(origin);
  if (!place.empty()) return where + ", " + place;
  if (!origin.param().empty()) return where + ", parameter " + Printable(origin.param());
  return where + ", outside any module";
}

// Why it may not be the op that is named.
std::string UnseenText(const Finding& origin) {
  const auto is = [&origin](const char* what) { return IsUnseen(origin, what); };
  if (origin.class_() == "external") {
    if (!origin.candidates().empty()) {
      const PossibleMaker& candidate = origin.candidates(0);
      const std::string where =
          candidate.source().empty() ? "" : " at " + Printable(candidate.source());
      const bool here = candidate.run() == origin.run();
      return ", perhaps made by " + Printable(candidate.op()) + where +
             (here ? ", whose result Python read as a number"
                   : " in process " + std::to_string(candidate.pid()));
    }
    if (is("parent")) return ", or made in the process this one was forked from";
    if (is("level")) return ", or made by an op that ran while fewer ops were checked";
    if (is("measuring"))
      return ", or made while nanwatch had switched its checks off to measure its own cost";
    return ", or made by an op that was not observed";
  }
  if (is("measuring"))
    return ", or an op before it, while nanwatch had its checks off to measure its own cost";
  if (is("ops") || origin.unseen().empty()) return ", or an op before it that was not observed";
  if (is("level")) return ", or an op before it that ran while fewer ops were checked";
  return ", or its inputs: not all of them were checked";
}

std::string WhatText(const Finding& origin) {
  const std::string op = Printable(origin.op());
  const std::string bad = BadWord(origin.outputs());
  if (origin.kind() == "unknown" && op.empty()) return "the op that made it was not observed";
  const std::string doubt = IsOpInDoubt(origin) ? UnseenText(origin) : "";
  if (origin.kind() == "input_data")
    return "already in the batch" + doubt + "; first used by " + op;
  if (origin.class_() == "external") return "already there" + doubt + "; first read by " + op;
  if (origin.class_() == "received") return op + ", received in a collective from another rank";
  std::string text = op;
  if (!origin.autograd_node().empty()) text += " in " + Printable(origin.autograd_node());
  if (IsOpInDoubt(origin)) return text + UnseenText(origin);
  if (origin.class_() == "produce")
    return text + ", made " + (bad.empty() ? "it" : bad) + " from finite values";
  if (origin.class_() == "inf_to_nan") return text + ", Inf became NaN";
  if (origin.class_() == "scalar") return text + ", a constant of the program";
  return text;
}

// What happened, and the user's own line at the right, where the eye finds it.
std::string WhatRows(const Finding& origin, int width) {
  std::string what = WhatText(origin);
  const std::string source = Printable(origin.source());
  if (source.empty()) return Row("", what, width);
  const size_t room = static_cast<size_t>(width - kLabelColumns);
  if (what.size() + 2 + source.size() > room) return Row("", what, width) + Row("", source, width);
  what.resize(std::max(what.size() + 2, std::min<size_t>(56, room - source.size())), ' ');
  return std::string(kLabelColumns, ' ') + what + source + "\n";
}

std::string CallerRows(const Finding& origin, int width) {
  std::string rows;
  for (const std::string& caller : origin.callers()) {
    rows += Row(rows.empty() ? "called by" : "", Printable(caller), width);
  }
  return rows;
}

std::string OriginRows(const Finding& origin, int width) {
  return Row("origin", WhereText(origin), width) + WhatRows(origin, width) +
         KernelRow(origin, width) + CallerRows(origin, width) + SampleRow(origin, width);
}

// ---- tensors

std::string TensorText(const TensorStats& tensor, bool with_index) {
  std::string text = tensor.dtype() + " [";
  for (int i = 0; i < tensor.shape_size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(tensor.shape(i));
  text += "]";
  const auto add = [&](std::string_view word, uint64_t count) {
    if (count > 0) text += "   " + std::string(word) + " " + Grouped(count);
  };
  add("NaN", tensor.nan());
  add("Inf", tensor.pos_inf());
  add("-Inf", tensor.neg_inf());
  const uint64_t bad = tensor.nan() + tensor.pos_inf() + tensor.neg_inf();
  const auto numel = static_cast<uint64_t>(std::max<int64_t>(tensor.numel(), 0));
  if (bad > 0) text += " of " + Grouped(numel);
  if (bad < numel)
    text += "   finite " + Brief(tensor.finite_min()) + " .. " + Brief(tensor.finite_max());
  if (numel == 0) text += "   empty";
  if (with_index && !tensor.first_bad_index().empty()) {
    text += "   first at [";
    for (int i = 0; i < tensor.first_bad_index_size(); ++i) {
      text += (i > 0 ? ", " : "") + std::to_string(tensor.first_bad_index(i));
    }
    text += "]";
  }
  if (!tensor.role().empty()) text += "   " + Printable(tensor.role());
  return text;
}

std::string TensorRows(const char* label,
                       const google::protobuf::RepeatedPtrField<TensorStats>& tensors,
                       bool with_index, int width) {
  std::string rows;
  int shown = 0;
  for (const TensorStats& tensor : tensors) {
    if (shown == kTensorsShownMax) break;
    rows += Row(shown == 0 ? label : "", TensorText(tensor, with_index), width);
    ++shown;
  }
  return rows;
}

// ---- the way it took

std::string LinkText(const Incident& incident, const Finding& link) {
  const std::string bad = BadWord(link.outputs());
  if (link.reach() == "loss")
    return Printable(link.op()) + (link.op().empty() ? "loss " : ": loss ") +
           (bad.empty() ? "not finite" : bad);
  if (link.reach() == "gradient") {
    return incident.gradients() > 0 ? "gradients of " + Counted(incident.gradients(), "parameter")
                                    : "gradients";
  }
  if (link.reach() == "parameter") {
    return incident.parameters() > 0 ? Counted(incident.parameters(), "parameter") : "parameters";
  }
  if (link.reach() == "optimizer_state") return "the optimizer's state";
  if (link.reach() == "buffer") return "buffer " + Printable(link.param());
  if (link.reach() == "metric")
    return Printable(link.op()) + ": read as a number, " + (bad.empty() ? "not finite" : bad);
  std::string text = Printable(link.op());
  if (link.class_() == "inf_to_nan") text += " (Inf became NaN)";
  if (!link.layer().empty()) text += ", " + Shorten(Printable(link.layer()), kLayerColumnsMax);
  return text;
}

// Every link that reached something, where Inf became NaN, and the first that merely passed it on.
std::string ThenText(const Incident& incident) {
  std::string text;
  bool gap = false;
  bool first = true;
  std::string told = incident.origin().reach();
  if (told == "loss") text = "the loss itself";
  if (told == "buffer") text = "buffer " + BufferName(incident);
  for (int i = 1; i < incident.chain_size(); ++i) {
    const Finding& link = incident.chain(i);
    const bool told_in_full = first || !link.reach().empty() || link.class_() == "inf_to_nan";
    first = false;
    if (!told_in_full) {
      gap = true;
      continue;
    }
    if (gap) text += " > ...";
    gap = false;
    text += (text.empty() ? "" : " > ") + LinkText(incident, link);
  }
  const bool state_told = text.find("optimizer's state") != std::string::npos;
  if (Reaches(incident, "optimizer_state") && !state_told)
    text += (text.empty() ? "" : " and ") + std::string("the optimizer's state");
  return text;
}

// Without a pattern there is still something to do; what, depends on what was seen.
std::string UnexplainedRows(const Finding& origin, int width) {
  if (origin.kind() == "unknown" || MayBeAnotherOp(origin)) {
    return Row("why", "unknown: the op that made it was not checked, or its record was lost",
               width) +
           Row("do",
               "run it again from the start with " + Glued("`nanwatch run --level full`") +
                   ", which checks every op",
               width);
  }
  if (origin.inputs().empty()) {
    return Row("why", "no known pattern fits, and the op's inputs were not recorded", width) +
           Row("do",
               "inspect what goes into this op at this step (a breakpoint or a print at its line)",
               width);
  }
  return Row("why", "no known pattern fits; the op's input and output are shown above", width) +
         Row("do", "check whether the op can handle inputs in that range, and where they come from",
             width);
}

std::string ReasonRows(const Incident& incident, int width) {
  if (!incident.has_pattern()) return UnexplainedRows(incident.origin(), width);
  const Pattern& pattern = incident.pattern();
  std::string why = pattern.cause();
  if (!pattern.evidence().empty()) why += " (" + pattern.evidence() + ")";
  return Row("why", Printable(why), width) + Row("do", Printable(pattern.fix()), width);
}

}  // namespace

std::string Headline(const Incident& incident) {
  const std::string bad = BadWord(incident);
  if (incident.ended_job()) {
    const bool step_known = incident.origin().step() >= 0;
    return bad + " before the error that ended the job" +
           (step_known ? ", at " + StepText(incident.origin()) : "");
  }
  std::string text = bad + " reached ";
  if (Reaches(incident, "parameter")) {
    text += "the parameters";
  } else if (Reaches(incident, "optimizer_state")) {
    text += "the optimizer's state";
  } else if (Reaches(incident, "gradient")) {
    text += "the gradients";
  } else if (Reaches(incident, "buffer")) {
    const std::string name = BufferName(incident);
    text += name.empty() ? "a buffer" : "the buffer " + name;
  } else if (Reaches(incident, "loss")) {
    text += "the loss";
  } else if (Reaches(incident, "metric")) {
    text += "a metric (a number that the program reads without gradients)";
  } else {
    text += "no further than an activation";
  }
  if (incident.origin().step() >= 0) text += " at " + StepText(incident.origin());
  return text;
}

std::string IncidentRows(const Incident& incident, int width) {
  const Finding& origin = incident.origin();
  std::string rows = TrailRows(incident, kOpsBeforeShownMax, width) + OriginRows(origin, width);
  rows += TensorRows("input", origin.inputs(), false, width);
  rows += TensorRows("output", origin.outputs(), true, width);
  const std::string then = ThenText(incident);
  if (!then.empty()) rows += Row("then", then, width);
  if (incident.count() > 1 && incident.last_step() > incident.first_step()) {
    rows += Row("again",
                Counted(incident.count(), "finding") + ", steps " +
                    Grouped(static_cast<uint64_t>(incident.first_step())) + " to " +
                    Grouped(static_cast<uint64_t>(incident.last_step())),
                width);
  }
  return rows + ReasonRows(incident, width);
}

std::string IncidentSummary(const Incident& incident) {
  const Finding& origin = incident.origin();
  std::string text = WhatText(origin);
  const std::string place = Place(origin);
  if (!place.empty()) text += ", " + place;
  text += ": " + Counted(incident.count(), "finding");
  if (incident.first_step() >= 0) {
    text += incident.first_step() == incident.last_step() ? ", step " : ", steps ";
    text += Grouped(static_cast<uint64_t>(incident.first_step()));
    if (incident.last_step() != incident.first_step()) {
      text += " to " + Grouped(static_cast<uint64_t>(incident.last_step()));
    }
  }
  return text;
}

std::string RuleText(const Incident& incident) {
  if (incident.expected_by().empty()) return "";
  // In order of the enumeration, so the last that is named got furthest; one that got nowhere needs
  // no rule.
  std::string furthest;
  for (const std::string& reach : incident.reach()) {
    furthest = reach == "optimizer_state" ? "optimizer's state" : reach;
  }
  return "it reached the " + furthest + ", which is expected by the rule '" +
         Shorten(Printable(incident.expected_by()), kExpectedByColumnsMax) + "'";
}

}  // namespace nanwatch
