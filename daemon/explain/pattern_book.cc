#include "daemon/explain/pattern_book.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/explain/glob.h"
#include "daemon/explain/incident_facts.h"
#include "daemon/explain/patterns_text.h"

namespace nanwatch {
namespace {

using nlohmann::json;

// ---- reading

std::optional<std::vector<std::string>> Texts(const json& entry, const char* key) {
  std::vector<std::string> texts;
  const auto found = entry.find(key);
  if (found == entry.end()) return texts;
  if (!found->is_array()) return std::nullopt;
  for (const json& text : *found) {
    if (!text.is_string()) return std::nullopt;
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::optional<Condition> ReadCondition(const std::string& text) {
  Condition condition;
  std::string comparison;
  std::string unknown;
  std::istringstream words(text);
  if (!(words >> condition.number >> comparison >> condition.bound)) return std::nullopt;
  words >> unknown;
  if (!unknown.empty() && unknown != "?") return std::nullopt;
  condition.holds_when_unknown = unknown == "?";
  using enum Condition::Comparison;
  if (comparison == "<")
    condition.comparison = kLess;
  else if (comparison == "<=")
    condition.comparison = kAtMost;
  else if (comparison == "==")
    condition.comparison = kEqual;
  else if (comparison == ">=")
    condition.comparison = kAtLeast;
  else if (comparison == ">")
    condition.comparison = kMore;
  else
    return std::nullopt;
  return condition;
}

bool ReadMatch(const json& match, KnownCause& cause) {
  const std::pair<const char*, std::vector<std::string>*> lists[] = {
      {"kind", &cause.kinds},   {"class", &cause.classes},       {"phase", &cause.phases},
      {"op", &cause.ops},       {"node", &cause.nodes},          {"layer", &cause.layers},
      {"param", &cause.params}, {"dtype", &cause.dtypes},        {"reach", &cause.reach},
      {"later", &cause.later},  {"not_reach", &cause.not_reach}, {"role", &cause.roles},
  };
  for (const auto& [key, list] : lists) {
    std::optional<std::vector<std::string>> texts = Texts(match, key);
    if (!texts) return false;
    *list = std::move(*texts);
  }
  const std::optional<std::vector<std::string>> where = Texts(match, "where");
  if (!where) return false;
  for (const std::string& text : *where) {
    std::optional<Condition> condition = ReadCondition(text);
    if (!condition) return false;
    cause.where.push_back(std::move(*condition));
  }
  for (const auto& [key, value] : match.items()) {
    const bool known =
        key == "where" || std::any_of(std::begin(lists), std::end(lists),
                                      [&](const auto& list) { return key == list.first; });
    if (!known) return false;
  }
  return true;
}

std::optional<KnownCause> ReadCause(const json& entry) {
  if (!entry.is_object()) return std::nullopt;
  KnownCause cause;
  const auto text = [&entry](const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  cause.id = text("id");
  cause.cause = text("cause");
  cause.fix = text("fix");
  const std::optional<std::vector<std::string>> evidence = Texts(entry, "evidence");
  const auto match = entry.find("match");
  if (cause.id.empty() || cause.cause.empty() || cause.fix.empty() || !evidence)
    return std::nullopt;
  if (match == entry.end() || !match->is_object() || !ReadMatch(*match, cause)) return std::nullopt;
  cause.evidence = *evidence;
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

bool Fits(const KnownCause& cause, const Incident& incident) {
  const Finding& origin = incident.origin();
  const auto reached = [&](const std::vector<std::string>& wanted) {
    return std::any_of(incident.reach().begin(), incident.reach().end(),
                       [&](const std::string& reach) { return AnyMatches(wanted, reach); });
  };
  const auto happens_later = [&] {
    return std::any_of(incident.chain().begin(), incident.chain().end(), [&](const Finding& link) {
      return link.ticket() > origin.ticket() && AnyMatches(cause.later, link.op());
    });
  };
  return Allows(cause.kinds, origin.kind()) && Allows(cause.classes, origin.class_()) &&
         Allows(cause.phases, origin.phase()) && Allows(cause.ops, origin.op()) &&
         Allows(cause.nodes, origin.autograd_node()) && Allows(cause.layers, origin.layer()) &&
         Allows(cause.params, origin.param()) &&
         Allows(cause.dtypes, TextOf(incident, "output.dtype").value_or("")) &&
         Allows(cause.roles, TextOf(incident, "used.role").value_or("")) &&
         (cause.reach.empty() || reached(cause.reach)) && !reached(cause.not_reach) &&
         (cause.later.empty() || happens_later()) &&
         std::all_of(cause.where.begin(), cause.where.end(),
                     [&](const Condition& condition) { return Holds(condition, incident); });
}

// "op is aten::_softmax (asked: aten::_softmax*)".
void TellFit(std::string_view field, const std::vector<std::string>& globs, std::string_view text,
             std::vector<std::string>& reasons) {
  if (globs.empty()) return;
  const auto glob = std::find_if(globs.begin(), globs.end(),
                                 [text](const std::string& g) { return MatchesGlob(g, text); });
  if (glob == globs.end()) return;
  std::string reason = std::string(field) + " is " + std::string(text);
  if (*glob != text) reason += " (asked: " + *glob + ")";
  reasons.push_back(std::move(reason));
}

std::string TellCondition(const Condition& condition, const Incident& incident) {
  constexpr std::array<std::string_view, 5> kComparisons = {"<", "<=", "==", ">=", ">"};
  const std::string known =
      TextOf(incident, condition.number).value_or("not recorded, which the pattern allows");
  std::array<char, 32> bound{};
  std::snprintf(bound.data(), bound.size(), "%g", condition.bound);
  return condition.number + " is " + known +
         " (asked: " + std::string(kComparisons[static_cast<size_t>(condition.comparison)]) + " " +
         bound.data() + ")";
}

std::vector<std::string> TellFits(const KnownCause& cause, const Incident& incident) {
  const Finding& origin = incident.origin();
  std::vector<std::string> reasons;
  TellFit("kind", cause.kinds, origin.kind(), reasons);
  TellFit("class", cause.classes, origin.class_(), reasons);
  TellFit("phase", cause.phases, origin.phase(), reasons);
  TellFit("op", cause.ops, origin.op(), reasons);
  TellFit("node", cause.nodes, origin.autograd_node(), reasons);
  TellFit("layer", cause.layers, origin.layer(), reasons);
  TellFit("param", cause.params, origin.param(), reasons);
  TellFit("dtype", cause.dtypes, TextOf(incident, "output.dtype").value_or(""), reasons);
  TellFit("role", cause.roles, TextOf(incident, "used.role").value_or(""), reasons);
  for (const std::string& reach : incident.reach()) TellFit("reach", cause.reach, reach, reasons);
  for (const std::string& reach : cause.not_reach) reasons.push_back("it did not reach " + reach);
  for (const Finding& link : incident.chain()) {
    if (link.ticket() > origin.ticket()) TellFit("a later op", cause.later, link.op(), reasons);
  }
  for (const Condition& condition : cause.where)
    reasons.push_back(TellCondition(condition, incident));
  return reasons;
}

// A cause is told even when a name in it is not known.
std::string Tell(std::string sentence, const Incident& incident) {
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
  pattern.set_cause(Tell(cause.cause, incident));
  pattern.set_fix(Tell(cause.fix, incident));
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
    problems->push_back("patterns are no JSON list");
    return book;
  }
  for (const json& entry : entries) {
    if (std::optional<KnownCause> cause = ReadCause(entry)) {
      book.causes_.push_back(std::move(*cause));
    } else {
      problems->push_back("cannot read pattern " +
                          entry.dump(-1, ' ', false, json::error_handler_t::replace));
    }
  }
  return book;
}

PatternBook PatternBook::BuiltIn() {
  std::vector<std::string> problems;  // none: the test reads the same text
  return Parse(kPatternsText, &problems);
}

std::optional<Pattern> PatternBook::Find(const Incident& incident) const {
  for (const KnownCause& cause : causes_) {
    if (Fits(cause, incident)) return Describe(cause, incident);
  }
  return std::nullopt;
}

std::vector<std::string> PatternBook::WhyItFits(const Incident& incident) const {
  const auto cause = std::find_if(causes_.begin(), causes_.end(), [&](const KnownCause& known) {
    return known.id == incident.pattern().id();
  });
  return cause == causes_.end() ? std::vector<std::string>() : TellFits(*cause, incident);
}

}  // namespace nanwatch
