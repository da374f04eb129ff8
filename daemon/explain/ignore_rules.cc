// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/ignore_rules.h"

#include <fmt/format.h>
#include <algorithm>

#include "daemon/explain/glob.h"
#include "daemon/explain/pattern_book.h"

namespace nanwatch {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";
// Enough to find a mistake; a text file named by mistake has thousands.
constexpr size_t kProblemsMax = 8;

const std::vector<std::string> kPhases = {"forward", "backward", "optimizer", "other"};
// The classes that an origin can have.
const std::vector<std::string> kClasses = {"produce",   "inf_to_nan", "scalar",
                                           "propagate", "external",   "received"};

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

// Takes the text up to `end`, or all of it, off the front.
std::string_view TakeUpTo(std::string_view& text, std::string_view end) {
  const std::string_view taken = text.substr(0, text.find_first_of(end));
  text.remove_prefix(std::min(text.size(), taken.size() + 1));
  return taken;
}

// A '#' inside a word belongs to it.
std::string_view WithoutComment(std::string_view line) {
  for (size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    const bool begins_word =
        at == 0 || (kBlanks.find(line[at - 1]) != std::string_view::npos) || line[at - 1] == ';';
    if (begins_word) return line.substr(0, at);
  }
  return line;
}

bool FitsOneOf(const std::string& glob, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return MatchesGlob(glob, word); });
}

class RuleReader {
 public:
  explicit RuleReader(const std::vector<std::string>& patterns) : patterns_(patterns) {}

  // "" or what is wrong with it.
  std::string Read(std::string_view text, IgnoreRule& rule) const {
    rule.text = std::string(text);
    while (!text.empty()) {
      const std::string_view word = TakeUpTo(text, kBlanks);
      text = Trim(text);
      if (std::string wrong = ReadField(word, rule); !wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  std::string ReadField(std::string_view word, IgnoreRule& rule) const {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return "'" + std::string(word) + "' does not have the form FIELD=GLOB, such as op=aten::log";
    }
    const std::string field(word.substr(0, equals));
    std::string glob(word.substr(equals + 1));
    std::optional<std::string>* slot = SlotOf(field, rule);
    if (slot == nullptr) {
      return "there is no field '" + field + "'; use op, layer, phase, class or pattern";
    }
    if (slot->has_value()) return "'" + field + "' is given twice; write two rules";
    if (glob.empty()) return "'" + field + "=' has no value; write " + field + "=* for any";
    if (glob == "\"\"") glob.clear();
    if (std::string wrong = FindWrongWord(field, glob); !wrong.empty()) return wrong;
    *slot = std::move(glob);
    return "";
  }

  static std::optional<std::string>* SlotOf(std::string_view field, IgnoreRule& rule) {
    if (field == "op") return &rule.op;
    if (field == "layer") return &rule.layer;
    if (field == "phase") return &rule.phase;
    if (field == "class") return &rule.finding_class;
    if (field == "pattern") return &rule.pattern;
    return nullptr;
  }

  std::string FindWrongWord(const std::string& field, const std::string& glob) const {
    if (field == "phase" && !FitsOneOf(glob, kPhases)) {
      return "there is no phase '" + glob + "'; use one of " +
             fmt::format("{}", fmt::join(kPhases, ", "));
    }
    if (field == "class" && !FitsOneOf(glob, kClasses)) {
      return "there is no class '" + glob + "'; use one of " +
             fmt::format("{}", fmt::join(kClasses, ", "));
    }
    if (field == "pattern" && !FitsOneOf(glob, patterns_)) {
      return "there is no pattern '" + glob + "'; 'nanwatch report --json' shows the ids";
    }
    return "";
  }

  const std::vector<std::string>& patterns_;
};

std::vector<std::string> PatternIds() {
  const PatternBook& book = PatternBook::BuiltIn();
  std::vector<std::string> ids;
  for (const KnownCause& cause : book.causes()) ids.push_back(cause.id);
  return ids;
}

bool Fits(const std::optional<std::string>& glob, std::string_view text) {
  return !glob.has_value() || MatchesGlob(*glob, text);
}

}  // namespace

IgnoreRules ParseIgnoreRules(std::string_view text) {
  IgnoreRules read;
  const std::vector<std::string> patterns = PatternIds();
  const RuleReader reader(patterns);
  size_t wrong_rules = 0;
  while (!text.empty()) {
    std::string_view line = WithoutComment(TakeUpTo(text, "\n"));
    while (!line.empty()) {
      const std::string_view words = Trim(TakeUpTo(line, ";"));
      if (words.empty()) continue;
      IgnoreRule rule;
      const std::string wrong = reader.Read(words, rule);
      if (wrong.empty()) {
        read.rules.push_back(std::move(rule));
      } else if (++wrong_rules <= kProblemsMax) {
        read.problems.push_back("the rule '" + std::string(words) + "' is not applied: " + wrong);
      }
    }
  }
  if (wrong_rules > kProblemsMax) {
    read.problems.push_back("and " + std::to_string(wrong_rules - kProblemsMax) +
                            " more rules are not applied either");
  }
  return read;
}

const IgnoreRule* FindRule(const std::vector<IgnoreRule>& rules, const Incident& incident) {
  const Finding& origin = incident.origin();
  const auto fits = [&](const IgnoreRule& rule) {
    return Fits(rule.op, origin.op()) && Fits(rule.layer, origin.layer()) &&
           Fits(rule.phase, origin.phase()) && Fits(rule.finding_class, origin.class_()) &&
           Fits(rule.pattern, incident.pattern().id());
  };
  const auto found = std::find_if(rules.begin(), rules.end(), fits);
  return found == rules.end() ? nullptr : &*found;
}

}  // namespace nanwatch
