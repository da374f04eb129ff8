// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/pattern_book.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "daemon/correlate/chain.h"
#include "daemon/correlate/origin_finding.h"
#include "daemon/explain/glob.h"
#include "daemon/explain/incident_facts.h"
#include "daemon/explain/patterns_text.h"

namespace nanwatch {
namespace {

using nlohmann::json;

// In the order of Condition::Comparison.
constexpr std::array<std::string_view, 5> kComparisons = {"<", "<=", "==", ">=", ">"};

// ---- reading

// Readers leave in `why` what they could not read, the first thing of it; empty: all was read.

std::vector<std::string> Texts(const json& entry, const char* key, std::string& why) {
  std::vector<std::string> texts;
  const auto found = entry.find(key);
  if (found == entry.end()) return texts;
  const bool is_list =
      found->is_array() &&
      std::all_of(found->begin(), found->end(), [](const json& text) { return text.is_string(); });
  if (is_list)
    texts = found->get<std::vector<std::string>>();
  else if (why.empty())
    why = std::string(key) + " is not a list of strings";
  return texts;
}

std::string Text(const json& entry, const char* key, std::string& why) {
  const auto found = entry.find(key);
  if (found != entry.end() && found->is_string() && !found->get<std::string>().empty())
    return found->get<std::string>();
  if (why.empty()) why = std::string(key) + " is missing";
  return {};
}

std::optional<Condition::Comparison> ComparisonOf(std::string_view sign) {
  for (size_t i = 0; i < kComparisons.size(); ++i) {
    if (kComparisons[i] == sign) return static_cast<Condition::Comparison>(i);
  }
  return std::nullopt;
}

Condition ReadCondition(const std::string& text, std::string& why) {
  Condition condition;
  std::string comparison;
  std::string unknown;
  std::string further;
  std::istringstream words(text);
  const bool complete =
      static_cast<bool>(words >> condition.number >> comparison >> condition.bound);
  words >> unknown >> further;
  condition.holds_when_unknown = unknown == "?";
  const std::optional<Condition::Comparison> known = ComparisonOf(comparison);
  condition.comparison = known.value_or(Condition::Comparison::kEqual);
  if (!why.empty()) return condition;
  if (!complete || !known || !further.empty() || (!unknown.empty() && unknown != "?"))
    why = "\"" + text + "\" is not a comparison with a number";
  else if (!IsNumberName(condition.number))
    why = "there is no number named " + condition.number;
  return condition;
}

// One entry's list of ops serves another.
void ReadOpsOf(const json& match, const std::vector<KnownCause>& before, KnownCause& cause,
               std::string& why) {
  if (!match.contains("ops_of")) return;
  const std::string id = Text(match, "ops_of", why);
  const auto other = std::find_if(before.begin(), before.end(),
                                  [&id](const KnownCause& known) { return known.id == id; });
  if (why.empty() && !cause.ops.empty()) why = "op and ops_of are both given";
  if (other != before.end())
    cause.ops = other->ops;
  else if (why.empty())
    why = "ops_of names no entry before this one: " + id;
}

void ReadMatch(const json& match, const std::vector<KnownCause>& before, KnownCause& cause,
               std::string& why) {
  const std::pair<const char*, std::vector<std::string>*> lists[] = {
      {"kind", &cause.kinds},   {"class", &cause.classes},       {"phase", &cause.phases},
      {"op", &cause.ops},       {"node", &cause.nodes},          {"layer", &cause.layers},
      {"param", &cause.params}, {"dtype", &cause.dtypes},        {"role", &cause.roles},
      {"reach", &cause.reach},  {"not_reach", &cause.not_reach}, {"unseen", &cause.unseen},
  };
  for (const auto& [key, list] : lists) {
    *list = Texts(match, key, why);
  }
  // These three are lists of what is there.
  const std::tuple<const char*, const std::vector<std::string>&, const char*> positive[] = {
      {"reach", cause.reach, ", use not_reach"},
      {"not_reach", cause.not_reach, ", use reach"},
      {"unseen", cause.unseen, ""},
  };
  for (const auto& [key, list, instead] : positive) {
    if (why.empty() && std::any_of(list.begin(), list.end(),
                                   [](const std::string& text) { return text.starts_with('!'); }))
      why = std::string("! is not allowed in ") + key + instead;
  }
  ReadOpsOf(match, before, cause, why);
  for (const std::string& text : Texts(match, "where", why))
    cause.where.push_back(ReadCondition(text, why));
  for (const auto& [key, value] : match.items()) {
    const bool known = key == "where" || key == "ops_of" ||
                       std::any_of(std::begin(lists), std::end(lists),
                                   [&key = key](const auto& list) { return key == list.first; });
    if (!known && why.empty()) why = "match has no " + key;
  }
}

KnownCause ReadCause(const json& entry, const std::vector<KnownCause>& before, std::string& why) {
  KnownCause cause;
  if (!entry.is_object()) {
    why = "it is not a JSON object";
    return cause;
  }
  cause.id = Text(entry, "id", why);
  cause.cause = Text(entry, "cause", why);
  cause.fix = Text(entry, "fix", why);
  cause.evidence = Texts(entry, "evidence", why);
  const auto match = entry.find("match");
  if (match != entry.end() && match->is_object())
    ReadMatch(*match, before, cause, why);
  else if (why.empty())
    why = "match is missing";
  return cause;
}

// ---- matching

bool AnyMatches(const std::vector<std::string>& globs, std::string_view text) {
  return std::any_of(globs.begin(), globs.end(),
                     [text](const std::string& glob) { return MatchesGlob(glob, text); });
}

// "!CompiledFunction*" forbids; where nothing else is given, anything else is allowed.
bool Allows(const std::vector<std::string>& globs, std::string_view text) {
  bool allowed = true;
  bool asked = false;
  for (const std::string& glob : globs) {
    if (glob.starts_with('!')) {
      if (MatchesGlob(std::string_view(glob).substr(1), text)) return false;
    } else if (!asked || !allowed) {
      asked = true;
      allowed = MatchesGlob(glob, text);
    }
  }
  return allowed;
}

bool Holds(const Condition& condition, const Incident& incident) {
  const std::optional<double> number = NumberOf(incident, condition.number);
  if (!number) return condition.holds_when_unknown;
  switch (condition.comparison) {
    case Condition::Comparison::kLess:
      return *number < condition.bound;
    case Condition::Comparison::kAtMost:
      return *number <= condition.bound;
    case Condition::Comparison::kEqual:
      return *number == condition.bound;
    case Condition::Comparison::kAtLeast:
      return *number >= condition.bound;
    case Condition::Comparison::kMore:
      return *number > condition.bound;
  }
  return false;
}

// Whether it was reached no later than a gradient, which may be long after the value was made.
// Later everything is, by way of dead parameters. A value that reached both has one link.
bool ReachedAtOnce(const Incident& incident, const std::string& reach) {
  const Finding* arrival = LinkThatReached(incident, reach);
  const Finding* gradient = LinkThatReached(incident, "gradient");
  if (arrival == nullptr || (gradient == nullptr && Reaches(incident, "gradient"))) return true;
  const int64_t step = (gradient != nullptr ? *gradient : incident.origin()).step();
  return step < 0 || arrival->step() <= step;
}

bool Fits(const KnownCause& cause, const Incident& incident) {
  const Finding& origin = incident.origin();
  const auto has_any = [](const std::vector<std::string>& wanted, const auto& texts) {
    return wanted.empty() || std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
             return AnyMatches(wanted, text);
           });
  };
  const auto reached_at_once = [&](const std::string& reach) {
    return AnyMatches(cause.not_reach, reach) && ReachedAtOnce(incident, reach);
  };
  return Allows(cause.kinds, origin.kind()) && Allows(cause.classes, origin.class_()) &&
         Allows(cause.phases, origin.phase()) && Allows(cause.ops, origin.op()) &&
         Allows(cause.nodes, origin.autograd_node()) && Allows(cause.layers, origin.layer()) &&
         Allows(cause.params, origin.param()) &&
         Allows(cause.dtypes, TextOf(incident, "output.dtype").value_or("")) &&
         Allows(cause.roles, TextOf(incident, "used.role").value_or("")) &&
         has_any(cause.reach, incident.reach()) && has_any(cause.unseen, origin.unseen()) &&
         std::none_of(incident.reach().begin(), incident.reach().end(), reached_at_once) &&
         std::all_of(cause.where.begin(), cause.where.end(),
                     [&](const Condition& condition) { return Holds(condition, incident); });
}

// "op is aten::_softmax (required: aten::_softmax*, not aten::*backward*)", for a list that allows
// it.
void AddFit(std::string_view field, const std::vector<std::string>& globs, std::string_view text,
            std::vector<std::string>& reasons) {
  if (globs.empty()) return;
  std::string required;
  bool exact = false;
  for (const std::string& glob : globs) {
    const bool forbids = glob.starts_with('!');
    if (!forbids && (exact || !MatchesGlob(glob, text))) continue;
    exact |= glob == text;
    required += (required.empty() ? "" : ", ") + (forbids ? "not " + glob.substr(1) : glob);
  }
  std::string reason(field);
  reason += text.empty() ? " is not known" : " is " + std::string(text);
  if (required != text) reason += " (required: " + required + ")";
  reasons.push_back(std::move(reason));
}

std::string ConditionText(const Condition& condition, const Incident& incident) {
  const std::string known =
      TextOf(incident, condition.number).value_or("not recorded, which the pattern allows");
  return fmt::format("{} is {} (required: {} {:g})", condition.number, known,
                     kComparisons[static_cast<size_t>(condition.comparison)], condition.bound);
}

std::vector<std::string> ReasonsOfFit(const KnownCause& cause, const Incident& incident) {
  const Finding& origin = incident.origin();
  std::vector<std::string> reasons;
  AddFit("kind", cause.kinds, origin.kind(), reasons);
  AddFit("class", cause.classes, origin.class_(), reasons);
  AddFit("phase", cause.phases, origin.phase(), reasons);
  AddFit("op", cause.ops, origin.op(), reasons);
  AddFit("node", cause.nodes, origin.autograd_node(), reasons);
  AddFit("layer", cause.layers, origin.layer(), reasons);
  AddFit("param", cause.params, origin.param(), reasons);
  AddFit("dtype", cause.dtypes, TextOf(incident, "output.dtype").value_or(""), reasons);
  AddFit("role", cause.roles, TextOf(incident, "used.role").value_or(""), reasons);
  for (const std::string& reach : incident.reach()) {
    if (AnyMatches(cause.reach, reach)) AddFit("reach", cause.reach, reach, reasons);
  }
  for (const std::string& what : origin.unseen()) {
    if (AnyMatches(cause.unseen, what)) AddFit("what was not seen", cause.unseen, what, reasons);
  }
  for (const std::string& reach : cause.not_reach)
    reasons.push_back("in its own step it did not reach " + reach);
  for (const Condition& condition : cause.where)
    reasons.push_back(ConditionText(condition, incident));
  return reasons;
}

// A cause is filled in even when a name in it is not known.
std::string FillInAll(std::string sentence, const Incident& incident) {
  for (size_t open = sentence.find('{'); open != std::string::npos;
       open = sentence.find('{', open)) {
    const size_t close = sentence.find('}', open);
    if (close == std::string::npos) break;
    const std::string text =
        TextOf(incident, std::string_view(sentence).substr(open + 1, close - open - 1))
            .value_or("it");
    sentence.replace(open, close + 1 - open, text);
    open += text.size();
  }
  return sentence;
}

Pattern Describe(const KnownCause& cause, const Incident& incident) {
  Pattern pattern;
  pattern.set_id(cause.id);
  pattern.set_cause(FillInAll(cause.cause, incident));
  pattern.set_fix(FillInAll(cause.fix, incident));
  for (const std::string& sentence : cause.evidence) {
    if (std::optional<std::string> filled = FillIn(sentence, incident)) {
      pattern.set_evidence(*filled);
      break;
    }
  }
  return pattern;
}

}  // namespace

PatternBook PatternBook::Parse(std::string_view text, std::vector<std::string>* problems) {
  PatternBook book;
  const json entries = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!entries.is_array()) {
    problems->push_back("the patterns are not a JSON list");
    return book;
  }
  for (const json& entry : entries) {
    std::string why;
    KnownCause cause = ReadCause(entry, book.causes_, why);
    if (why.empty()) {
      book.causes_.push_back(std::move(cause));
    } else {
      problems->push_back("cannot read pattern " +
                          entry.dump(-1, ' ', false, json::error_handler_t::replace) + ": " + why);
    }
  }
  return book;
}

const PatternBook& PatternBook::BuiltIn() {
  static const PatternBook book = [] {
    std::vector<std::string> problems;  // none: the test reads the same text
    return Parse(kPatternsText, &problems);
  }();
  return book;
}

std::optional<Pattern> PatternBook::Find(const Incident& incident) const {
  // What patterns say rests on the op being the one that made it.
  if (incident.origin().class_() == "produce" && MayBeAnotherOp(incident.origin())) {
    return std::nullopt;
  }
  for (const KnownCause& cause : causes_) {
    if (Fits(cause, incident)) return Describe(cause, incident);
  }
  return std::nullopt;
}

std::vector<std::string> PatternBook::WhyItFits(const Incident& incident) const {
  const auto cause = std::find_if(causes_.begin(), causes_.end(), [&](const KnownCause& known) {
    return known.id == incident.pattern().id();
  });
  return cause == causes_.end() ? std::vector<std::string>() : ReasonsOfFit(*cause, incident);
}

}  // namespace nanwatch
