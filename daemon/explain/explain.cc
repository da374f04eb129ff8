#include "daemon/explain/explain.h"

#include <optional>

#include "daemon/correlate/correlate.h"
#include "daemon/explain/pattern_book.h"

namespace nanwatch {

void Explain(Verdict& verdict) {
  if (verdict.incidents().empty()) return;
  const PatternBook book = PatternBook::BuiltIn();
  for (Incident& incident : *verdict.mutable_incidents()) {
    // What is expected needs no remedy.
    if (incident.severity() == "info") continue;
    if (std::optional<Pattern> pattern = book.Find(incident))
      *incident.mutable_pattern() = *pattern;
  }
}

Verdict Diagnose(const std::vector<RunFacts>& runs) {
  Verdict verdict = Correlate(runs);
  Explain(verdict);
  return verdict;
}

}  // namespace nanwatch
