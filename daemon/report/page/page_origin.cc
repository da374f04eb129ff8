// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/page/page_origin.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "daemon/report/incident_words.h"
#include "daemon/report/json_report.h"
#include "daemon/report/kernel_text.h"
#include "daemon/report/page/page_series.h"
#include "daemon/report/sample_text.h"
#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kOpsBeforeMax = 20;
constexpr int kTensorsMax = 12;

// What a link is called where it reached something, and what it is where it did not.
std::string LinkTitle(const Incident& incident, const Finding& link) {
  if (link.reach() == "loss") return "loss";
  if (std::string reached = ReachedText(incident, link); !reached.empty()) return reached;
  if (link.reach() == "buffer") return PageText("buffer " + link.param());
  if (link.reach() == "metric") return "read as a number";
  return PageText(link.op().empty() ? link.kind() : link.op());
}

Json LinkJson(const Incident& incident, const Finding& link, bool is_origin) {
  return {
      {"title", is_origin && !link.op().empty() ? PageText(link.op()) : LinkTitle(incident, link)},
      {"op", PageText(link.op())},
      {"layer", PageText(link.layer())},
      {"class", link.class_()},
      {"phase", link.phase()},
      {"reach", link.reach()},
      {"bad", BadWord(link.outputs())},
      {"step", link.step()},
      {"rank", link.rank()},
      {"line", PageText(link.source())}};
}

Json TensorJson(const char* side, const TensorStats& tensor) {
  const uint64_t bad = tensor.nan() + tensor.pos_inf() + tensor.neg_inf();
  const bool has_finite = static_cast<int64_t>(bad) < tensor.numel();
  const auto number = [&](double value) { return has_finite ? JsonNumber(value) : Json(); };
  return {{"side", side},
          {"role", PageText(tensor.role())},
          {"dtype", PageText(tensor.dtype())},
          {"shape", fmt::format("[{}]", fmt::join(tensor.shape(), ", "))},
          {"numel", tensor.numel()},
          {"nan", tensor.nan()},
          {"pos_inf", tensor.pos_inf()},
          {"neg_inf", tensor.neg_inf()},
          {"min", number(tensor.finite_min())},
          {"max", number(tensor.finite_max())},
          {"mean", number(tensor.finite_mean())},
          {"first_bad", tensor.first_bad_index().empty()
                            ? ""
                            : fmt::format("[{}]", fmt::join(tensor.first_bad_index(), ", "))}};
}

Json TensorsJson(const Finding& origin) {
  Json rows = Json::array();
  for (int i = 0; i < std::min(origin.inputs_size(), kTensorsMax); ++i)
    rows.push_back(TensorJson("input", origin.inputs(i)));
  for (int i = 0; i < std::min(origin.outputs_size(), kTensorsMax); ++i)
    rows.push_back(TensorJson("output", origin.outputs(i)));
  return rows;
}

Json TrailJson(const TrailOp& op) {
  return {{"op", PageText(op.op())},
          {"layer", PageText(op.layer())},
          {"phase", op.phase()},
          {"dtype", op.dtype()},
          {"largest", JsonNumber(op.largest())},
          {"at_least", op.at_least()},
          {"steps_before", op.steps_before()}};
}

template <typename Ops>
Json OpsJson(const Ops& ops) {
  Json rows = Json::array();
  for (int i = std::max(0, ops.size() - kOpsBeforeMax); i < ops.size(); ++i)
    rows.push_back(TrailJson(ops[i]));
  return rows;
}

// What makes an origin exact differs with its class. Why one is not stands in what happened.
std::string CertaintyText(const Finding& origin) {
  if (!origin.exact()) return "no: the first row says why";
  if (origin.class_() == "external" || origin.class_() == "received")
    return "yes: it was read in full where it came in, before any op used it";
  if (origin.class_() == "inf_to_nan") return "yes: every input was read, and none held a NaN";
  return "yes: every input was read and was finite";
}

Json RowsJson(const Incident& incident) {
  const Finding& origin = incident.origin();
  Json rows = Json::array();
  const auto add = [&rows](const char* label, const std::string& value) {
    if (!value.empty()) rows.push_back({{"label", label}, {"value", PageText(Unglued(value))}});
  };
  add("What", WhatText(origin));
  add("Where", SiteText(origin));
  add("When", StepInFull(origin));
  add("Line", origin.source());
  for (const std::string& caller : origin.callers()) add("Called by", caller);
  add("Certain", CertaintyText(origin));
  add("Rank", RanksText(incident));
  add("Device", origin.device());
  add("Samples", SamplesText(origin));
  add("Kernels", KernelsText(origin));
  return rows;
}

Json SourceJson(const std::optional<SourceLines>& source) {
  if (!source.has_value()) return nullptr;
  Json lines = Json::array();
  for (const std::string& line : source->lines) lines.push_back(PageText(line));
  return {{"path", PageText(source->path)},
          {"first", source->first},
          {"marked", source->marked},
          {"lines", std::move(lines)}};
}

}  // namespace

Json PathJson(const Verdict& verdict) {
  Json links = Json::array();
  if (verdict.incidents().empty()) return links;
  const Incident& incident = verdict.incidents(0);
  if (incident.chain().empty()) links.push_back(LinkJson(incident, incident.origin(), true));
  for (int i = 0; i < incident.chain_size(); ++i)
    links.push_back(LinkJson(incident, incident.chain(i), i == 0));
  return links;
}

Json OriginJson(const PageFacts& facts) {
  if (facts.verdict.incidents().empty()) return nullptr;
  const Incident& incident = facts.verdict.incidents(0);
  const Finding& origin = incident.origin();
  Json losses = Json::array(), norms = Json::array();
  for (const double loss : incident.losses_before()) losses.push_back(JsonNumber(loss));
  for (const double norm : incident.gradient_norms_before()) norms.push_back(JsonNumber(norm));
  return {{"rows", RowsJson(incident)},
          {"tensors", TensorsJson(origin)},
          {"source", SourceJson(facts.source)},
          {"before", OpsJson(incident.trail())},
          {"history", OpsJson(incident.history())},
          {"losses_before", std::move(losses)},
          {"norms_before", std::move(norms)}};
}

}  // namespace nanwatch
