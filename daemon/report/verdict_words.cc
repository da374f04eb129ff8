// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/verdict_words.h"

#include <algorithm>

#include "daemon/correlate/chain.h"
#include "daemon/correlate/unknown_rule.h"
#include "daemon/report/incident_text.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/training_text.h"
#include "daemon/report/unknown_text.h"

namespace nanwatch {
namespace {

// What is said of "none of them".
std::string HarmlessBecause(const Verdict& verdict) {
  const auto is_unapplied = [](const Incident& incident) {
    return incident.expected_by().empty() &&
           (Reaches(incident, "loss") || Reaches(incident, "gradient"));
  };
  const auto& incidents = verdict.incidents();
  if (std::none_of(incidents.begin(), incidents.end(), is_unapplied)) {
    return " reached the loss, a gradient, a parameter or a buffer; this is normal for masks and "
           "discarded branches";
  }
  return " reached a parameter or a buffer, and no update was made of a bad loss or gradient; this "
         "is normal where the program or a GradScaler skips such a step";
}

// Where a level checks no ops, what it checks instead.
std::string ChecksOf(const Verdict& verdict) {
  const auto& watched = verdict.coverage().steps_watched();
  const auto canary = watched.find("canary");
  const bool is_canary = verdict.run().level() == "canary";
  if (!is_canary && (canary == watched.end() || canary->second == 0)) return "";
  return " in losses, gradients, parameters and optimizer states, which level canary "
         "checks in each step; what the program did to them after the last one is not seen";
}

// Only the scaler's count says so: at this level no op was seen to overflow.
VerdictWords SkippedWords(const Verdict& verdict) {
  return {"EXPECTED", "a GradScaler skipped updates, which is harmless",
          "gradients overflowed at the current loss scale, which is normal while the scaler looks "
          "for the right one; level " +
              (verdict.run().level().empty() ? "canary" : verdict.run().level()) +
              " does not show which op overflowed",
          "", "nothing"};
}

VerdictWords ExpectedWords(const Verdict& verdict) {
  if (verdict.incidents().empty()) return SkippedWords(verdict);
  const auto by_rule =
      std::count_if(verdict.incidents().begin(), verdict.incidents().end(),
                    [](const Incident& incident) { return !incident.expected_by().empty(); });
  const std::string sentence =
      std::string("non-finite values") +
      (by_rule == 0 ? ", all of them harmless" : ", expected by your rules");
  if (by_rule == verdict.incidents_size()) {
    return {"EXPECTED", sentence, "your rules (NANWATCH_IGNORE or --ignore) cover all of them", "",
            "nothing, as long as your rules are right"};
  }
  const std::string who =
      by_rule == 0 ? "none of them" : "apart from those that your rules cover, none of them";
  return {"EXPECTED", sentence, who + HarmlessBecause(verdict), "", "nothing"};
}

VerdictWords CleanWords(const Verdict& verdict) {
  // Level `auto` leaves steps out by itself; all others make the verdict unknown.
  const uint64_t idle = IdleSteps(verdict.coverage());
  const uint64_t counted = CountedSteps(verdict.coverage());
  const std::string where = idle == 0 ? ""
                                      : " in the " + Grouped(counted - idle) + " of " +
                                            Counted(counted, "step") + " that were watched";
  return {"CLEAN", "no non-finite value" + where + ChecksOf(verdict), "", "", ""};
}

VerdictWords AnomalyWords(const Verdict& verdict) {
  const Incident& first = verdict.incidents(0);
  IncidentReason reason = ReasonOf(first);
  return {"ANOMALY", Headline(first) + InTraining(verdict, first.origin()), std::move(reason.why),
          std::move(reason.evidence), std::move(reason.remedy)};
}

}  // namespace

VerdictWords WordsOf(const Verdict& verdict) {
  if (verdict.runs().empty() || verdict.verdict() == "unknown") {
    UnknownText text = TextOfUnknown(verdict);
    return {"UNKNOWN", std::move(text.what), "", "", std::move(text.remedy)};
  }
  if (verdict.verdict() == "anomaly" && !verdict.incidents().empty()) return AnomalyWords(verdict);
  return verdict.verdict() == "expected" ? ExpectedWords(verdict) : CleanWords(verdict);
}

}  // namespace nanwatch
