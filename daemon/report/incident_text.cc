// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/incident_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/correlate/chain.h"
#include "daemon/correlate/origin_finding.h"
#include "daemon/report/incident_words.h"
#include "daemon/report/kernel_text.h"
#include "daemon/report/sample_text.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/trail_text.h"

namespace nanwatch {
namespace {

constexpr int kTensorsShownMax = 2;
constexpr int kOpsBeforeShownMax = 2;

// ---- origin

// What happened, and the user's own line at the right, where the eye finds it.
std::string WhatRows(const Finding& origin, int width) {
  const std::string what = WhatText(origin);
  const std::string source = Printable(origin.source());
  if (source.empty()) return Row("", what, width);
  const size_t room = static_cast<size_t>(width - kLabelColumns);
  const size_t taken = CellsOf(what) + 2;
  if (taken + CellsOf(source) > room) return Row("", what, width) + Row("", source, width);
  const size_t column = std::max(taken, std::min<size_t>(56, room - CellsOf(source)));
  return std::string(kLabelColumns, ' ') + FillCells(what, column, /*right=*/false) + source + "\n";
}

std::string CallerRows(const Finding& origin, int width) {
  std::string rows;
  for (const std::string& caller : origin.callers()) {
    rows += Row(rows.empty() ? "called by" : "", Printable(caller), width);
  }
  return rows;
}

std::string OriginRows(const Finding& origin, int width, const std::string& source_path) {
  return Row("origin", StepInFull(origin) + ", " + SiteText(origin), width) +
         WhatRows(origin, width) + (source_path.empty() ? "" : Row("file", source_path, width)) +
         KernelRow(origin, width) + CallerRows(origin, width) + SampleRow(origin, width);
}

// ---- tensors

// Parts with blanks between them: a line ends between two parts, not within one.
std::string TensorText(const TensorStats& tensor, bool with_index) {
  std::string text = Glued(fmt::format("{} [{}]", tensor.dtype(), fmt::join(tensor.shape(), ", ")));
  const auto add = [&](const std::string& part) { text += "   " + Glued(part); };
  const uint64_t bad = tensor.nan() + tensor.pos_inf() + tensor.neg_inf();
  const auto numel = static_cast<uint64_t>(std::max<int64_t>(tensor.numel(), 0));
  uint64_t named = 0;
  for (const auto& [word, count] :
       {std::pair("NaN", tensor.nan()), {"Inf", tensor.pos_inf()}, {"-Inf", tensor.neg_inf()}}) {
    if (count == 0) continue;
    named += count;
    const std::string of = named == bad ? " of " + Grouped(numel) : "";
    add(word + (" " + Grouped(count)) + of);
  }
  if (bad < numel)
    add("finite " + Brief(tensor.finite_min()) + " .. " + Brief(tensor.finite_max()));
  if (numel == 0) add("empty");
  if (with_index && !tensor.first_bad_index().empty())
    add(fmt::format("first at [{}]", fmt::join(tensor.first_bad_index(), ", ")));
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

// ---- the path it took

std::string LinkText(const Incident& incident, const Finding& link) {
  const std::string bad = BadWord(link.outputs());
  if (link.reach() == "loss")
    return Printable(link.op()) + (link.op().empty() ? "" : ": ") +
           (bad.empty() ? "loss (not finite)" : "loss " + bad);
  if (std::string reached = ReachedText(incident, link); !reached.empty()) return reached;
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
  const std::string& reach = incident.origin().reach();
  if (reach == "loss") text = "the loss itself";
  if (reach == "buffer") text = "buffer " + BufferName(incident);
  for (int i = 1; i < incident.chain_size(); ++i) {
    const Finding& link = incident.chain(i);
    const bool is_shown = first || !link.reach().empty() || link.class_() == "inf_to_nan";
    first = false;
    if (!is_shown) {
      gap = true;
      continue;
    }
    if (gap) text += " > ...";
    gap = false;
    text += (text.empty() ? "" : " > ") + LinkText(incident, link);
  }
  const bool state_shown = text.find("optimizer's state") != std::string::npos;
  if (Reaches(incident, "optimizer_state") && !state_shown)
    text += (text.empty() ? "" : ", and ") + std::string("the optimizer's state");
  return text;
}

bool HasReadNan(const Finding& origin) {
  return std::any_of(origin.inputs().begin(), origin.inputs().end(),
                     [](const auto& input) { return input.nan() > 0; });
}

// Without a pattern there is still something to do. What it is depends on what was recorded. Glued.
IncidentReason UnexplainedReason(const Finding& origin) {
  if (MayBeAnotherOp(origin) && origin.unseen().size() <= 1 && HasReadNan(origin)) {
    return {
        "the NaN was in this op's input already, and no op that was checked made it: numpy, an "
        "extension or another thread wrote it, or its record was lost",
        "", "find what else writes this tensor between the ops that make it and this line"};
  }
  if (origin.kind() == "unknown" || MayBeAnotherOp(origin)) {
    return {"unknown: the op that made it was not checked, or its record was lost", "",
            "run it again from the start with " + Glued("`nanwatch run --level full`") +
                ", which checks every op"};
  }
  if (origin.inputs().empty()) {
    return {"no known pattern fits, and the op's inputs were not recorded", "",
            "inspect what goes into this op at this step (a breakpoint or a print at its line)"};
  }
  return {"no known pattern fits; the op's input and output are shown above", "",
          "check whether the op can handle inputs in that range, and where they come from"};
}

std::string ReasonRows(const Incident& incident, int width) {
  if (!incident.has_pattern()) {
    const IncidentReason reason = UnexplainedReason(incident.origin());
    return Row("why", reason.why, width) + Row("do", reason.remedy, width);
  }
  const Pattern& pattern = incident.pattern();
  std::string why = pattern.cause();
  if (!pattern.evidence().empty())
    why += why.ends_with(')') ? "; " + pattern.evidence() : " (" + pattern.evidence() + ")";
  return Row("why", Printable(why), width) + Row("do", Printable(pattern.fix()), width);
}

// What running the op again has shown.
std::string ReplayWords(std::string_view word) {
  if (word == "mathematics")
    return "run again it is bad each time, in float64 too: these numbers have no finite result";
  if (word == "range")
    return "run again it is bad each time, and finite in float64: a number does not fit the type";
  if (word == "kernel_fault") return "run again it differs between runs or kernels on this machine";
  if (word == "not_reproduced")
    return "run again it is finite: what made it bad is not in the op's inputs";
  return "it could not be run again here";
}

std::string ReplayRow(const Incident& incident, int width) {
  if (incident.capsule().empty()) return "";
  const std::string& path = incident.capsule();
  const std::string command = Glued("`nanwatch replay " + path.substr(path.rfind('/') + 1) + "`");
  return Row("replay",
             incident.replay().empty() ? command + " runs this op again with the inputs it had"
                                       : ReplayWords(incident.replay()) + " (" + command + ")",
             width);
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
  std::string_view reach = "activation";
  for (const std::string_view one :
       {"parameter", "optimizer_state", "gradient", "buffer", "loss", "metric"}) {
    if (!Reaches(incident, one)) continue;
    reach = one;
    break;
  }
  if (reach == "parameter") {
    text += "the parameters";
  } else if (reach == "optimizer_state") {
    text += "the optimizer's state";
  } else if (reach == "gradient") {
    text += "the gradients";
  } else if (reach == "buffer") {
    const std::string name = BufferName(incident);
    text += name.empty() ? "a buffer" : "the buffer " + name;
  } else if (reach == "loss") {
    text += "the loss";
  } else if (reach == "metric") {
    text += "a metric (a number that the program reads without gradients)";
  } else {
    text += "no further than an activation";
  }
  const Finding* arrival = LinkThatReached(incident, reach);
  const Finding& at = arrival != nullptr ? *arrival : incident.origin();
  if (incident.origin().step() >= 0) text += (WasReadLater(at) ? " by " : " at ") + StepText(at);
  return text;
}

IncidentReason ReasonOf(const Incident& incident) {
  if (incident.has_pattern()) {
    const Pattern& pattern = incident.pattern();
    return {Printable(pattern.cause()), Printable(pattern.evidence()), Printable(pattern.fix())};
  }
  IncidentReason reason = UnexplainedReason(incident.origin());
  reason.remedy = Unglued(reason.remedy);
  return reason;
}

std::string IncidentRows(const Incident& incident, int width, const std::string& source_path) {
  const Finding& origin = incident.origin();
  std::string rows = OriginRows(origin, width, source_path);
  rows += TensorRows("input", origin.inputs(), false, width);
  rows += TensorRows("output", origin.outputs(), true, width);
  rows += TrailRows(incident, kOpsBeforeShownMax, width);
  const std::string then = ThenText(incident);
  if (!then.empty()) rows += Row("then", then, width);
  if (incident.count() > 1 && incident.last_step() > incident.first_step()) {
    rows += Row("again",
                Counted(incident.count(), "finding") + ", steps " +
                    Grouped(static_cast<uint64_t>(incident.first_step())) + " to " +
                    Grouped(static_cast<uint64_t>(incident.last_step())),
                width);
  }
  return rows + ReasonRows(incident, width) + ReplayRow(incident, width);
}

}  // namespace nanwatch
