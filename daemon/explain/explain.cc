#include "daemon/explain/explain.h"

#include "daemon/correlate/correlate.h"

namespace nanwatch {

void Explain(Verdict& verdict) { (void)verdict; }

Verdict Diagnose(const std::vector<RunFacts>& runs) {
  Verdict verdict = Correlate(runs);
  Explain(verdict);
  return verdict;
}

}  // namespace nanwatch
