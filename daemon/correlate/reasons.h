// SPDX-License-Identifier: Apache-2.0
// Why a verdict is what it is, in sentences: the decisions that Lineage and the rules took on the
// way, told one by one for a person who doubts the answer or wants to check it against the records.
//
// Nothing is decided here: every sentence puts into words a reason that stands beside the fact it
// decided (ValueNode::because, ReachEvent::how), so the story cannot differ from the verdict.
#pragma once

#include "daemon/correlate/incident.h"
#include "verdict.pb.h"

namespace nanwatch {

// Appends the steps from the origin to the severity. `incident` is what Finish() made of `draft`;
// `all` are the drafts of the job.
void AddReasons(const IncidentDraft& draft, const Incident& incident, const Drafts& all,
                Explanation& explanation);

// "record 12 (aten::_softmax, blocks.0.attention, forward, step 46)".
[[nodiscard]] std::string NameOf(const Finding& finding);

}  // namespace nanwatch
