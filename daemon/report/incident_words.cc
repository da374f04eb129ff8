// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/incident_words.h"

#include <fmt/format.h>
#include <algorithm>

#include "daemon/correlate/chain.h"
#include "daemon/correlate/origin_finding.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/training_text.h"

namespace nanwatch {
namespace {

constexpr size_t kExpectedByColumnsMax = 120;
constexpr size_t kRunIdShown = 8;
// Of a layer in a summary: less says nothing.
constexpr size_t kPlaceColumnsMin = 24;

bool IsUnseen(const Finding& finding, std::string_view what) {
  return std::find(finding.unseen().begin(), finding.unseen().end(), what) !=
         finding.unseen().end();
}

// Whether another op may have been the first, and not only another step.
bool IsOpInDoubt(const Finding& origin) {
  return !origin.exact() && !(origin.unseen_size() == 1 && IsUnseen(origin, "turns"));
}

bool HasFiniteInputs(const Finding& origin) {
  return !origin.inputs().empty() && BadWord(origin.inputs()).empty();
}

// Why it may not be the op that is named.
std::string UnseenText(const Finding& origin) {
  const auto is = [&origin](const char* what) { return IsUnseen(origin, what); };
  if (origin.unseen_size() == 1) {
    if (is("ranks")) return ", or an op before it on a rank that was not heard of to the end";
    if (is("findings")) return ", or an op before it whose record is not here yet";
    if (is("launch")) return ", or an op of another launch: only clocks tell them apart";
  }
  if (is("beside")) return ", or something else that was bad and was read together with it";
  if (origin.class_() == "external") {
    if (!origin.candidates().empty()) {
      const PossibleMaker& candidate = origin.candidates(0);
      const std::string where =
          candidate.source().empty() ? "" : " at " + Printable(candidate.source());
      const bool here = candidate.run() == origin.run();
      return ", possibly made by " + Printable(candidate.op()) + where +
             (here ? ", whose result may have come back by numpy, a file or a number"
                   : " in process " + std::to_string(candidate.pid()));
    }
    if (is("writer"))
      return origin.kind() == "input_data" ? "" : ", though no observed op wrote it";
    if (is("sampled")) return ", or made by an op whose result was read in part only";
    if (is("parent")) return ", or made in the process this one was forked from";
    if (is("level")) return ", or made by an op that ran while fewer ops were checked";
    if (is("measuring"))
      return ", or made while nanwatch had switched its checks off to measure its own cost";
    return ", or made by an op that was not observed";
  }
  if (is("measuring"))
    return ", or an op before it that ran while nanwatch had switched its checks off to measure "
           "its "
           "own cost";
  if (is("sampled")) return ", or an op before it whose result was read in part only";
  if (is("ops") || origin.unseen().empty()) return ", or an op before it that was not observed";
  if (is("level")) return ", or an op before it that ran while fewer ops were checked";
  if (HasFiniteInputs(origin))
    return ", whose recorded inputs are finite; another input may have been bad already";
  return ", unless an input was already bad: not all of its inputs were checked";
}

std::string ProgramOf(const Verdict& verdict, const std::string& run_id) {
  for (const RunInfo& run : verdict.runs()) {
    if (run.id() == run_id) return run.program();
  }
  return verdict.run().program();
}

// "train.py, run 7f3a21c0, rank 0".
std::string ProcessText(const std::string& program, const std::string& run_id, int rank) {
  return (program.empty() ? "" : Printable(program) + ", ") + "run " +
         Printable(run_id.substr(0, kRunIdShown)) + ", rank " + std::to_string(rank);
}

std::string ReachText(const Incident& incident) {
  if (!incident.reach().empty())
    return Printable(fmt::format("reached {}", fmt::join(incident.reach(), ", ")));
  return incident.ended_job() ? "an error ended the job before it reached anything"
                              : "reached nothing";
}

// What stays as it is, and the doubt between, which may be cut.
struct WhatParts {
  std::string before;
  std::string doubt = {};
  std::string after = {};
};

WhatParts PartsOf(const Finding& origin) {
  const std::string op = Printable(origin.op());
  const std::string bad = BadWord(origin.outputs());
  if (origin.kind() == "unknown" && op.empty()) return {"the op that made it was not observed"};
  const std::string doubt = IsOpInDoubt(origin) ? UnseenText(origin) : "";
  if (origin.kind() == "input_data") {
    const bool is_unfilled = IsUnseen(origin, "writer");
    return {is_unfilled ? "already there, though no observed op wrote it" : "already in the batch",
            doubt, "; first used by " + op};
  }
  if (origin.class_() == "external") {
    // Only an update is given something bad that has a name and is neither parameter nor buffer.
    const bool is_gradient = origin.kind() == "unknown" && !origin.param().empty();
    return {(is_gradient ? "the gradient of " + Printable(origin.param()) + " was " : "") +
                "already bad",
            doubt, "; first read by " + op};
  }
  if (origin.class_() == "received") return {op + ", received in a collective from another rank"};
  std::string text = op;
  if (!origin.autograd_node().empty()) text += " in " + Printable(origin.autograd_node());
  if (IsOpInDoubt(origin)) return {text, doubt};
  if (origin.class_() == "produce")
    return {text + ", made " + (bad.empty() ? "it" : bad) + " from finite values"};
  if (origin.class_() == "inf_to_nan") return {text + ", Inf became NaN"};
  if (origin.class_() == "scalar") return {text + ", a constant written by the program"};
  return {text};
}

// ": 3 findings, steps 4 to 7".
std::string CountText(const Incident& incident) {
  std::string text = ": " + Counted(incident.count(), "finding");
  if (incident.first_step() < 0) return text;
  text += incident.first_step() == incident.last_step() ? ", step " : ", steps ";
  text += Grouped(static_cast<uint64_t>(incident.first_step()));
  if (incident.last_step() != incident.first_step())
    text += " to " + Grouped(static_cast<uint64_t>(incident.last_step()));
  return text;
}

}  // namespace

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
    std::string word = BadWord(incident.chain(i).outputs());
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

// The step, and how else its time is counted where that differs.
std::string StepInFull(const Finding& finding) {
  std::string text = (WasReadLater(finding) ? "by " : "") + StepText(finding);
  if (finding.step() < 0) {
    if (finding.micro_step() <= 0 || !IsUnseen(finding, "writer")) return text;
    return text + " (after " + Grouped(static_cast<uint64_t>(finding.micro_step())) +
           (finding.micro_step() == 1 ? " backward pass" : " backward passes") +
           "; no op was seen to update a parameter)";
  }
  if (finding.iteration() > finding.step()) {
    text += " (iteration " + Grouped(static_cast<uint64_t>(finding.iteration())) +
            ", counting updates that the scaler skipped)";
  }
  if (finding.updates() > 0) {
    text +=
        " (after " + Counted(static_cast<uint64_t>(finding.updates()), "update") +
        " by several optimizers; a step is one update of the optimizer that updates least often)";
  }
  if (IsUnseen(finding, "turns") && finding.step_source() == "backward") {
    text += " (no op was seen to update a parameter: the step may be a later one)";
  } else if (IsUnseen(finding, "turns")) {
    text +=
        " (counted for the optimizer that ran then; there were too few updates to tell whether "
        "several optimizers take turns)";
  }
  return text;
}

std::string ReachedText(const Incident& incident, const Finding& link) {
  if (link.reach() == "gradient") {
    return incident.gradients() > 0 ? "gradients of " + Counted(incident.gradients(), "parameter")
                                    : "gradients";
  }
  if (link.reach() == "parameter") {
    return incident.parameters() > 0 ? Counted(incident.parameters(), "parameter") : "parameters";
  }
  if (link.reach() == "optimizer_state") return "the optimizer's state";
  return "";
}

std::string BufferName(const Incident& incident) {
  for (const Finding& link : incident.chain()) {
    if (link.reach() == "buffer" && !link.param().empty()) return Printable(link.param());
  }
  return "";
}

std::string SiteText(const Finding& origin) {
  const std::string place = Place(origin);
  if (origin.kind() == "input_data")
    return std::string(origin.phase() == "backward" ? "a gradient or a saved tensor"
                                                    : "the input batch") +
           (place.empty() ? "" : ", into " + place);
  const bool nameless = origin.op().empty() && !origin.param().empty();
  if (nameless) return "parameter " + Shorten(Printable(origin.param()), kLayerColumnsMax);
  if (origin.kind() == "parameter" || origin.kind() == "buffer" || origin.kind() == "optimizer") {
    std::string where = origin.kind() == "optimizer" ? "optimizer" : origin.kind();
    if (origin.kind() == "optimizer" && !origin.param().empty()) where += ", parameter";
    if (!origin.param().empty())
      where += " " + Shorten(Printable(origin.param()), kLayerColumnsMax);
    if (!origin.layer_type().empty()) where += " (" + Printable(origin.layer_type()) + ")";
    return where;
  }
  std::string where = origin.phase().empty() ? "other" : Printable(origin.phase());
  if (origin.recompute()) where += " (recomputed)";
  if (!place.empty()) return where + ", " + place;
  if (!origin.param().empty()) return where + ", parameter " + Printable(origin.param());
  return where + ", outside any module";
}

std::string WhatText(const Finding& origin) {
  const WhatParts what = PartsOf(origin);
  return what.before + what.doubt + what.after;
}

std::string IncidentSummary(const Incident& incident, size_t columns_max) {
  const Finding& origin = incident.origin();
  const WhatParts what = PartsOf(origin);
  const std::string count = CountText(incident);
  std::string place = Place(origin);
  const auto left = [columns_max](size_t taken) {
    return columns_max - std::min(columns_max, taken);
  };
  size_t taken = CellsOf(what.before) + CellsOf(what.after) + CellsOf(count);
  if (!place.empty()) {
    place =
        ", " + Shorten(place, std::max(kPlaceColumnsMin, left(taken + CellsOf(what.doubt) + 2)));
    taken += CellsOf(place);
  }
  return what.before + FirstWords(what.doubt, left(taken)) + what.after + place + count;
}

std::string IncidentLine(const Verdict& verdict, const Incident& incident) {
  const Finding& origin = incident.origin();
  std::string line = incident.severity() == "info" ? "expected " : "ANOMALY ";
  line += ProcessText(ProgramOf(verdict, origin.run()), origin.run(), origin.rank()) + ": " +
          StepText(origin) + InTraining(verdict, origin) + ", " + SiteText(origin) + ", " +
          WhatText(origin);
  if (!origin.source().empty()) line += ", " + Printable(origin.source());
  if (!incident.expected_by().empty())
    line += ", expected by your rule '" + Printable(incident.expected_by()) + "'";
  return line + "; " + ReachText(incident);
}

std::string WarningLine(const std::string& program, const Warning& warning) {
  return Printable(warning.severity()) + " " + ProcessText(program, warning.run(), warning.rank()) +
         ": " + Printable(warning.evidence()) + "; " + Printable(warning.cause());
}

std::string WarningLine(const Verdict& verdict, const Warning& warning) {
  return WarningLine(ProgramOf(verdict, warning.run()), warning);
}

std::string RuleText(const Incident& incident) {
  if (incident.expected_by().empty()) return "";
  // In order of the enumeration, so the last that is named got furthest; one that got nowhere needs
  // no rule.
  std::string furthest;
  for (const std::string& reach : incident.reach()) {
    furthest = reach == "optimizer_state" ? "optimizer's state" : reach;
  }
  return "it reached the " + Printable(furthest) + "; your rule '" +
         Shorten(Printable(incident.expected_by()), kExpectedByColumnsMax) + "' expects this";
}

std::string RanksText(const Incident& incident) {
  constexpr int kRanksNamedMax = 16;
  std::string own = std::to_string(incident.origin().rank());
  const int others = incident.ranks_size() - 1;
  if (others < 1) return own;
  std::string named;
  for (const int32_t rank : incident.ranks()) {
    if (others <= kRanksNamedMax && rank != incident.origin().rank())
      named += (named.empty() ? ": " : ", ") + std::to_string(rank);
  }
  return own + "; the same on " + Counted(static_cast<uint64_t>(others), "other") + named;
}

}  // namespace nanwatch
