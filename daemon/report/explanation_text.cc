// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/explanation_text.h"

#include "daemon/report/text_layout.h"

namespace nanwatch {

std::string ExplanationText(const Explanation& explanation, int width_columns) {
  std::string text = Row("incident",
                         std::to_string(explanation.incident()) + ", severity " +
                             Printable(explanation.severity()) + "; the verdict of the job is " +
                             explanation.verdict(),
                         width_columns);
  std::string before;
  for (const ExplanationStep& step : explanation.steps()) {
    text += Row(step.about() == before ? "" : step.about(), Printable(step.text()), width_columns);
    before = step.about();
  }
  return text;
}

}  // namespace nanwatch
