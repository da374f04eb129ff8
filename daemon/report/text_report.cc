#include "daemon/report/text_report.h"

namespace nanwatch {

std::string TextReport(const Verdict& verdict, const TextOptions& options) {
  (void)options;
  return verdict.verdict() + "\n";
}

std::string CoverageReport(const Verdict& verdict) {
  return std::to_string(verdict.coverage().tensors_checked()) + " tensors checked\n";
}

}  // namespace nanwatch
