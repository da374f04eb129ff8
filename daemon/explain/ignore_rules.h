// SPDX-License-Identifier: Apache-2.0
// The user's own knowledge: which findings are expected in this job (NANWATCH_IGNORE).
//
//   op=aten::log layer=encoder.mask* phase=forward class=produce
//   pattern=nan-in-batch; op=aten::div layer="" # a comment
//
// A rule is a list of fields with globs. All fields must match the origin of an incident, and one
// matching rule is enough. Rules are separated by ';' or a newline. A '#' at the start of a word
// begins a comment that ends with the line. `""` is the empty text: the layer of the outermost
// module, and of what runs outside any. A value cannot contain blanks; names of ops, layers and
// patterns have none.
//
// A rule that does not parse is skipped and reported, never guessed: half a rule would excuse more
// than its author meant. The same goes for a phase, class or pattern that does not exist, because
// such a rule could never match.
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

// The first rule that matches the incident's origin, null when none does. The incident's pattern
// must be set.
[[nodiscard]] const IgnoreRule* FindRule(const std::vector<IgnoreRule>& rules,
                                         const Incident& incident);

}  // namespace nanwatch
