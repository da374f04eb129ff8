// SPDX-License-Identifier: Apache-2.0
// The known causes, read from patterns.json (compiled in). An entry:
//
//   id          stable name, part of the document
//   match       all given conditions must hold; a list holds when one element does; `*` matches
//               any text
//     kind, class, phase, op, node, layer, param,
//     dtype     of the output
//     role      of the argument through which bad input data was used
//               in all of these an element that begins with `!` must not match
//     ops_of    id of an earlier entry, whose `op` is used
//     reach, not_reach
//               one thing that the incident reached; none that it reached in the origin's own
//               step. `!` has no meaning here.
//     where     "output.nan > 0": a number of incident_facts.h, a comparison, a number. With " ?"
//               at the end it also holds when the number was not recorded.
//   cause, fix  sentences; {names} of incident_facts.h are filled in, "it" where one is unknown
//   evidence    sentences; the first one whose names are all known is used
//
// The first entry that matches wins, so special entries come before general ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

struct Condition {
  enum class Comparison { kLess, kAtMost, kEqual, kAtLeast, kMore };
  std::string number;
  Comparison comparison = Comparison::kEqual;
  double bound = 0;
  bool holds_when_unknown = false;
};

struct KnownCause {
  std::string id;
  std::vector<std::string> kinds, classes, phases, ops, nodes, layers, params, dtypes, roles, reach,
      not_reach, unseen;
  std::vector<Condition> where;
  std::string cause;
  std::string fix;
  std::vector<std::string> evidence;
};

class PatternBook {
 public:
  // From JSON. Entries that cannot be read are left out and named in `problems`, with the
  // reason.
  static PatternBook Parse(std::string_view text, std::vector<std::string>* problems);
  // The book that was compiled in. Read once, which takes 0.6 ms, and never changed: any thread.
  static const PatternBook& BuiltIn();

  [[nodiscard]] std::optional<Pattern> Find(const Incident& incident) const;
  // What the incident's pattern requires and what the incident has, a phrase each.
  [[nodiscard]] std::vector<std::string> WhyItFits(const Incident& incident) const;
  [[nodiscard]] const std::vector<KnownCause>& causes() const { return causes_; }

 private:
  std::vector<KnownCause> causes_;
};

}  // namespace nanwatch
