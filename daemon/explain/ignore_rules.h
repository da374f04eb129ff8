// The user's own knowledge: which findings are expected in this job (NANWATCH_IGNORE).
//
//   op=aten::log layer=encoder.mask* phase=forward class=produce
//   pattern=nan-in-batch; op=aten::div layer="" # a comment
//
// A rule is fields with globs, all of which must fit the origin of an incident; rules are separated by ';' or the
// end of a line, and one that fits is enough. What begins with '#' at the start of a word is a comment to the end
// of its line. `""` is the empty text: a layer outside any module. A value cannot hold blanks; names of ops, layers
// and patterns have none.
//
// What cannot be understood is left out and told, never guessed: half a rule would excuse more than its writer
// meant. That goes for a phase, class or pattern that does not exist, too, because such a rule could never fit.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

struct IgnoreRule {
  std::string text;  // as it was written, blanks trimmed
  // Globs; nothing given means anything fits.
  std::optional<std::string> op, layer, phase, finding_class, pattern;
};

struct IgnoreRules {
  std::vector<IgnoreRule> rules;
  std::vector<std::string> problems;  // one sentence each, naming the rule
};

[[nodiscard]] IgnoreRules ParseIgnoreRules(std::string_view text);

// The first rule that the incident's origin fits, null when none does. The incident's pattern must have been looked
// up.
[[nodiscard]] const IgnoreRule* FindRule(const std::vector<IgnoreRule>& rules,
                                         const Incident& incident);

}  // namespace nanwatch
