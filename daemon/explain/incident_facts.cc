// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/incident_facts.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>

#include "daemon/base/digits.h"
#include "daemon/explain/element_types.h"
#include "daemon/explain/growth.h"

namespace nanwatch {
namespace {

// The square of what is larger does not fit in float32, nearly.
constexpr double kLarge = 1e15;

using Tensors = google::protobuf::RepeatedPtrField<TensorStats>;

// A complex element counts once for each kind that it holds.
uint64_t Bad(const TensorStats& tensor) {
  const uint64_t kinds = tensor.nan() + tensor.pos_inf() + tensor.neg_inf();
  return std::min(kinds, static_cast<uint64_t>(std::max<int64_t>(tensor.numel(), 0)));
}

bool HasFinite(const TensorStats& tensor) {
  return tensor.numel() > 0 && Bad(tensor) < static_cast<uint64_t>(tensor.numel());
}

const TensorStats* FirstBad(const Tensors& tensors) {
  for (const TensorStats& tensor : tensors) {
    if (Bad(tensor) > 0) return &tensor;
  }
  return tensors.empty() ? nullptr : &tensors[0];
}

std::optional<uint32_t> IndexOf(std::string_view digits) {
  uint32_t index = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, index);
  return read.ec == std::errc() && read.ptr == end ? std::optional(index) : std::nullopt;
}

const TensorStats* ByIndex(const Tensors& tensors, std::string_view digits) {
  const std::optional<uint32_t> index = IndexOf(digits);
  for (const TensorStats& tensor : tensors) {
    if (tensor.index() == index) return &tensor;
  }
  return nullptr;
}

// What came in from outside, as the op saw it that computed with it first: that op is named by the
// origin, and stands in the chain once more where it did so, unless the origin is that record
// already.
const TensorStats* Used(const Incident& incident) {
  const Finding& origin = incident.origin();
  if (origin.kind() != "input_data") return nullptr;
  const auto bad_input = [&origin](const Finding& link) -> const TensorStats* {
    const bool same_place = link.op() == origin.op() && link.layer() == origin.layer();
    if (!same_place || link.inputs().empty()) return nullptr;
    const TensorStats* input = FirstBad(link.inputs());
    return Bad(*input) > 0 ? input : nullptr;
  };
  for (const Finding& link : incident.chain()) {
    const TensorStats* input = link.ticket() > origin.ticket() ? bad_input(link) : nullptr;
    if (input != nullptr) return input;
  }
  return bad_input(origin);
}

// The same as what moved it has left it: where the op that computed with it stands nowhere. In
// another shape, perhaps, but with the same kinds of bad values.
const TensorStats* Moved(const Incident& incident) {
  const Finding& origin = incident.origin();
  if (origin.kind() != "input_data" || !origin.inputs().empty() || origin.outputs().empty())
    return nullptr;
  const TensorStats* const moved = FirstBad(origin.outputs());
  return Bad(*moved) > 0 ? moved : nullptr;
}

bool IsKind(std::string_view field) {
  return field == "nan" || field == "inf" || field == "pos_inf" || field == "neg_inf";
}

// Splits "input1.numel" into the tensor and "numel"; null when it is about no tensor, or not
// recorded.
const TensorStats* TensorOf(const Incident& incident, std::string_view name,
                            std::string_view& field) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  field = name.substr(dot + 1);
  std::string_view which = name.substr(0, dot);
  if (which == "used") {
    const TensorStats* const used = Used(incident);
    return used == nullptr && IsKind(field) ? Moved(incident) : used;
  }
  const bool is_input = which.starts_with("input");
  if (!is_input && !which.starts_with("output")) return nullptr;
  which.remove_prefix(is_input ? 5 : 6);
  const Finding& origin = incident.origin();
  const Tensors& tensors = is_input ? origin.inputs() : origin.outputs();
  return which.empty() ? FirstBad(tensors) : ByIndex(tensors, which);
}

double AbsMax(const TensorStats& tensor) {
  return std::max(std::abs(tensor.finite_min()), std::abs(tensor.finite_max()));
}

std::optional<double> TensorNumber(const TensorStats& tensor, std::string_view field) {
  if (field == "index") return tensor.index();
  if (field == "numel") return static_cast<double>(tensor.numel());
  if (field == "ndim") return tensor.shape_size();
  if (field == "nan") return static_cast<double>(tensor.nan());
  if (field == "pos_inf") return static_cast<double>(tensor.pos_inf());
  if (field == "neg_inf") return static_cast<double>(tensor.neg_inf());
  if (field == "inf") return static_cast<double>(tensor.pos_inf() + tensor.neg_inf());
  if (field == "bad") return static_cast<double>(Bad(tensor));
  if (field == "good")
    return static_cast<double>(tensor.numel()) - static_cast<double>(Bad(tensor));
  if (field == "limit") return LargestOf(tensor.dtype());
  if (field == "first_bad_item" && !tensor.first_bad_index().empty()) {
    return static_cast<double>(tensor.first_bad_index(0));
  }
  if (!HasFinite(tensor)) return std::nullopt;
  if (field == "finite_min") return tensor.finite_min();
  if (field == "finite_max") return tensor.finite_max();
  if (field == "absmax") return AbsMax(tensor);
  if (field == "share_of_limit") {
    const std::optional<double> largest = LargestOf(tensor.dtype());
    return largest ? std::optional(AbsMax(tensor) / *largest) : std::nullopt;
  }
  if (field == "may_be_zero") return tensor.finite_min() <= 0 && tensor.finite_max() >= 0 ? 1 : 0;
  return std::nullopt;
}

std::optional<double> AbsMaxOfAll(const Finding& finding) {
  std::optional<double> largest;
  for (const Tensors* tensors : {&finding.inputs(), &finding.outputs()}) {
    for (const TensorStats& tensor : *tensors) {
      if (HasFinite(tensor)) largest = std::max(largest.value_or(0), AbsMax(tensor));
    }
  }
  return largest;
}

// Whether the result shows that it was too large: an Inf, or a number near the end of float32. A NaN
// alone may come of anything.
bool Overflowed(const Finding& finding) {
  const auto has_inf = [](const TensorStats& tensor) {
    return tensor.pos_inf() + tensor.neg_inf() > 0;
  };
  return std::any_of(finding.outputs().begin(), finding.outputs().end(), has_inf) ||
         AbsMaxOfAll(finding).value_or(0) > kLarge;
}

// Whether an op of a backward pass carried it on: 1 or 0; not known where the way is not recorded.
std::optional<double> WentThroughBackward(const Incident& incident) {
  if (incident.chain().empty()) return std::nullopt;
  return std::any_of(incident.chain().begin(), incident.chain().end(),
                     [](const Finding& step) { return step.phase() == "backward"; })
             ? 1
             : 0;
}

std::string ListText(const google::protobuf::RepeatedField<int64_t>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

// 72000, 110865, 2.5, 3.403e+38: what is large enough to be read without its fraction loses it.
std::string NumberText(double number) {
  const double size = std::abs(number);
  const bool whole = (number == std::floor(number) && size < 1e15) || (size >= 1e3 && size < 1e6);
  if (whole) return fmt::format("{:.0f}", number);
  const std::string text = fmt::format("{:.4g}", number);
  // 1.00000012 is not 1, where a domain ends there.
  const bool looks_whole = std::strtod(text.c_str(), nullptr) == std::round(number);
  return looks_whole ? fmt::format("{:.9g}", number) : text;
}

// aten::sqrt_ -> sqrt
std::string OpName(std::string_view op) {
  const size_t colon = op.rfind(':');
  if (colon != std::string_view::npos) op.remove_prefix(colon + 1);
  while (op.ends_with('_')) op.remove_suffix(1);
  return std::string(op);
}

std::optional<std::string> Known(std::string text) {
  if (text.empty()) return std::nullopt;
  return text;
}

std::optional<double> GrowthNumber(const Incident& incident, std::string_view name) {
  const std::optional<Growth> growth = FindGrowth(incident);
  if (!growth) return std::nullopt;
  if (name == "grown_from") return growth->usual;
  if (name == "grown_to") return growth->levels.back();
  if (name != "grown_before") return std::nullopt;
  return static_cast<double>(growth->levels.size() - (growth->in_last_step ? 1 : 0));
}

std::optional<std::string> GrowthText(const Incident& incident, std::string_view name) {
  const std::optional<Growth> growth = FindGrowth(incident);
  if (!growth) return std::nullopt;
  if (name == "grown_what") return growth->what;
  if (name == "grown_op") return Known(growth->op);
  if (name == "grown_layer") return Known(growth->layer);
  if (name != "grown_levels") return std::nullopt;
  constexpr size_t kLevelsMax = 4;
  const size_t first = growth->levels.size() - std::min(growth->levels.size(), kLevelsMax);
  std::string text;
  for (size_t i = first; i < growth->levels.size(); ++i)
    text += (text.empty() ? "" : ", ") + NumberText(growth->levels[i]);
  return text;
}

}  // namespace

bool IsNumberName(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kOfIncident = {
      "step",        "skipped",    "rank",     "absmax",      "overflowed",
      "in_backward", "grown_from", "grown_to", "grown_before"};
  static constexpr std::array<std::string_view, 16> kOfTensor = {
      "index",      "ndim",   "numel",          "nan",        "pos_inf",        "neg_inf",
      "inf",        "bad",    "good",           "limit",      "first_bad_item", "finite_min",
      "finite_max", "absmax", "share_of_limit", "may_be_zero"};
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos)
    return std::find(kOfIncident.begin(), kOfIncident.end(), name) != kOfIncident.end();
  const std::string_view field = name.substr(dot + 1);
  if (std::find(kOfTensor.begin(), kOfTensor.end(), field) == kOfTensor.end()) return false;
  std::string_view which = name.substr(0, dot);
  if (which == "used") return true;
  if (!which.starts_with("input") && !which.starts_with("output")) return false;
  which.remove_prefix(which.starts_with("input") ? 5 : 6);
  return which.empty() || IndexOf(which).has_value();
}

std::optional<double> NumberOf(const Incident& incident, std::string_view name) {
  const Finding& origin = incident.origin();
  if (name == "step") {
    return origin.step() < 0 ? std::nullopt
                             : std::optional<double>(static_cast<double>(origin.step()));
  }
  // Updates that a GradScaler left out before: `iteration` counts them, `step` does not.
  if (name == "skipped") {
    if (origin.step() < 0 || origin.iteration() < origin.step()) return std::nullopt;
    return static_cast<double>(origin.iteration() - origin.step());
  }
  if (name == "rank") return origin.rank();
  if (name == "absmax") return AbsMaxOfAll(origin);
  if (name == "overflowed") return Overflowed(origin) ? 1 : 0;
  if (name == "in_backward") return WentThroughBackward(incident);
  if (name.starts_with("grown_")) return GrowthNumber(incident, name);
  std::string_view field;
  const TensorStats* tensor = TensorOf(incident, name, field);
  return tensor == nullptr ? std::nullopt : TensorNumber(*tensor, field);
}

std::optional<std::string> TextOf(const Incident& incident, std::string_view name) {
  const Finding& origin = incident.origin();
  if (name == "op") return Known(origin.op());
  if (name == "op_name") return Known(OpName(origin.op()));
  if (name == "layer") return Known(origin.layer());
  if (name == "param") return Known(origin.param());
  if (name == "autograd_node") return Known(origin.autograd_node());
  if (name == "source") return Known(origin.source());
  if (name.starts_with("grown_")) {
    if (std::optional<std::string> text = GrowthText(incident, name)) return text;
  }
  std::string_view field;
  if (const TensorStats* tensor = TensorOf(incident, name, field)) {
    if (field == "dtype") return Known(tensor->dtype());
    // What was bad was another tensor, which is not among those that are there.
    if (field == "bad" && name.starts_with("input") && Bad(*tensor) == 0) return std::nullopt;
    if (field == "role") return Known(tensor->role());
    if (field == "shape") return ListText(tensor->shape());
    if (field == "first_bad_index") {
      if (tensor->first_bad_index().empty()) return std::nullopt;
      return ListText(tensor->first_bad_index());
    }
  }
  // As people write a number that stands alone; in a list commas divide.
  const std::optional<double> number = NumberOf(incident, name);
  return number ? std::optional(GroupDigits(NumberText(*number))) : std::nullopt;
}

std::optional<std::string> FillIn(std::string_view sentence, const Incident& incident) {
  std::string filled;
  while (!sentence.empty()) {
    const size_t open = sentence.find('{');
    const size_t close = sentence.find('}', open);
    if (open == std::string_view::npos || close == std::string_view::npos) break;
    const std::optional<std::string> text =
        TextOf(incident, sentence.substr(open + 1, close - open - 1));
    if (!text) return std::nullopt;
    filled.append(sentence.substr(0, open)).append(*text);
    sentence.remove_prefix(close + 1);
  }
  return filled.append(sentence);
}

}  // namespace nanwatch
